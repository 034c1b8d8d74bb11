"""What the grader shows: choices, looks, watching, and hints, which say more and are no answer."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.lab.marks import each_stage_built
from tests.tools.conftest import ALL_FAIL, ALL_PASS, NAMES, Lab
from tools.grading.hint import second_hints
from tools.grading.running import test_lists
from tools.grading.running.processes import BoundedText
from tools.grading.running.records import Records, printable
from tools.grading.scoring.results import Status, TestResult, TestSpec
from tools.grading.stages import Stage, all_stages
from tools.setup.checkout_lock import hold
from tools.setup.toolchain import BUILD_DIR, ROOT


@pytest.mark.parametrize(
    "choices, said",
    [
        ("--stage=01_naive", "STAGE=01_naive is not one of: 01_naive_ddp, 02"),
        ("--impl=solution", "IMPL=solution is not one of: solutions, ass"),
        ("--device=gpu", "DEVICE=gpu is not one of: cpu, cuda"),
        ("--seed=-1", "SEED=-1 is not a whole number from 0 to 9223372036854775807, as in SEED=42"),
        ("--schedule=last", "SCHEDULE=last is not a number that a failure"),
        ("--trace=a.json", "TRACE=a.json is for one stage; add STAGE=02"),
        ("--test=broadcast_rank_0", "\n  broadcasts_rank_0\n"),
        ("--stagee=1", "unrecognized arguments: --stagee"),
        ("--sanitize=thread", "SANITIZE=thread is not one of: address, undefined"),
        ("--sanitize=address --untrusted", "SANITIZE=address does not go with UNTRUSTED=1"),
        ("--untrusted --device=cuda", "UNTRUSTED=1 goes with neither TRACE= nor DEVICE=cuda"),
    ],
)
def test_unknown_values_list_the_valid_ones_the_closest_first(lab: Lab, choices: str, said: str) -> None:
    assert said in lab.grade(ALL_PASS, *choices.split(), code=2)


def test_a_reader_that_left_is_no_error(lab: Lab) -> None:
    lab.student(ALL_PASS)
    read, write = os.pipe()
    os.close(read)
    process = lab.start("grade", stdout=write, stderr=None)
    os.close(write)
    assert process.wait(60) == 0
    assert lab.results()["score"] == 15


def test_a_failure_in_another_order_is_repeated_by_its_schedule(lab: Lab) -> None:
    said = lab.grade(ALL_FAIL.replace("wrong", "in x with SCHEDULE=10000300004: wrong"), "--seed=7", code=1)
    assert re.search(r"make test STAGE=01 TEST=\w+ SEED=7 SCHEDULE=10000300004", said)


def test_watch_grades_on_every_save_and_ends_on_ctrl_c(lab: Lab) -> None:
    lab.student("does not compile")
    process = lab.start("watch", "--stage=01")

    def read_until(text: str) -> None:
        assert any(text in line for line in process.stdout), f"{text!r} was not printed"

    read_until("does not compile")
    read_until("Watching assignments/01_naive_ddp")
    lab.student(ALL_PASS)
    for text in "naive_ddp.cpp was saved", "Full marks", "Watching":
        read_until(text)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert lab.tool("watch", "--stage=9").returncode == 2


def test_bounded_text_keeps_both_ends() -> None:
    text = BoundedText(10)
    for _ in range(1000):
        text.add(b"0123456789abcdef")
    assert str(text) == "01234\n[... 15990 bytes left out ...]\nbcdef"


def test_records_may_arrive_in_any_pieces() -> None:
    """Those of bodies are signs of life, while a test runs."""
    result = TestResult(TestSpec("a", 1))
    records = Records([result], lambda _: None)
    stream = ["body_ended", "test_started", "body_ended", "test_finished", "run_finished"]
    for count, event in enumerate(stream):
        for byte in f'{{"event": "{event}", "name": "{"a" if count else "b"}", "status": "passed"}}\n'.encode():
            records.feed(bytes([byte]))
        assert records.count == count, event
    assert records.run_finished
    assert result.status is Status.PASSED


def test_printable_is_bounded() -> None:
    assert printable("ab\r\x1b\tc", 100) == "ab\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\tc"
    assert "5 characters left out" in printable("x" * 15, 10)


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
