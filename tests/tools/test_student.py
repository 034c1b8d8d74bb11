"""What a student does with the lab's folder: make submit, make reset, git pull, and the page of a CI's job."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.release_helpers import (
    ANSWERS,
    FIRST_DAY,
    GIVEN,
    HEADER,
    MINE,
    NEXT_DAY,
    SECOND,
    STAGE,
    STUB,
    Student,
    git,
)  # fmt: skip
from tools.grading import released, stages
from tools.grading.compiling import building
from tools.grading.sandbox import job_page
from tools.grading.stages import BadChoice
from tools.setup.toolchain import LabError
from tools.student import reset

KEPT = f"{STAGE}.before-reset-"
OTHER = "int sum() { return 5; }\n"


@pytest.fixture
def student(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Student]:
    """The tools take themselves to be in the folder."""
    for module in (stages, building):
        monkeypatch.setattr(module, "ROOT", tmp_path / "mine")
    found = Student(tmp_path, capsys)
    stages.all_stages.cache_clear()
    yield found
    stages.all_stages.cache_clear()


def test_what_is_handed_in(student: Student) -> None:
    pdf = "writeup/out/writeup.assignments.quick.pdf"
    own = {"assignments/01_sums/mine.h": "int helper();\n", ANSWERS: '#answer("1.1")[Thus.]\n',
           "writeup/answers/sketch.png": "a picture", pdf: "a paper"}  # fmt: skip
    student.edit(own)
    student.graded()
    student.submit()
    files, first = student.packed(), student.archive.read_bytes()
    manifest = json.loads(files.pop("handin.json"))
    assert files.keys() == {*own, STAGE, "scores/results.json"}
    assert re.fullmatch(r"2026-10-05\.[0-9a-f]{7}", manifest["release"])
    assert manifest["graded"] == {"01_sums": FIRST_DAY}
    os.utime(student.root / STAGE, (1, 1))
    student.submit()
    assert student.archive.read_bytes() == first, "the same content gives the same bytes"


@pytest.mark.parametrize("git_is_there", [True, False])
def test_edits_elsewhere_are_named_and_stay_behind(student: Student, git_is_there: bool) -> None:
    student.edit({"more.txt": "mine\n", GIVEN: "int taken();\n"})
    student.commit_all()
    student.edit({HEADER: None, "notes.txt": "mine\n", "build/bin/tests": ""})
    if not git_is_there:
        shutil.rmtree(student.root / ".git")
    elsewhere = [HEADER, GIVEN, "more.txt", "notes.txt"]
    said, packed = student.submit(), student.packed()
    assert ("grading uses the course's own:\n  " + "\n  ".join(elsewhere) in said) == git_is_there
    manifest = json.loads(packed["handin.json"])
    assert manifest["edited_elsewhere"] == (elsewhere if git_is_there else None)
    assert packed.keys() == {STAGE, "handin.json"}
    assert manifest["commit"] == git(student.course.root, "rev-parse", "HEAD")


def test_a_pull_brings_what_is_new_and_leaves_the_students_work(student: Student) -> None:
    student.commit_all()
    student.course.commit({GIVEN: "int given(int);\n", SECOND: STUB * 2})
    student.pull()
    assert (student.text(GIVEN), student.text(SECOND), student.text(STAGE)) == ("int given(int);\n", STUB * 2, MINE)
    assert "grading uses" not in student.submit(), "what the course has changed is no edit of the student's"
    student.edit({GIVEN: "int taken();\n"})
    assert f"own:\n  {GIVEN}" in student.submit()


def test_what_is_missing_is_said(student: Student) -> None:
    said = student.submit()
    for line in ("handed out: 02", "no scores: make test", "writeup: 1.1 not answered", "your name, in",
                 "Hand it in at https://example.edu/in"):  # fmt: skip
        assert line in said
    student.edit({STAGE: STUB})
    with pytest.raises(LabError, match="nothing to hand in"):
        student.submit()


def test_scores_that_do_not_fit_are_said(student: Student) -> None:
    def missing() -> str:
        return student.submit().partition("missing")[2].replace("handed out: 02", "")

    student.graded(partial=True)
    student.graded(impl="solutions")
    assert "no scores: make test" in missing()
    student.graded(error="an error")
    assert "stage 01 does not compile: make test STAGE=01" in missing()
    student.graded()
    assert "stage 0" not in missing()
    student.edit({STAGE: OTHER})
    assert "stage 01: edited since it was graded" in missing()
    student.edit({SECOND: "int product() { return 6; }\n"})
    assert "stage 02: never graded as a whole" in missing()
    student.graded("02_products")
    student.edit({SECOND: STUB})  # as make reset does
    assert "stage 02: edited since it was graded" in missing()


def test_a_run_of_some_leaves_the_scores_of_the_others(student: Student) -> None:
    for text in ("{", "[]", '{"tests": [], "extra_data": {"stages": {"01_sums": {}}}}'):  # are none
        student.edit({"build/grade/scores.json": text})
        assert "no scores: make test" in student.submit()
        student.graded()
        assert "scores: 2 of 3 points, of stage 01 alone" in student.submit()
    student.graded("02_products", date=NEXT_DAY)
    student.graded(partial=True, date="2026-10-09T10:00:00Z")
    student.graded("02_products", impl="solutions", date="2026-10-09T10:00:00Z")
    assert f"scores: 4 of 6 points, graded {FIRST_DAY} (01) and {NEXT_DAY} (02)" in student.submit()
    student.graded(date=NEXT_DAY)
    assert f"scores: 4 of 6 points, graded {NEXT_DAY}\n" in student.submit()


def test_a_reset_stage_is_the_stub_and_nothing_is_lost(student: Student) -> None:
    said = student.reset()
    assert (student.text(STAGE), student.text(KEPT + "1")) == (STUB, MINE)
    assert f"mv {KEPT}1 {STAGE}" in " ".join(said.split())
    assert "Nothing to do" in student.reset()
    for text in (OTHER, MINE):
        student.edit({STAGE: text})
        student.reset()
    assert [student.text(KEPT + number) for number in "123"] == [MINE, OTHER, MINE]
    student.edit({STAGE: None})
    student.reset()
    assert student.text(STAGE) == STUB


def test_in_the_courses_own_repository_the_stub_is_gits_newest(student: Student) -> None:
    older, newer = "// an older one, TODO(student)\n", "// TODO(student): sums\n"
    for text in (older, newer, MINE, OTHER):
        student.edit({"release.json": None, STAGE: text})
        student.commit_all()
    student.reset()
    assert (student.text(STAGE), student.text(KEPT + "1")) == (newer, OTHER)
    shutil.rmtree(student.root / ".git")
    with pytest.raises(LabError, match="No commit here has the stub"):
        student.reset()


@pytest.mark.parametrize(("number", "said"), [("", "make reset STAGE=02"), ("7", "STAGE=7 is not one of: 01_sums")])
def test_a_reset_of_no_stage(student: Student, number: str, said: str) -> None:
    with pytest.raises(BadChoice, match=said):
        reset.reset_as_asked(number)


def a_test(name: str, status: str, points: int, visibility: str = "visible") -> dict[str, Any]:
    passed = status == "passed"
    return {"name": f"01 {name}", "status": "passed" if passed else "failed", "score": points * passed,
            "max_score": points, "visibility": visibility, "output": "" if passed else "twice <the> mean\n\n# and more",
            "extra_data": {"stage": "01_sums", "status": status}}  # fmt: skip


def written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page of a CI's job."""
    monkeypatch.setattr(job_page.released, "load", lambda load=released.load: load(folder / "mine"))
    monkeypatch.setattr(job_page.released, "edited", lambda edited=released.edited: edited(folder / "mine"))
    tests = [a_test("first", "failed", 10), a_test("secret", "passed", 5, "hidden")]
    (folder / "results.json").write_text(json.dumps({"tests": tests}))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / "page.md"))
    monkeypatch.setattr(sys, "argv", ["job_page", str(folder / "results.json")])
    assert job_page.write() == 0
    return (folder / "page.md").read_text()


def test_points_and_what_did_not_pass(student: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = written(tmp_path, monkeypatch)
    assert "| 01 sums | 5 / 15 | 1 of 2 |\n| **all** | 5 / 15 | 1 of 2 |\n\nGraded by this repository's own" in page
    said = "twice &lt;the&gt; mean"
    assert f"<details><summary>01 first: failed: {said}</summary>\n<pre>{said}&#10;&#10;# and more</pre>" in page
    assert "secret" not in page, "the course shows it later"


def test_an_edited_copy_gives_no_points(student: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    student.edit({GIVEN: "int taken();\n", "README.md": "# My lab\n", "assignments/01_sums/mine.h": "int mine();\n"})
    student.commit_all()
    student.edit({HEADER: None, "tests/01_sums/more.cpp": "int more();\n"})
    page = written(tmp_path, monkeypatch)
    listed = [line for line in page.splitlines() if line.startswith("- `")]
    assert listed == [f"- `{name}`" for name in (HEADER, GIVEN, "tests/01_sums/more.cpp")]
    assert "**These points do not count**" in page
