"""A class: graded by a grader that does what each submission says, and its tables."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tools.conftest import processes_in, wait_for
from tools.course import class_table, grade_class, marks
from tools.course.class_table import without_particulars
from tools.course.submission import LARGEST_SOURCE
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
from tools.grading.stages import BadChoice, Stage
from tools.setup.toolchain import ROOT, LabError
from tools.student.course import Course

GRADER = """\
import json, os, pathlib, shutil, sys, time
options = dict(word[2:].split("=", 1) for word in sys.argv[2:])
said = (pathlib.Path(sys.argv[1]) / "naive_ddp.cpp").read_text()
if (answers := pathlib.Path(sys.argv[1]) / "writeup").exists(): shutil.copytree(answers, options["keep"] + "/writeup")
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
        shutil.copytree(ROOT / "writeup", self.lab / "writeup", ignore=shutil.ignore_patterns("out"))
        for stage in (ROOT / "assignments").glob("*_*"):
            shutil.copytree(stage, self.lab / "assignments" / stage.name)

    def submit(self, what_each_does: dict[str, str]) -> None:
        for name, does in what_each_does.items():
            (self.submissions / name).mkdir(parents=True, exist_ok=True)
            (self.submissions / name / "naive_ddp.cpp").write_text(does)

    def answer(self, student: str, text: str) -> None:
        answers = self.submissions / student / "writeup/answers/01_naive_ddp.typ"
        answers.parent.mkdir(parents=True, exist_ok=True)
        answers.write_text(f'// Mine\n#answer("1.1")[\n  {text}\n]\n\n#answer("1.2")[\n  #todo\n]\n')

    def grade(self, *options: str, code: int = 0) -> str:
        command = [*self.command, "--jobs=2", *options]
        done = subprocess.run(command, cwd=self.lab, capture_output=True, text=True, timeout=60)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
        return done.stdout + done.stderr

    def marks(self) -> dict[tuple[str, str], dict[str, str]]:
        with (self.out / marks.FILE).open(newline="", encoding="utf-8-sig") as file:
            return {(row["student"], row["question"]): row for row in csv.DictReader(file)}

    def mark(self, student: str, question: str, **cells: str) -> None:
        """As a person does in a spreadsheet; `part_1` is the column "part 1"."""
        table = self.marks()
        table[student, question] |= {name.replace("_", " "): text for name, text in cells.items()}
        with (self.out / marks.FILE).open("w", newline="", encoding="utf-8") as file:
            names = dict.fromkeys(name for row in table.values() for name in row)
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(table.values())

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


def test_a_path_longer_than_the_system_takes_harms_no_other(course: Class) -> None:
    course.submit({"bob": "passed", "deep": "passed"})
    folder = os.open(course.submissions / "deep", os.O_RDONLY)
    for _ in range(40):
        os.mkdir("d" * 200, dir_fd=folder)
        folder, above = os.open("d" * 200, os.O_RDONLY, dir_fd=folder), folder
        os.close(above)
    os.close(folder)
    course.grade(code=1)
    assert course.rows()["bob"]["points"] == "25"
    assert "File name too long" in course.rows()["deep"]["problem"]


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


