"""A class: graded by a grader that does what each submission says, and its tables."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.conftest import processes_in, wait_for
from tools.course import class_table
from tools.course.class_table import without_particulars
from tools.grading.scoring.results import (
    NOT_HANDED_IN,
    Report,
    StageReport,
    Status,
    TestResult,
    TestSpec,
    gradescope,
    sums_of_tests,
)
from tools.grading.stages import Stage
from tools.setup.toolchain import ROOT
from tools.student.course import Course

GRADER = """\
import json, os, pathlib, sys, time
options = dict(word[2:].split("=", 1) for word in sys.argv[2:])
said = (pathlib.Path(sys.argv[1]) / "naive_ddp.cpp").read_text()
with open("runs", "a") as runs: runs.write(said + "\\n")
if said == "crashes": sys.exit(70)
if said == "never ends":
    pathlib.Path("begun").touch()
    time.sleep(600)
def test(name, status, points, stage="01_naive_ddp"):
    about = {"stage": stage, "test": name, "status": "failed" if status == "broken" else status}
    about["problem"] = "does not compile" if status == "broken" else ""
    output = f'in "{len(os.listdir(sys.argv[1]))} layers" (2 ranks): rank {os.getpid() % 7}: exactly {os.getpid()}.5 x'
    return {"name": name, "score": points * (status == "passed"), "max_score": points, "extra_data": about,
            "output": output if status == "failed" else ""}
