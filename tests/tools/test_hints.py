"""The hints: two for each graded test, the second of which says more, and neither of which is the answer. They and the
tests' names come from files, without a build, and are those that the built programs have."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.lab.marks import each_stage_built
from tests.tools.grading_test import NAMES, Lab
from tools.grading.hint import second_hints
from tools.grading.running import test_lists
from tools.grading.stages import Stage, all_stages
from tools.setup.checkout_lock import hold
from tools.setup.toolchain import BUILD_DIR, ROOT

LONGEST = 480  # characters: a paragraph, not a page
SHORTEST_LINE = 25  # characters of a line of code that is somebody's own
each_stage = pytest.mark.parametrize("stage", all_stages(), ids=lambda stage: stage.name)


def first_hints(stage: Stage) -> dict[str, str]:
    return {spec.name: spec.hint for spec in test_lists.tests_of(stage)}


@each_stage
def test_each_graded_test_has_both(stage: Stage) -> None:
    """And the second says more and something else."""
    first, second = first_hints(stage), second_hints(stage)
    written = "".join(path.read_text() for path in (ROOT / "tests" / stage.name).glob("*.cpp"))
    assert len(first) == written.count(".hint =")
    assert second.keys() == first.keys()
    for name, text in second.items():
        assert 80 < len(text) <= LONGEST, name
        assert text not in first[name] and first[name] not in text


@each_stage_built()
def test_what_is_read_from_files_is_what_is_built(stage: Stage) -> None:
    assert test_lists.tests_of(stage) == test_lists.ask(BUILD_DIR / "bin" / f"tests_{stage.name}")


@pytest.mark.skipif(not (ROOT / "solutions").is_dir(), reason="there are no solutions here")
@each_stage
def test_none_is_a_line_of_the_solution(stage: Stage) -> None:
    sources = [path.read_text() for path in (ROOT / "solutions" / stage.name).glob("*.[ch]*")]
    lines = {" ".join(line.split()) for text in sources for line in text.splitlines()}
    code = {line for line in lines if len(line) >= SHORTEST_LINE and not line.startswith(("//", "#"))}
    assert len(code) > 20
    for text in [*first_hints(stage).values(), *second_hints(stage).values()]:
        assert [line for line in code if line in " ".join(text.split())] == [], text


@pytest.fixture
def hints(lab: Lab) -> Path:
    """Stage 01 has three tests; these are the second hints."""
    return lab.write("tests/01_naive_ddp/hints.json", json.dumps({NAMES[1]: "How often do you divide?"}))


def hint(lab: Lab, *arguments: str) -> str:
    done = lab.tool("hint", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_first_hint_names_the_second_which_stands_below_it(lab: Lab, hints: Path) -> None:
    first = hint(lab, f"--test={NAMES[1]}")
    assert "make test STAGE=01 TEST=gradients_equal_the_oracle\n" in first
    assert "make hint STAGE=01 TEST=gradients_equal_the_oracle LEVEL=2\n" in first
    assert "Divide." in first and "How often" not in first and "Use broadcast." not in first
    assert re.search(r"(?s)Divide\..*How often do you divide\?", hint(lab, f"--test={NAMES[1]}", "--level=2"))
    assert "LEVEL=2" not in hint(lab, f"--test={NAMES[1]}", "--level=2")
    assert "LEVEL=2" not in hint(lab, f"--test={NAMES[0]}")  # has none
    assert "more" not in hint(lab, f"--test={NAMES[0]}", "--level=2")


def test_nothing_is_built_or_written_and_nobody_waited_for(lab: Lab, hints: Path) -> None:
    (lab.root / "build/toolchain.json").unlink()
    with hold(lab.root / "build/grade/lock", "make test"):
        said = hint(lab, "--stage=1")
    for text in "Use broadcast.", "Divide.", "Count.", "make hint TEST=<name> LEVEL=2":
        assert text in said
    shutil.rmtree(lab.root / "build/grade")
    lab.write("build/grade", "a file, where a tool that writes needs a folder")
    assert hint(lab) == said


def test_mistakes_are_said_before_anything_is_built(lab: Lab, hints: Path) -> None:
    with hold(lab.root / "build/grade/lock", "make test"):
        for tool in "hint", "grade", "other_ways.debug":
            done = lab.tool(tool, "--test=broadcast rank 0")
            assert done.returncode == 2
            assert "There are:\n  broadcasts_rank_0\nmake hint lists all" in done.stderr
        done = lab.tool("grade", "--stage=02", "--test=broadcasts_rank_0")
        said = "TEST=broadcasts_rank_0: that is a test of stage 01. Say STAGE=01, or no STAGE= at all\n"
        assert (done.returncode, done.stderr) == (2, said)
    assert not (lab.root / "build/targets").exists()
    assert "no graded tests" in lab.tool("hint", "--stage=02").stderr
    assert lab.tool("hint", "--level=3").stderr == "LEVEL=3 is not one of: 1, 2\n"
    hints.write_text("{broken")
    done = lab.tool("hint", f"--test={NAMES[0]}")
    assert done.returncode == 3
    assert re.search(r"^tests/01_naive_ddp/hints.json cannot be read \(.*git checkout tests\n$", done.stderr)
