"""Grades a class with a grader that does what each submission says, and reads the tables."""

from __future__ import annotations

import csv
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from tests.tools.grading_test import processes_in, wait_for
from tools.setup.toolchain import ROOT

GRADER = """\
import json, os, pathlib, sys, time
options = dict(word[2:].split("=", 1) for word in sys.argv[2:])
said = (pathlib.Path(sys.argv[1]) / "naive_ddp.cpp").read_text()
with open("runs", "a") as runs: runs.write(said + "\\n")
if said == "crashes": sys.exit(3)
if said == "never ends":
    pathlib.Path("begun").touch()
    time.sleep(600)
def test(name, status, points, stage="01_naive_ddp"):
    about = {"stage": stage, "test": name, "status": "failed" if status == "broken" else status}
    about["problem"] = "does not compile" if status == "broken" else ""
    output = f'in "{len(os.listdir(sys.argv[1]))} layers" (2 ranks): rank {os.getpid() % 7}: exactly {os.getpid()}.5 x'
    return {"name": name, "score": points * (status == "passed"), "max_score": points, "extra_data": about,
            "output": output if status == "failed" else ""}
mended = pathlib.Path("mended").exists() and said == "failed"
tests = [test("first", "passed" if mended else said, 10)]
tests += [test("second", "passed", 5), test("third", "passed", 10, "02_overlapped_ddp")]
asked = {"about": "buckets", "body": "b", "asked": f"Why? {said}", "answer": "since it is", "evidence": ["launched"]}
pathlib.Path(options["questions"]).write_text(json.dumps({"03_bucketed_ddp": [asked]}))
pathlib.Path(options["out"]).write_text(json.dumps({"score": sum(t["score"] for t in tests), "tests": tests}))
sys.exit(said != "passed")
"""
COURSE = """{"course": "CS <1>"}"""


