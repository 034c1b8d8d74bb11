"""`make cases`: each question has one right answer, and the page tells none before it is asked."""

from __future__ import annotations

import base64
import dataclasses
import html
import re
import subprocess
import sys
import zlib
from pathlib import Path
from unittest import mock

import pytest

from tests.lab.marks import STAGES, each_stage
from tests.tools.checking_helpers import PICTURE
from tests.tools.test_release import Leaks
from tools.checking import mutants
from tools.course import cases, release
from tools.grading.running.test_lists import tests_of
from tools.grading.stages import BadChoice, Stage
from tools.setup.toolchain import ROOT, LabError
from tools.student import cases as students

LARGEST = 2 << 20  # bytes of the page
SHARED = [ROOT / "common/ddp" / name for name in ("gradient_synchronizer.h", "collectives.h")]


def words(text: str) -> str:
    return " ".join(re.sub(r"^\s*//+", "", text, flags=re.MULTILINE).split())


def opened(page: str) -> str:
    """With what is shown once both questions are answered, and without markup."""
    answer = re.compile(r'data-answer="([^"]+)"')
    page = answer.sub(lambda packed: f">{zlib.decompress(base64.b64decode(packed[1])).decode()}<", page)
    return html.unescape(re.sub(r"<[^>]*>", "\n", page))


@each_stage
def test_a_stage_lists_six_mutants_each_with_one_right_answer(stage: Stage) -> None:
    known, tests = {each.name: each for each in mutants.load(stage)}, {spec.name for spec in tests_of(stage)}
    texts = (ROOT / "assignments" / stage.name / "README.md", *stage.headers(), *SHARED)
    contract = [words(path.read_text()) for path in texts]
    listed = cases.listed(stage)
    assert len({case.mutant.name for case in listed}) == len(listed) == 6
    for case in listed:
        assert {*case.tests} <= tests - {*case.mutant.killed_by} and len({*case.tests}) == cases.WRONG
        assert len({case.mutant.mistake, *(known[name].mistake for name in case.mistakes)}) == cases.WRONG + 1
        assert any(words(case.breaks) in text for text in contract), case.breaks


def made_up() -> tuple[cases.Case, cases.Record]:
    """A mutant that is listed, and what it might have done."""
    case = cases.listed(STAGES[0])[0]
    marks = [{"lane": 0, "operation": 0, "at": 1, "kind": "the mark", "text": "text of the mark"}]
    chart = {**PICTURE["charts"][0], "marks": marks, "bar": {"begin": 0, "end": 1, "text": "too long"}}
    memory = {"name": "rank 0", "limit": 1, "series": [{"name": "backward", "bytes": 2}]}
    message = "the message\n    at ddp::Solution::secret()\nand more"
    picture = {**PICTURE, "charts": [chart], "memory": memory, "values": None}
    return case, {"passed": case.tests, "message": message, "picture": picture}


def test_answers_are_told_only_when_they_are_asked_for() -> None:
    case, record = made_up()
    told = ("text of the mark", "too long", "bytes over", "the message\nand more", words(case.breaks)[:30])
    asked, exam, key = (cases.page("", {STAGES[0]: [cases.shown(case, record)]}, form).decode()
                        for form in ("asked", "exam", "key"))  # fmt: skip
    assert [text for text in told if text in asked + exam] == []
    assert [text for text in told if text not in key] == [] == [text for text in told[3:] if text not in opened(asked)]
    assert "data-answer" not in exam + key and 'class="right"' not in asked + exam and key.count('class="right"') == 2
    assert "secret" not in opened(asked + key) and case.mutant.name not in opened(asked + exam + key)
    assert asked.count("<fieldset><legend>") == 2 and asked.count('type="radio"') == 8
    assert "http" not in re.sub('xmlns="[^"]*"', "", asked), "nothing comes from elsewhere"


def test_a_case_that_is_not_as_it_is_listed_is_found() -> None:
    case, record = made_up()
    for passed in (case.tests[1:], [*case.tests, case.mutant.killed_by[0]]):
        with pytest.raises(LabError, match=f"{case.mutant.name}.*but it passes"):
            cases.shown(case, {**record, "passed": passed})


def test_what_was_recorded_holds_until_the_mutant_or_the_tests_change() -> None:
    mutant = made_up()[0].mutant
    places = {cases.place_of(mutant), cases.place_of(dataclasses.replace(mutant, text=f"{mutant.text}\n"))}
    with mock.patch.object(cases, "_code", return_value=b"other tests"):
        assert len({cases.place_of(mutant), *places}) == 3


def test_a_release_has_the_page_of_its_stages_and_no_exam(tmp_path: Path) -> None:
    done = [subprocess.CompletedProcess([], code) for code in (0, 1)]
    with mock.patch.object(subprocess, "run", side_effect=done) as run:
        release.add_cases(tmp_path)
        assert not run.called, "it has no stage of this lab"
        (tmp_path / "tests" / STAGES[0].name).mkdir(parents=True)
        release.add_cases(tmp_path)
        with pytest.raises(LabError, match="nothing was handed out"):
            release.add_cases(tmp_path)
    with mock.patch.object(sys, "argv", ["cases", "--exam=12"]), pytest.raises(BadChoice, match="instructor's"):
        students.main()
    with mock.patch.object(students.webbrowser, "open") as browser:
        assert students.show(tmp_path / "cases.html", "3") == 0
    browser.assert_called_once_with(f"file://{tmp_path}/cases.html#03")


@pytest.mark.slow
@pytest.mark.builds(*(f"{what}_{stage.name}" for stage in STAGES for what in ("tests", "solutions")))
def test_no_line_of_a_solution_is_on_the_page_or_in_an_exam(built: None, tmp_path: Path) -> None:
    page = cases.page("", cases.all_of(STAGES), "asked")
    assert len(page) < LARGEST
    key = cases.page("", cases.exam(STAGES, len(STAGES), 1), "key").decode()
    assert key.count("<article") == len(STAGES)
    leaks, file, (solution, *_) = Leaks(), tmp_path / "page.txt", STAGES[0].sources("solutions")
    for text, leaky in ((page.decode(), False), (key, False), (html.escape(solution.read_text()), True)):
        file.write_text(opened(text))
        assert bool(leaks.found(tmp_path)) is leaky
