"""Tests of `make submit`: what is packed, what is said to be missing; the same content gives the same bytes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import zipfile
from unittest import mock

from tests.tools.release_test import Repository, git
from tools.grading import stages
from tools.grading.compiling import stale
from tools.grading.scoring import kept_scores
from tools.grading.scoring.results import Report, StageReport, Status, TestResult, TestSpec
from tools.setup.toolchain import LabError
from tools.student import submit

DATE = "2026-10-07T10:00:00Z"
STAGE, HEADER = "assignments/01_sums/sums.cpp", "assignments/01_sums/sums.h"
ANSWERS, QUESTIONS = "writeup/answers/01_sums.typ", "writeup/questions/01_sums.typ"


class Submit(Repository):
    def setUp(self) -> None:
        super().setUp()
        self.commit(
            {
                "assignments/02_products/products.cpp": "// TODO(student)\n",
                "assignments/02_products/stage.json": json.dumps({"number": "02", "title": "products", "points": 4}),
                "course.json": json.dumps({"name": "little-lab", "links": {"Hand in": "https://example.edu/in"}}),
                QUESTIONS: '#let questions = (\n  question(\n    "1.1", points: 2)[Why?],\n  question("1.2")[How?])\n',
                ANSWERS: '#answer("1.1")[\n  #todo\n]\n\n#answer("1.2")[\n  Because.\n]\n',
                "writeup/answers/about.typ": '#let name = ""\n',
            }
        )
        self.released("mine")
        self.mine = self.top / "mine"
        self.results = self.mine / "build" / "grade" / "scores.json"
        for module in (stages, stale):
            self.enterContext(mock.patch.object(module, "ROOT", self.mine))
        stages.all_stages.cache_clear()
        self.addCleanup(stages.all_stages.cache_clear)
        self.edit(STAGE, "int sum() { return 4; }\n")

    def edit(self, name: str, text: str) -> None:
        (self.mine / name).parent.mkdir(parents=True, exist_ok=True)
        (self.mine / name).write_text(text)

    def submit(self) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertEqual(submit.submit(self.mine, self.results), 0)
        return output.getvalue()

    def packed(self) -> dict[str, bytes]:
        with zipfile.ZipFile(self.mine / "handin" / "little-lab.zip") as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    def graded(self, stage: str = "01_sums", impl: str = "assignments", date: str = DATE, **changes: bool) -> None:
        """What `make test STAGE=` leaves, or with partial=True `make test TEST=`."""
        graded = stages.named(stage)
        tests = [TestResult(TestSpec("sums_are_right", 2), Status.PASSED)]
        tests += [TestResult(TestSpec("others_too", 1), Status.FAILED)]
        report = StageReport(graded, tests, sources=stale.digest(graded, impl))
        report.build_error = "" if changes.get("compiles", True) else "an error"
        self.results.parent.mkdir(parents=True, exist_ok=True)
        run = Report(impl, "cpu", 7, [report], partial=changes.get("partial", False), date=date)
        kept_scores.keep(self.results.parent, run, report)

    def test_edited_stages_answers_and_scores_are_packed_and_nothing_else(self) -> None:
        self.edit("assignments/01_sums/mine.h", "int helper();\n")
        self.edit(ANSWERS, '#answer("1.1")[Thus.]\n')
        self.edit("writeup/answers/sketch.png", "a picture")
        self.edit("writeup/out/writeup.assignments.quick.pdf", "a paper")
        self.graded()
        self.submit()
        self.assertEqual(
            sorted(self.packed()),
            ["assignments/01_sums/mine.h", STAGE, "handin.json", "scores/results.json", "scores/scorecard.txt", ANSWERS,
             "writeup/answers/sketch.png", "writeup/out/writeup.assignments.quick.pdf"],
        )  # fmt: skip
        self.assertIn("sums are right", self.packed()["scores/scorecard.txt"].decode())

    def test_the_manifest_has_release_date_and_checksums(self) -> None:
        self.graded()
        self.submit()
        files = self.packed()
        manifest = json.loads(files.pop("handin.json"))
        self.assertRegex(manifest["release"], r"2026-10-05\.[0-9a-f]{7}")
        self.assertEqual(manifest["graded"], {"01_sums": DATE})
        self.assertEqual(
            manifest["files"], {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        )

    def test_the_same_content_gives_the_same_bytes(self) -> None:
        self.graded()
        archive = self.mine / "handin" / "little-lab.zip"
        self.submit()
        first = archive.read_bytes()
        os.utime(self.mine / STAGE, (1, 1))
        self.submit()
        self.assertEqual(archive.read_bytes(), first)
        self.edit(STAGE, "int sum() { return 5; }\n")
        self.submit()
        self.assertNotEqual(archive.read_bytes(), first)

    def test_edits_elsewhere_are_named_and_stay_behind(self) -> None:
        self.edit("common/ddp/given.h", "int taken();\n")
        (self.mine / HEADER).unlink()
        self.edit("notes.txt", "mine\n")
        self.edit("build/bin/tests", "ignored\n")
        said = self.submit()
        self.assertRegex(said, f"(?s)grading uses the course's own:\n  {HEADER}\n  common/ddp/given.h\n.*notes.txt")
        self.assertNotIn("build/bin", said)
        self.assertEqual(sorted(self.packed()), [STAGE, "handin.json"])
        listed = json.loads(self.packed()["handin.json"])["edited_elsewhere"]
        self.assertEqual(listed, [HEADER, "common/ddp/given.h"])

    def test_what_is_missing_is_said(self) -> None:
        said = self.submit()
        for line in ("handed out: 02", "no scores: make test", "writeup: 1.1 not answered", "your name, in"):
            self.assertIn(line, said)
        self.assertIn("Hand it in at https://example.edu/in", said)

    def test_scores_that_do_not_fit_are_said(self) -> None:
        self.graded(partial=True)
        self.graded(impl="solutions")
        self.assertIn("no scores: make test", self.submit())
        self.graded(compiles=False)
        self.assertIn("stage 01 does not compile: make test STAGE=01", self.submit())
        self.graded()
        self.assertNotIn("stage 01", self.submit().partition("missing")[2])
        self.edit(STAGE, "int sum() { return 5; }\n")
        self.assertIn("stage 01: edited since it was graded", self.submit())
        self.edit("assignments/02_products/products.cpp", "int product() { return 6; }\n")
        self.assertIn("stage 02: never graded as a whole", self.submit())

    def test_a_run_of_some_leaves_the_scores_of_the_others(self) -> None:
        self.graded()
        self.graded("02_products", date="2026-10-08T10:00:00Z")
        both = f"scores: 4 of 6 points, graded {DATE} (01) and 2026-10-08T10:00:00Z (02)"
        self.assertIn(both, self.submit())
        self.graded(partial=True, date="2026-10-09T10:00:00Z")
        self.graded("02_products", impl="solutions", date="2026-10-09T10:00:00Z")
        self.assertIn(both, self.submit())
        self.graded(date="2026-10-08T10:00:00Z")
        self.assertIn("scores: 4 of 6 points, graded 2026-10-08T10:00:00Z\n", self.submit())

    def test_scores_that_cannot_be_read_are_none(self) -> None:
        for text in ("{", "[]", '{"tests": [], "extra_data": {"stages": {"01_sums": {}}}}'):
            self.edit("build/grade/scores.json", text)
            self.assertIn("no scores: make test", self.submit())
            self.graded()
            self.assertIn("scores: 2 of 3 points, of stage 01 alone", self.submit())

    def test_a_stub_that_was_more_when_it_was_graded_is_said(self) -> None:
        self.graded("02_products")
        self.assertNotIn("stage 02", self.submit().partition("missing")[2].replace("handed out: 02", ""))
        self.edit("assignments/02_products/products.cpp", "int product() { return 6; }\n")
        self.graded("02_products")
        self.edit("assignments/02_products/products.cpp", "// TODO(student)\n")  # as make reset does
        self.assertIn("stage 02: edited since it was graded", self.submit())

    def test_nothing_edited_is_nothing_to_hand_in(self) -> None:
        self.edit(STAGE, "// TODO(student)\n")
        with self.assertRaisesRegex(LabError, "nothing to hand in"):
            submit.submit(self.mine, self.results)

    def test_in_a_clone_git_says_what_was_edited_elsewhere(self) -> None:
        (self.mine / "release.json").unlink()
        git(self.mine, "init", "-q")
        git(self.mine, "add", "-A")
        git(self.mine, "commit", "-q", "-m", "the lab")
        self.edit("common/ddp/given.h", "int taken();\n")
        self.edit("notes.txt", "mine\n")
        said = self.submit()
        self.assertRegex(said, "(?s)the course's own:\n  common/ddp/given.h\n.*notes.txt")
        self.assertEqual(json.loads(self.packed()["handin.json"])["commit"], git(self.mine, "rev-parse", "HEAD"))

    def test_with_neither_git_nor_manifest_that_is_said(self) -> None:
        (self.mine / "release.json").unlink()
        self.assertIn("nobody knows", self.submit())
        self.assertIn(STAGE, self.packed())