def test_marks_become_points_are_kept_and_flagged(course: Class) -> None:
    course.submit({"ann": "passed", "=1+1": "passed", "eve": "passed"})
    for name in ("ann", "eve"):
        course.answer(name, "x_y = 4/9")
    assert "marks.csv: 2" in course.grade()
    assert course.marks()["ann", "Q1.1"]["of"] == "1 + 1" and ("'=1+1", "Q5.1") in course.marks()
    assert {row["writeup"] for row in course.rows().values()} == {""}
    course.mark("ann", "Q1.1", part_1="1", part_2="0,5", comment="<b>and\nwhy?", mine="seen")
    course.mark("'=1+1", "Q1.2", part_1="0")
    assert "3 of them graded already" in course.grade() and course.grade(), "twice is as once"
    assert [course.rows()[name]["writeup"] for name in ("ann", "'=1+1", "eve")] == ["1.5", "0", ""]
    page = (course.out / "students/ann/report.html").read_text()
    assert "1.5 / 2" in page and "&lt;b&gt;and" in page and page.count("<h2>Writeup") == 1
    assert "<td>1.5</td>" in (course.out / "class.html").read_text()

    course.answer("ann", "x_y = 1/3")
    shutil.rmtree(course.submissions / "eve")
    course.mark("eve", "Q1.1", part_1="1")
    assert "ann: changed since it was marked: Q1.1" in course.grade("--again")
    ann, eve = (course.marks()[name, "Q1.1"] for name in ("ann", "eve"))
    assert (ann["part 1"], ann["part 2"], ann["mine"], ann["note"]) == ("1", "0,5", "seen", marks.CHANGED)
    assert (eve["part 1"], eve["note"]) == ("1", marks.GONE)
    course.mark("ann", "Q1.1", answer="")
    assert "changed" not in course.grade() and course.rows()["ann"]["writeup"] == "1.5"


def test_a_mistake_among_the_marks_is_named_by_its_line(tmp_path: Path) -> None:
    both = {"Q1.1": marks.Question("01_sums", (1, 1)), "Q2.1": marks.Question("02_more", (1, 1, 1))}
    table, file = marks.Table(tmp_path / marks.FILE, both), tmp_path / marks.FILE
    table.update({"ann": tmp_path})
    text = file.read_text()
    for row, said in {
        "Bop,Q1.1": "there is no student Bop",
        "ann,Q9.9": "there is no question Q9.9",
        "ann,Q1.1": "the student has a row for this question above",
        "ann,Q1.1,,2": "part 1 of Q1.1 has 0 to 1 points, and here are 2",
        "ann,Q1.1,,nan": "part 1 of Q1.1 has 0 to 1 points",
        "ann,Q1.1,,,good": "part 2 of Q1.1 is no number: good",
        "ann,Q1.1,,,,1": "part 3 of Q1.1 has 0 to 0 points",
    }.items():
        file.write_text(text.replace("1 + 1 + 1,,,,", '1 + 1 + 1,,,,"two\nlines"') + row + "\n")
        with pytest.raises(LabError, match=f"marks.csv, line 5: {said}"):
            table.read(["ann"])
    file.write_text(text.replace(",", ";").replace(";1 + 1;", ";1 + 1;0,5"))  # of some spreadsheets
    assert table.update({"ann": tmp_path})[0].points == 0.5 and ";1 + 1;0,5;" in file.read_text()


def test_no_answer_takes_long_to_look_at(tmp_path: Path) -> None:
    """One student's would otherwise hold up all marks for hours."""
    file = tmp_path / "writeup/answers/01_sums.typ"
    file.parent.mkdir(parents=True)
    for text in "\n" * LARGEST_SOURCE, '#answer("1.1")[' + " " * LARGEST_SOURCE + "x":
        file.write_text(text)
        began = time.process_time()
        marks.Table(tmp_path / marks.FILE, {"Q1.1": marks.Question("01_sums", (1,))}).update({"ann": tmp_path})
        assert time.process_time() - began < 10


@pytest.mark.parametrize("names", [("x\u200b", "x\u200c"), ("=x", "'=x")])
def test_two_students_whose_names_are_shown_alike_are_told_apart(names: tuple[str, str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    with pytest.raises(BadChoice, match="are both .*'s: keep"):
        grade_class.students_in(tmp_path, tmp_path / "out")


def test_a_regrade_says_whose_points_changed_and_by_which_tests(course: Class) -> None:
    course.submit({"ann": "passed", "bob": "failed"})
    course.grade()
    assert "No points have changed." in course.grade("--again")
    course.submit({"ann": "failed"})
    assert "ann: points 25 -> 15, 01_naive_ddp 15 -> 5; by\n    01 first passed -> failed" in course.grade("--again")