tests = [test("first", said, 10), test("second", "passed", 5), test("third", "passed", 10, "02_overlapped_ddp")]
pathlib.Path(options["out"]).write_text(json.dumps({"score": sum(t["score"] for t in tests), "tests": tests}))
sys.exit(4 if said == "not graded" else said != "passed")
"""
LAB, BEYOND = Stage("01_sums", "01", "sums", 3), Stage("02_more", "02", "more", 5, extension=True)
PASSED, FAILED, TODO = Status.PASSED, Status.FAILED, Status.TODO


class Class:
    def __init__(self, top: Path) -> None:
        self.lab, self.out, self.submissions = top / "lab", top / "out", top / "submissions"
        self.command = [sys.executable, "-m", "tools.course.grade_class", str(self.submissions), f"--out={self.out}",
                        f"--grader={self.lab}"]  # fmt: skip
        shutil.copytree(ROOT / "tools", self.lab / "tools")
        (self.lab / "tools/course/grade_submission.py").write_text(GRADER)
        (self.lab / "course.json").write_text('{"course": "CS <1>"}')
        for stage in (ROOT / "assignments").glob("*_*"):
            shutil.copytree(stage, self.lab / "assignments" / stage.name)

    def submit(self, what_each_does: dict[str, str]) -> None:
        for name, does in what_each_does.items():
            (self.submissions / name).mkdir(parents=True, exist_ok=True)
            (self.submissions / name / "naive_ddp.cpp").write_text(does)

    def grade(self, code: int = 0) -> str:
        done = subprocess.run([*self.command, "--jobs=2"], cwd=self.lab, capture_output=True, text=True, timeout=60)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
        return done.stdout

    def rows(self) -> dict[str, dict[str, str]]:
        with (self.out / "scores.csv").open(newline="") as file:
            return {row["student"]: row for row in csv.DictReader(file)}


@pytest.fixture
def course(tmp_path: Path) -> Class:
    return Class(tmp_path)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Class:
    """Of whom each does something else."""
    course = Class(tmp_path_factory.mktemp("class"))
    course.submit({"ann": "passed", "bob": "crashes", "eve": "failed", "<i>kim": "failed", "<b>0": "not_judged",
                   "zoe": "broken", "=1+1": "passed", "\t=2+2\x1b[31m": "not graded"})  # fmt: skip
    course.said = course.grade(code=1)
    return course


def test_one_failure_harms_no_other(graded: Class) -> None:
    rows = graded.rows()
    assert [rows[name]["points"] for name in ("ann", "bob", "eve")] == ["25", "0", "15"]
    assert (rows["eve"]["01 first"], rows["bob"]["01 first"]) == ("failed", "")
    assert "ended with status 70" in rows["bob"]["problem"], "Python's own 1 would pass for a grade"


def test_names_are_neither_formulas_nor_commands_of_a_terminal(graded: Class) -> None:
    rows = graded.rows()
    assert "'=1+1" in rows, "a spreadsheet would compute it"
    assert rows["?=2+2?[31m"]["problem"].startswith("a stage was not graded")
    assert "\x1b" not in graded.said + (graded.out / "scores.csv").read_text()


def test_a_name_is_no_markup_and_the_page_needs_nothing_from_elsewhere(graded: Class) -> None:
    page = " ".join((graded.out / "class.html").read_text().split())
    assert "<b>0" not in page and "<i>kim" not in page and "http" not in page
    assert "failed: &lt;i&gt;kim, eve; not judged: &lt;b&gt;0; not built: zoe</details>" in page
    assert "8 submissions: median 15, from 15 to 25 points; 2 with a problem." in page


def test_a_run_that_was_stopped_goes_on(course: Class) -> None:
    course.submit({"ann": "passed", "bob": "never ends"})
    with subprocess.Popen([*course.command, "--jobs=1"], cwd=course.lab, stdout=subprocess.PIPE) as process:
        wait_for((course.lab / "begun").exists, "the second submission's turn")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    wait_for(lambda: not processes_in(course.lab), "the end of all processes")
    course.submit({"bob": "passed"})
    assert "2 submissions, 1 of them graded already" in course.grade()
    assert course.rows()["bob"]["points"] == "25"


def test_one_diagnosis_is_the_same_but_for_run_rank_tensor_and_number() -> None:
    one = 'in "three layers" (2 ranks): rank 1, step 2: the gradient of layer 2: exactly 2.000x the reference'
    other = 'in "five ranks" (5 ranks): rank 0, step 0: the gradient of layer 11: exactly 5.000x the reference'
    assert without_particulars(one) == without_particulars(other)
    assert len(without_particulars(one)) > 15


@pytest.mark.parametrize(
    ("lab", "beyond", "problem", "said", "full"),
    [
        (FAILED, PASSED, "", "0 of 3 points, extension 5 of 5", False),
        (PASSED, None, "", "3 of 3 points", True),
        (None, PASSED, "", "extension 5 of 5", True),
        (PASSED, TODO, "", "3 of 3 points, extension 0 of 5", True),
        (PASSED, FAILED, "", "3 of 3 points, extension 0 of 5", False),
        (PASSED, FAILED, NOT_HANDED_IN, "3 of 3 points, extension 0 of 5", True),
        (None, TODO, "", "extension 0 of 5", False),
    ],
)
def test_points_of_the_extension_are_a_sum_of_their_own(
    lab: Status | None, beyond: Status | None, problem: str, said: str, full: bool, tmp_path: Path
) -> None:
    stages = [StageReport(stage, [TestResult(TestSpec("adds_up", stage.points), status)])
              for stage, status in ((LAB, lab), (BEYOND, beyond)) if status]  # fmt: skip
    stages[-1].problem = problem
    report = Report("assignments", "cpu", 1, stages)
    assert (str(report.sums), report.full_marks()) == (said, full)
    found = gradescope(report)
    assert sums_of_tests(found["tests"]) == report.sums
    (tmp_path / "results.json").write_text(json.dumps(found))
    class_table.write(tmp_path, [class_table.row_of("ann", tmp_path)], Course())
    (row,) = csv.DictReader((tmp_path / "scores.csv").open())
    assert (float(row["points"]), float(row.get("extension", 0))) == (report.sums.score, report.sums.extension)
    assert ("<th>extension</th>" in (tmp_path / "class.html").read_text()) == bool(beyond)