class Class(unittest.TestCase):
    def setUp(self) -> None:
        scratch = self.folder
        self.lab, self.out = Path(scratch).resolve() / "lab", Path(scratch) / "out"
        shutil.copytree(ROOT / "tools", self.lab / "tools")
        (self.lab / "tools/course/grade_submission.py").write_text(GRADER)
        (self.lab / "course.json").write_text(COURSE)
        for stage in (ROOT / "assignments").glob("*_*"):
            shutil.copytree(stage, self.lab / "assignments" / stage.name)
        self.submissions = Path(scratch) / "submissions"

    def submit(self, name: str, does: str) -> None:
        file = self.submissions / name / "naive_ddp.cpp"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(does)

    def command(self, *options: str) -> list[str]:
        return [
            sys.executable,
            "-m",
            "tools.course.grade_class",
            str(self.submissions),
            "--out",
            str(self.out),
            *options,
        ]

    def grade(self, *options: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(self.command(*options), cwd=self.lab, capture_output=True, text=True, timeout=60)
        self.assertNotIn("Traceback", done.stdout + done.stderr)
        return done

    def rows(self) -> dict[str, dict[str, str]]:
        with (self.out / "scores.csv").open(newline="") as file:
            return {row["student"]: row for row in csv.DictReader(file)}

    def runs(self) -> int:
        return len((self.lab / "runs").read_text().splitlines())

    def test_one_failure_harms_no_other(self) -> None:
        for name, does in (("ann", "passed"), ("bob", "crashes"), ("eve", "failed")):
            self.submit(name, does)
        done = self.grade("--jobs=2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("bob was not graded: ended with status 3", done.stdout)
        rows = self.rows()
        self.assertEqual([rows[name]["points"] for name in ("ann", "bob", "eve")], ["25", "0", "15"])
        self.assertEqual((rows["eve"]["01 first"], rows["bob"]["01 first"]), ("failed", ""))
        self.assertIn("ended with status 3", rows["bob"]["problem"])

    def test_what_is_graded_is_not_graded_again(self) -> None:
        self.submit("ann", "passed")
        self.submit("bob", "crashes")
        self.grade()
        self.assertIn("2 submissions, 1 of them graded already", self.grade().stdout)
        self.assertEqual(self.runs(), 3)
        self.submit("ann", "failed")
        self.submit("bob", "passed")
        self.assertEqual(self.grade().returncode, 0)
        self.assertEqual((self.runs(), self.rows()["ann"]["points"], self.rows()["bob"]["points"]), (5, "15", "25"))
        self.grade("--again")
        self.assertEqual(self.runs(), 7)

    def test_a_run_that_was_stopped_goes_on(self) -> None:
        self.submit("ann", "passed")
        self.submit("bob", "never ends")
        process = subprocess.Popen(self.command("--jobs=1"), cwd=self.lab, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        wait_for((self.lab / "begun").exists, "the second submission's turn")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 130)
        wait_for(lambda: not processes_in(self.lab), "the end of all processes")
        self.submit("bob", "passed")
        self.assertIn("2 submissions, 1 of them graded already", self.grade().stdout)
        self.assertEqual(self.rows()["bob"]["points"], "25")

    def test_the_page(self) -> None:
        for number in range(3):
            self.submit(f"<b>{number}", "passed" if number else "not_judged")
        self.submit("zoe", "broken")
        self.grade("--jobs=2")
        page = (self.out / "class.html").read_text()
        self.assertNotIn("<b>0", page)
        self.assertNotIn("http", page)  # it needs nothing from elsewhere
        self.assertIn("CS &lt;1&gt;", page)
        self.assertIn('<td>50 %</td><td class="bar"><i class="passed" style="width:50.00%">2</i>', page)
        self.assertIn("not judged: &lt;b&gt;0; not built: zoe", page)
        self.assertIn("median 20, from 15 to 25 points", page)

    def test_the_page_groups_failures_by_what_they_say(self) -> None:
        for name in ("ann", "bob", "<i>eve"):
            self.submit(name, "failed")
        self.submit("zoe", "passed")
        self.grade("--jobs=2")
        page = (self.out / "class.html").read_text()
        self.assertIn("<td>3</td><td>rank #: exactly # x</td><td>01 first</td>", page)
        self.assertIn("for example: in &quot;1 layers&quot; (2 ranks): rank ", page)
        self.assertIn("All: &lt;i&gt;eve, ann, bob", page)

    def test_each_student_has_questions(self) -> None:
        self.submit("ann", "passed")
        self.submit("bob", "failed")
        self.assertIn("questions.html", self.grade("--jobs=2").stdout)
        page = (self.out / "questions.html").read_text()
        self.assertEqual((page.count("since it is"), page.count("Why? failed")), (2, 1))
        theirs = (self.out / "students/bob/questions.html").read_text()
        self.assertIn("Why? failed", theirs)
        self.assertNotIn("since it is", theirs)

    def test_a_mended_grader_says_whose_score_changed(self) -> None:
        for name, does in (("ann", "passed"), ("bob", "failed"), ("eve", "failed")):
            self.submit(name, does)
        self.grade("--jobs=2")
        self.assertIn("Graded again: 3, of whom 0 changed.", self.grade("--again").stdout)
        (self.lab / "mended").touch()
        said = self.grade("--again").stdout
        self.assertIn("of whom 2 changed", said)
        self.assertIn("  bob: 15 -> 25 points\n    01 first: failed -> passed, +10 points", said)
        self.assertIn("  2 by 01 first", said)
        self.assertNotIn("ann: ", said)
        self.assertIn("bob: 15 -> 25", (self.out / "changes.txt").read_text())

    def test_what_a_spreadsheet_would_run(self) -> None:
        self.submit("=1+1", "passed")
        self.grade()
        self.assertIn("'=1+1", self.rows())

    def test_mistakes_of_whoever_grades(self) -> None:
        self.assertRegex(self.grade().stderr, r"is\s+not\s+a\s+folder\s+of\s+submissions")  # it is folded
        self.submit("ann", "passed")
        (self.submissions / "ann.zip").touch()
        done = self.grade()
        self.assertEqual(done.returncode, 2)
        self.assertIn("are both ann's", " ".join(done.stderr.split()))
