"""What a student does with the lab's folder: make submit, make reset, make update."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tools.release_test import (
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
from tools.course import release
from tools.grading import released, stages
from tools.grading.compiling import stale
from tools.grading.stages import BadChoice
from tools.setup.toolchain import LabError
from tools.student import reset, update

KEPT = f"{STAGE}.before-reset-"
OTHER = "int sum() { return 5; }\n"


@pytest.fixture
def student(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Student]:
    """The tools take themselves to be in the folder."""
    for module in (stages, stale):
        monkeypatch.setattr(module, "ROOT", tmp_path / "mine")
    stages.all_stages.cache_clear()
    yield Student(tmp_path, capsys)
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
    assert files.keys() == {*own, STAGE, "scores/results.json", "scores/scorecard.txt"}
    assert b"sums are right" in files["scores/scorecard.txt"]
    assert re.fullmatch(r"2026-10-05\.[0-9a-f]{7}", manifest["release"])
    assert manifest["graded"] == {"01_sums": FIRST_DAY}
    assert manifest["files"] == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    os.utime(student.root / STAGE, (1, 1))
    student.submit()
    assert student.archive.read_bytes() == first, "the same content gives the same bytes"


@pytest.mark.parametrize("knows", ["release", "git", ""])
def test_edits_elsewhere_are_named_and_stay_behind(student: Student, knows: str) -> None:
    if knows != "release":
        (student.root / "release.json").unlink()
    if knows == "git":
        student.edit({STAGE: STUB})
        student.commit_all()
    student.edit({STAGE: MINE, GIVEN: "int taken();\n", HEADER: None, "notes.txt": "mine\n", "build/bin/tests": ""})
    said, packed = student.submit(), student.packed()
    assert "build/bin" not in said
    assert STAGE in packed
    if not knows:
        assert "nobody knows" in said
        return
    assert re.search(f"(?s)grading uses the course's own:\n  {HEADER}\n  {GIVEN}\n.*notes.txt", said)
    manifest = json.loads(packed["handin.json"])
    assert manifest["edited_elsewhere"] == [HEADER, GIVEN]
    assert manifest["commit"] == git(student.root if knows == "git" else student.course.root, "rev-parse", "HEAD")


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
    more = "assignments/01_sums/more"
    student.edit({f"{more}.cpp": "int more();\n", f"{more}.h": "int more();\n"})
    said = student.reset()
    assert (student.text(STAGE), student.text(KEPT + "1")) == (STUB, MINE)
    assert f"{STAGE} is kept as sums.cpp.before-reset-1" in said
    assert f"mv {KEPT}1 {STAGE}" in said
    assert (student.text(f"{more}.cpp"), student.text(f"{more}.cpp.before-reset-1")) == (None, "int more();\n")
    assert student.text(f"{more}.h") == "int more();\n"
    assert "Nothing to do" in student.reset()
    for text in (OTHER, MINE):
        student.edit({STAGE: text})
        student.reset()
    assert [student.text(KEPT + number) for number in "123"] == [MINE, OTHER, MINE]
    student.edit({STAGE: None})
    student.reset()
    assert student.text(STAGE) == STUB


def test_a_stub_from_git_is_the_newest(student: Student) -> None:
    student.edit({"release.json": None})
    for texts in ((), (MINE,), ("// an older one, TODO(student)\n", "// TODO(student): sums\n", MINE, OTHER)):
        with pytest.raises(LabError, match="No commit here has the stub"):
            student.reset()
        for text in texts:
            student.edit({STAGE: text})
            student.commit_all()
    student.reset()
    assert (student.text(STAGE), student.text(KEPT + "1")) == ("// TODO(student): sums\n", OTHER)


@pytest.mark.parametrize(("number", "said"), [("", "make reset STAGE=02"), ("7", "STAGE=7 is not one of: 01_sums")])
def test_a_reset_of_no_stage(student: Student, number: str, said: str) -> None:
    with pytest.raises(BadChoice, match=said):
        reset.reset_as_asked(number)


def test_an_update_leaves_stages_and_answers(student: Student) -> None:
    own = {STAGE: MINE, "assignments/01_sums/mine.h": "// a file of one's own\n", ANSWERS: "forty-two\n"}
    student.edit(own)
    built = (student.root / STAGE).stat().st_mtime_ns
    replaced = {GIVEN: "int given(int);\n", HEADER: "long sum();\n", SECOND: STUB * 2, "README.md": None}
    new = student.new(replaced)
    os.utime(new / GIVEN, (1, 1))
    said = student.update(new)
    assert {name: student.text(name) for name in own} == own
    assert {name: student.backup(name) for name in own} == own
    assert {name: student.text(name) for name in replaced} == replaced
    assert (student.root / GIVEN).stat().st_mtime_ns >= built, "new for a build, however old the release"
    assert f"{HEADER} has changed" in said
    assert student.backup(HEADER) == "int sum();\n"
    assert "stub" not in said


def test_what_an_update_replaces_is_saved_and_named(student: Student) -> None:
    student.edit({GIVEN: "int taken();\n", "course.json": "{}", "docs/notes.md": "my notes\n"})
    new = student.new({GIVEN: None, "docs/notes.md": "the course's\n", "course.json": '{"name": "little-lab"}',
                       STAGE: STUB * 2})  # fmt: skip
    said = student.update(new)
    assert not (student.root / GIVEN).parent.exists(), "a file that the lab no longer has goes with its folder"
    for name, text in ((GIVEN, "int taken();\n"), ("course.json", "{}"), ("docs/notes.md", "my notes\n")):
        assert student.backup(name) == text
        assert f"  {name}\n" in said
    assert student.text(STAGE) == MINE
    assert f"{STAGE} is yours and stays" in said
    assert [student.backup(f"{STAGE}.stub-{when}") for when in ("before", "now")] == [STUB, STUB * 2]


def test_the_same_release_repairs_and_saves_each_edit(student: Student) -> None:
    student.edit({STAGE: STUB})
    for text in ("first\n", "second\n"):
        student.edit({GIVEN: text, HEADER: None})
        student.course.released(text)
        assert GIVEN in student.update(student.course.top / text)
        assert list(student.old.differing(student.root)) == []
    saved = sorted(path.read_text() for path in (student.root / "backup").glob(f"*/{GIVEN}"))
    assert saved == ["first\n", "second\n"]


def test_what_an_update_refuses(student: Student) -> None:
    new, archive = student.new({GIVEN: "int given(int);\n"}), student.course.top / "new.tar.gz"
    good, before = released.load(new), student.files()

    def refused(message: str, source: Path = new) -> None:
        with pytest.raises(LabError, match=message):
            update.update(source, student.root)
        assert student.files() == before

    replace(good, date="2026-10-01T00:00:00+00:00").write(new)
    refused("older than what is here")
    replace(good, name="another").write(new)
    refused("a release of another")
    good.write(new)
    release.write_archive(new, good, archive)
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    refused("no whole archive|differs or is missing|should have one folder", archive)
    (new / GIVEN).write_text("half a fi")
    refused(f"{GIVEN} differs or is missing")
    refused("has no release.json", student.course.root)
    archive.write_bytes(whole)
    student.update(archive)
    assert student.text(GIVEN) == "int given(int);\n"
    assert list(student.root.glob(".update-*")) == []


def test_an_update_that_was_cut_short_goes_on(student: Student, monkeypatch: pytest.MonkeyPatch) -> None:
    student.edit({STAGE: STUB, GIVEN: "int taken();\n"})
    new = student.new({GIVEN: "int given(int);\n", HEADER: "long sum();\n"})
    copy = update.copy_atomically

    def cut_short(source: Path, target: Path) -> None:
        if target == student.root / GIVEN:
            raise OSError("the power is off")
        copy(source, target)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="the power is off"):
        patch.setattr(update, "copy_atomically", cut_short)
        update.update(new, student.root)
    assert student.text(GIVEN) == "int taken();\n"
    with pytest.raises(LabError, match="was interrupted"):
        released.load(student.root)
    student.update(new)
    assert released.load(student.root) == released.load(new)
    assert list(released.load(new).differing(student.root)) == []
    assert (student.backup(GIVEN), student.backup(HEADER)) == ("int taken();\n", "int sum();\n")
