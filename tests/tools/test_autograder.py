"""`make autograder`: what is in it, and, in a folder laid out as Gradescope's, what it makes of six submissions."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tarfile
import time
import unittest
import zipfile
from pathlib import Path

import pytest

from tests.tools.autograder_test import FIFTH, FIRST, HIDDEN, SEED, Layout, files_of, solution, stage_with
from tests.tools.grading_test import processes_in, wait_for
from tests.tools.release_test import git, working_tree
from tests.tools.workflow_test import Job
from tools.course import autograder, hidden, release
from tools.grading.stages import all_stages
from tools.setup import toolchain
from tools.setup.toolchain import ROOT, LabError

# What each stage of the cheat tries.
CHEATS = {
    FIRST: ("#include <fstream>", 'std::ofstream("/autograder/results/results.json") << "{}";'),
    "02_overlapped_ddp": ('const long kSeed =\n#include "{lab}/hidden/seed"\n;', ""),
    "03_bucketed_ddp": ("[[gnu::constructor]] static void attack() { __builtin_trap(); }", ""),
    "04_sync_batch_norm": ("#include <dlfcn.h>", 'dlopen("/tmp/libstage.so", 1);'),
    FIFTH: ("#include <cstdlib>", 'std::printf("{\\"score\\": 100}"); std::exit(0);'),
}
FULL = {"01": 18, "02": 20, "03": 25, "04": 20, "05": 20, "06": 20, "07": 25}  # 3 of 01's are the hidden test's
ENDLESS = "for (volatile int i = 0;; ++i) {}"
PRINTS = (
    "static const std::string much(1 << 20, 'x'); for (int i = 0; i < 1024; ++i) std::printf(\"%s\", much.c_str());"
)


class Hidden(unittest.TestCase):
    def test_no_release_has_it(self) -> None:
        asked = ["git", "check-attr", "export-ignore", "--", "hidden", "hidden/seed"]
        said = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        self.assertTrue(said.startswith("hidden: export-ignore: set"), said)

    def test_of_a_stage_that_is_not_there(self) -> None:
        (self.folder / "06_more").mkdir()
        (self.folder / "06_more/a.cpp").touch()
        with self.assertRaisesRegex(LabError, "there is no stage 06_more"):
            hidden.add_to(self.folder, self.folder)

    def test_a_seed_that_is_none(self) -> None:
        self.assertIsNone(hidden.seed(self.folder))
        (self.folder / "seed").write_text("twelve")
        with self.assertRaisesRegex(LabError, "seed should hold one whole number"):
            hidden.seed(self.folder)


class Contents(Layout):
    def test_what_gradescope_looks_for(self) -> None:
        with zipfile.ZipFile(self.made / "autograder.zip") as archive:
            for name in ("setup.sh", "run_autograder"):
                self.assertTrue(archive.getinfo(name).external_attr >> 16 & 0o100, f"{name} is no program")

    def test_answers_are_where_they_are_removed_alone(self) -> None:
        lab = self.root / "source/lab"
        for stage in all_stages():
            there = {path.name for path in (self.root / "source/solutions" / stage.name).iterdir()}
            self.assertEqual(there, files_of(stage.name).keys())
        for folder in ("solutions", "tests/mutants", "tests/variants", "tools/checking"):
            self.assertFalse((lab / folder).exists(), folder)
        self.assertTrue((lab / "tools/course/grade_submission.py").exists())

    def test_what_students_may_read_has_no_answer_hidden_test_or_seed(self) -> None:
        public, source = self.top / "public", self.made / "source"
        autograder.write_public(public, working_tree())
        there, everything = (
            {path.relative_to(top) for path in top.rglob("*") if path.is_file()} for top in (public, source)
        )
        self.assertLessEqual(there, everything)
        kept = {path.as_posix() for path in everything - there}
        answers = {path for path in kept if path.startswith("solutions/")}
        self.assertEqual(len(answers), sum(len(files_of(stage.name)) for stage in all_stages()))
        others = {"Dockerfile", "run_autograder", "lab/hidden/seed", f"lab/{self.added[0]}"}
        self.assertEqual(kept - answers, others)

    def test_hidden_tests_lie_beside_the_others(self) -> None:
        self.assertEqual(self.added, [f"tests/{FIRST}/hidden.scalar.cpp"])
        self.assertEqual((self.root / "source/lab" / self.added[0]).read_text(), HIDDEN)
        self.assertEqual(hidden.seed(self.root / "source/lab/hidden"), SEED)

    def test_autolabs_archive_has_the_same(self) -> None:
        with tarfile.open(self.made / "autograde.tar") as archive:
            self.assertIn("source/lab/tools/course/grade_submission.py", archive.getnames())


@pytest.mark.slow
class Grading(Layout):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        tools = toolchain.load()
        given = {"PYTHON": tools.python} if tools.python else {"LIBTORCH": tools.libtorch}
        cls.given = {**given, "CXX": tools.cxx}
        env = {**os.environ, **cls.given}
        cls.setup = subprocess.run(
            ["bash", str(cls.root / "source/setup.sh")], env=env, capture_output=True, text=True, timeout=1800
        )
        assert not (cls.root / "source/solutions").exists()
        assert cls.setup.returncode == 0, cls.setup.stdout[-3000:] + cls.setup.stderr[-3000:]

    def setUp(self) -> None:
        shutil.rmtree(self.root / "results", ignore_errors=True)
        shutil.rmtree(self.root / "submission")
        (self.root / "submission").mkdir()

    def submit(self, **codes: str) -> None:
        """By the stage's name."""
        for stage in all_stages():
            if stage.name in codes:
                self.write(stage.name, {stage.sources("assignments")[0].name: codes[stage.name]})

    def write(self, stage: str, files: dict[str, str], top: Path | None = None) -> None:
        for name, text in files.items():
            place = (top or self.root / "submission") / "assignments" / stage / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    def command(self, *options: str) -> list[str]:
        """Without a limit of time: how long it takes hangs on what else this machine does."""
        return ["bash", str(self.root / "run_autograder"), "--limit=1800", *options]

    def grade(self, *options: str) -> dict:
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        env = {**os.environ, "AUTOGRADER_ROOT": str(self.root)}
        done = subprocess.run(self.command(*options), env=env, capture_output=True, text=True, timeout=1800)
        self.said, used = done.stdout, resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        self.assertNotIn("Traceback", done.stdout + done.stderr)
        self.cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        print(f"\n{self.id()}: {time.monotonic() - began:.0f} s, of processors {self.cpu_s:.0f} s")
        self.assertEqual(processes_in(self.root), [])
        return self.results()

    def results(self) -> dict:
        return json.loads((self.root / "results/results.json").read_bytes())

    def of_stage(self, found: dict, stage: str) -> list[dict]:
        return [test for test in found["tests"] if test["extra_data"]["stage"] == stage]

    def points(self, found: dict) -> dict[str, float]:
        return {
            stage.name[:2]: sum(test["score"] for test in self.of_stage(found, stage.name)) for stage in all_stages()
        }

    def test_a_good_one(self) -> None:
        for stage in all_stages():
            self.write(stage.name, files_of(stage.name))
        found = self.grade()
        self.assertEqual(self.points(found), FULL)
        self.assertEqual([entry["name"][:2] for entry in found["leaderboard"]], ["03", "05"])
        self.assertLess(self.cpu_s / 2, 40, "on two cores")
        if os.getuid() == 0:
            self.assertEqual((self.root / "results/results.json").stat().st_uid, 65534)
        (claim,) = [test for test in found["tests"] if test["visibility"] != "visible"]
        self.assertEqual((claim["name"], claim["visibility"]), ("01 a scalar is averaged", "after_published"))
        self.assertNotIn(str(SEED), json.dumps(found))

    def test_an_empty_one(self) -> None:
        found = self.grade()
        self.assertEqual(found["score"], 0)
        self.assertIn("There is no naive_ddp.cpp in what was handed in", found["tests"][0]["output"])

    def test_one_that_does_not_compile(self) -> None:
        self.submit(**{FIRST: solution(FIRST) + "int broken( {", FIFTH: solution(FIFTH)})
        found = self.grade()
        self.assertEqual(self.points(found), {**dict.fromkeys(FULL, 0), "05": 20})
        self.assertIn(f"assignments/{FIRST}/naive_ddp.cpp:", found["tests"][0]["output"])
        self.assertIn("error: expected", found["tests"][0]["output"])

    def test_one_that_fails_a_hidden_claim(self) -> None:
        code = stage_with(
            FIRST, "", 'if (parameters.size() == 1 && parameters[0].dim() == 0) TORCH_CHECK(false, "0-d");'
        )
        self.submit(**{FIRST: code})
        found = self.grade()
        self.assertEqual(self.points(found)["01"], 15)
        (claim,) = [test for test in self.of_stage(found, FIRST) if test["status"] == "failed"]
        self.assertEqual(claim["extra_data"]["test"], "a_scalar_is_averaged")

    def test_one_that_hangs(self) -> None:
        self.submit(**{FIRST: stage_with(FIRST, "", ENDLESS), FIFTH: solution(FIFTH)})
        found = self.grade()
        self.assertEqual(self.points(found), {**dict.fromkeys(FULL, 0), "05": 20})
        self.assertIn("hung", "".join(test["output"] for test in self.of_stage(found, FIRST)))

    def test_one_that_takes_too_long(self) -> None:
        self.submit(**{FIRST: solution(FIRST)})
        said = "".join(test["output"] for test in self.of_stage(self.grade("--limit=1"), FIRST))
        self.assertIn("the tests of this stage took longer than 1 s in all", said)

    def test_one_that_cheats(self) -> None:
        lab = self.root / "source/lab"
        self.submit(**{stage: stage_with(stage, top.replace("{lab}", str(lab)), statement)
                       for stage, (top, statement) in CHEATS.items()})  # fmt: skip
        (self.root / "submission/results.json").write_text('{"score": 100}')
        found = self.grade()
        self.assertEqual(found["score"], 0)
        for stage in CHEATS:
            self.assertIn("uses what it may not", self.of_stage(found, stage)[0]["output"])
        self.assertNotIn(str(SEED), json.dumps(found) + self.said)

    def test_one_that_prints_a_gigabyte(self) -> None:
        self.submit(
            **{FIRST: stage_with(FIRST, "#include <cstdio>\n#include <string>", PRINTS), FIFTH: solution(FIFTH)}
        )
        found = self.grade()
        self.assertEqual(self.points(found)["05"], 20)
        self.assertLess(len(json.dumps(found)), 4 << 20)

    def test_what_was_reached_is_kept(self) -> None:
        self.submit(**{stage.name: solution(stage.name) for stage in all_stages()})
        temporary = self.root / "results"  # whoever is killed leaves something there
        temporary.mkdir()
        env = {**os.environ, "AUTOGRADER_ROOT": str(self.root), "TMPDIR": str(temporary)}
        process = subprocess.Popen(self.command(), env=env, stdout=subprocess.DEVNULL, start_new_session=True)
        results = self.root / "results/results.json"
        wait_for(lambda: results.exists() and 0 < self.results()["score"], "the first test that passes", 120)
        os.killpg(process.pid, signal.SIGKILL)  # as at the end of Gradescope's patience
        process.wait()
        self.assertTrue(0 < self.results()["score"] < 100)
        wait_for(lambda: not processes_in(self.root), "the end of all processes")

    def test_the_workflow_of_a_release(self) -> None:
        """As students push it: finished, and untouched. What it would clone and cache is prepared already."""
        git(self.root / "source", "init", "-q")
        git(self.root / "source", "commit", "-q", "--allow-empty", "-m", "the grader")
        for name, codes, points in (
            ("finished", {stage.name: files_of(stage.name) for stage in all_stages()}, 103),
            ("untouched", {}, 0),
        ):
            workspace, runner = self.top / name, self.top / f"{name}.runner"
            release.write_tree(workspace, working_tree())
            for stage, files in codes.items():
                self.write(stage, files, workspace)
            job = Job(self, runner, workspace, (self.root / "source").as_uri(), **self.given)
            (runner / "grader").symlink_to(self.root / "source")
            self.assertEqual(job.run(), 0, job.printed)
            self.assertEqual(job.results["score"], points, job.printed)
            self.assertIn(f"| **all** | {points} / 103 |", job.summary)
            self.assertEqual(len(re.findall(r"^\| \d\d ", job.summary, re.MULTILINE)), len(all_stages()))
            self.assertEqual("not written yet</summary>" in job.summary, not points)
            self.assertEqual((job.reported["status"], job.reported["max_score"]), ("pass" if points else "fail", 103))
            self.assertEqual(sum(test["score"] for test in job.reported["tests"]), points)
            self.assertNotIn("a scalar is averaged", job.summary)

    def test_autolabs_job(self) -> None:
        folder = self.top / "autolab"
        folder.mkdir()
        for name in ("autograde.tar", "autograde-Makefile"):
            shutil.copy(self.made / name, folder)
        (folder / "naive_ddp.cpp").write_text(solution(FIRST))
        subprocess.run(["tar", "czf", "handin.tar.gz", "naive_ddp.cpp"], cwd=folder, check=True)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        job = ["make", "-f", "autograde-Makefile", f"LAB={self.root}", "HANDIN=handin.tar.gz"]
        done = subprocess.run(job, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        scores = json.loads(done.stdout.strip().splitlines()[-1])["scores"]
        self.assertEqual((scores[FIRST], scores[FIFTH]), (18, 0))
