"""compare50 on a class of 20 that was made up from the variants: it finds those who copied, and from whom."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest

from tools.course.similarity import compare, environment, submissions_in
from tools.grading.stages import named
from tools.setup.toolchain import ROOT, LabError

STUDENTS = 20
STAGES = named("02_overlapped_ddp"), named("03_bucketed_ddp")  # those with the most variants in files of their own


def disguised(code: str) -> str:
    """The same with other names, other comments and other spaces."""
    code = re.sub(r"//.*", "// mine", code)
    # Of names with an underscore, those of libraries could not be renamed, which are of one word.
    code = re.sub(r"\b([a-z]+_[a-z_]*[a-z])\b", r"\1_of_mine", code)
    return code.replace("\n  ", "\n      ")


@pytest.mark.slow
def test_who_copied_and_from_whom(tmp_path: Path) -> None:
    def write(student: str, code_of: Callable[[int], Path], by: Callable[[str], str] = str) -> None:
        for number, stage in enumerate(STAGES):
            place = tmp_path / student / "taken/assignments" / stage.name / stage.sources("assignments")[0].name
            place.parent.mkdir(parents=True)
            place.write_text(by(code_of(number).read_text()))

    def variant(student: int) -> Callable[[int], Path]:
        folders = [ROOT / "tests/variants" / stage.name for stage in STAGES]
        return lambda stage: next(islice(cycle(sorted(folders[stage].glob("*.cpp"))), student, None))

    def best(name: str) -> set[str]:
        """Those with the highest score beside this student."""
        own = f"class/{name}"
        scores = {({pair.one, pair.other} - {own}).pop(): pair.score for pair in pairs if own in (pair.one, pair.other)}
        return {other for other, score in scores.items() if score == max(scores.values())}

    for student in range(STUDENTS - 4):
        write(f"class/s{student:02}", variant(student))
    write("class/copied", variant(0), disguised)
    write("earlier/somebody", variant(1))
    write("class/again", variant(1), disguised)
    stubs = [stage.sources("assignments")[0] for stage in STAGES]
    write("class/handed_in_stubs", lambda stage: stubs[stage])
    write(
        "class/from_the_solutions", lambda stage: ROOT / "solutions" / STAGES[stage].name / stubs[stage].name, disguised
    )
    students = submissions_in(tmp_path / "class")
    assert len(students) == STUDENTS
    try:
        python = environment()
    except LabError as error:
        pytest.skip(str(error))
    archive = [*submissions_in(tmp_path / "earlier"), ROOT / "solutions"]
    pairs = compare(python, students, archive, tmp_path / "out", 190)
    assert "class/s00" in best("copied")
    assert {"class/s01", "earlier/somebody"} & best("again")
    assert any("solutions" in name for name in best("from_the_solutions"))
    assert best("handed_in_stubs") == set(), "the stubs' text counts"
    assert (tmp_path / "out/index.html").exists()
