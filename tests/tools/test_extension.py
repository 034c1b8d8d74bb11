"""Stages beyond the lab's points: a sum of their own, in all that says points, and a course may leave them out."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from tests.tools.release_test import Repository, working_tree
from tools.course import class_table, release
from tools.course.passages import for_students
from tools.grading.scoring.results import NOT_HANDED_IN, Report, StageReport, Status, TestResult, TestSpec, gradescope
from tools.grading.scoring.sums import of_tests
from tools.grading.stages import Stage
from tools.setup.toolchain import ROOT, LabError
from tools.student.course import Course

LAB, BEYOND = Stage("01_sums", "01", "sums", 3), Stage("02_more", "02", "more", 5, extension=True)


def report(lab: Status | None, beyond: Status | None) -> Report:
    stages = [
        StageReport(stage, [TestResult(TestSpec("adds_up", stage.points), status)])
        for stage, status in ((LAB, lab), (BEYOND, beyond))
        if status
    ]
    return Report("assignments", "cpu", 1, stages)


@pytest.mark.parametrize(
    ("lab", "beyond", "said", "full"),
    [
        (Status.FAILED, Status.PASSED, "0 of 3 points, extension 5 of 5", False),
        (Status.PASSED, Status.TODO, "3 of 3 points, extension 0 of 5", True),
        (Status.PASSED, Status.FAILED, "3 of 3 points, extension 0 of 5", False),
        (Status.PASSED, None, "3 of 3 points", True),
        (None, Status.PASSED, "extension 5 of 5", True),
        (None, Status.TODO, "extension 0 of 5", False),
    ],
)
def test_two_sums_of_which_full_marks_need_one(
    lab: Status | None, beyond: Status | None, said: str, full: bool
) -> None:
    graded = report(lab, beyond)
    assert (str(graded.sums), graded.full_marks()) == (said, full)
    assert of_tests(gradescope(graded)["tests"]) == graded.sums
    without = report(Status.PASSED, Status.FAILED)
    without.stages[1].problem = NOT_HANDED_IN
    assert without.full_marks()


def test_a_class_has_both(tmp_path: Path) -> None:
    found = gradescope(report(Status.PASSED, Status.PASSED))
    assert (found["score"], found["extra_data"]["extension"]) == (3, {"score": 5, "max_score": 5})
    (tmp_path / "results.json").write_text(json.dumps({"tests": found["tests"]}))
    class_table.write(tmp_path, [class_table.row_of("ann", tmp_path)], Course())
    (row,) = csv.DictReader((tmp_path / "scores.csv").open())
    assert (row["points"], row["extension"], row["02_more"]) == ("3", "5", "5")
    assert "<th>extension</th>" in (tmp_path / "class.html").read_text()


class LeftOut(Repository):
    def test_nothing_speaks_of_it(self) -> None:
        manifest = json.dumps({"number": "02", "title": "more", "points": 5, "extension": True})
        self.commit(
            {
                "assignments/02_more/stage.json": manifest,
                "assignments/02_more/more.cpp": "// TODO(student)\n",
                "tests/02_more/claims.cpp": "int claims();\n",
                "writeup/answers/02_more.typ": '#answer("2.1")[\n  #todo\n]\n',
                "README.md": "# Lab\n\n<!-- repository -->\nHere.\n<!-- /repository -->\n"
                "<!-- extension -->\nMore.\n<!-- /extension -->\n",
            }
        )
        whole = release.write_tree(self.top / "whole", root=self.root)
        self.assertTrue(any("02_more" in name for name in whole.files))
        self.assertEqual((self.top / "whole/README.md").read_text(), "# Lab\n\nMore.\n")
        self.commit({"course.json": json.dumps({"extension": False})})
        tree = release.write_tree(self.top / "without", root=self.root)
        self.assertFalse([name for name in tree.files if "02_more" in name])
        self.assertIn("assignments/01_sums/sums.cpp", tree.files)
        self.assertEqual((self.top / "without/README.md").read_text(), "# Lab\n\n")

    def test_nor_does_the_lab(self) -> None:
        files = release.without_extension(dict(release._handed_out(ROOT, working_tree())))
        speaking = re.compile(r"\b0[67]_|stages? 0[67]|sharded_|ZeRO|FSDP")
        for name, (content, _) in files.items():
            self.assertNotRegex(name, speaking)
            if name.endswith((".md", ".h", ".cpp", ".typ", ".json", ".txt")):
                text = content.decode()
                text = for_students(text, name, Course(extension=False)) if name.endswith(".md") else text
                self.assertNotRegex(text, speaking, name)


def test_a_mark_needs_its_other_end() -> None:
    with pytest.raises(LabError, match="README.md: the mark <!-- extension --> .about line 1. has no other end"):
        for_students("<!-- extension -->\nMore.\n", "README.md", Course())
