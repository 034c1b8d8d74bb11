"""What the grader shows: choices, looks, and what make watch does."""

from __future__ import annotations

import os
import re
import shlex
import signal

import pytest

from tests.tools.grading_test import ALL_FAIL, ALL_PASS, Lab
from tools.grading.running.processes import BoundedText
from tools.grading.running.records import Records, printable
from tools.grading.scoring.results import Status, TestResult, TestSpec
from tools.setup.columns import fold_command

LONG = "in 'three layers' (2 ranks): rank 1: the gradient of layer 0 is wrong by more than rounding could explain"


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


def test_plain_in_a_pipe_with_whole_lines(lab: Lab) -> None:
    student = f"def run(name): return {{'status': 'failed' if 'rank_0' in name else 'passed', 'failures': [{LONG!r}]}}"
    said = lab.grade(student, code=1, PYTHONIOENCODING="ascii")
    assert "\033" not in said and said.isascii()
    assert "+ gradients equal the oracle" in said
    assert LONG in said


def test_colour_on_a_terminal_unless_unwanted(lab: Lab) -> None:
    lab.student(ALL_PASS)
    assert "\033[32m" in "".join(lab.on_terminal())
    assert "\033[32m" not in "".join(lab.on_terminal(NO_COLOR="1"))


def test_a_reader_that_left_is_no_error(lab: Lab) -> None:
    lab.student(ALL_PASS)
    read, write = os.pipe()
    os.close(read)
    process = lab.start("grade", stdout=write, stderr=None)
    os.close(write)
    assert process.wait(60) == 0
    assert lab.results()["score"] == 15


def shown(lab: Lab, student: str, width: int) -> str:
    """All words, from a terminal in which a line may be too wide only if it is a single word, which is to be copied."""
    lab.student(student)
    plain = re.sub(r"\x1b\[[\d;]*m", "", "".join(lab.on_terminal("--stage=01", "--seed=123456789", width=width)))
    lines = [line.split("\x1b[K")[-1].rstrip("\r") for line in plain.split("\n")]
    assert [line for line in lines if len(line) > width and len(line.split()) > 2] == []
    return " ".join(word for line in lines for word in line.split() if word not in ("│", "\\"))


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 100])
def test_every_line_fits_and_no_word_is_lost(lab: Lab, width: int) -> None:
    student = f"""
        def run(name):
            if name == 'broadcasts_rank_0': return {{'status': 'failed', 'failures': [{LONG!r}]}}
            return {{'status': 'not_judged', 'failures': [{LONG!r}]}}
        """
    said = shown(lab, student, width)
    assert said.count(LONG) == 2  # a reason that tests share is given once
    assert "make test STAGE=01 TEST=broadcasts_rank_0 SEED=123456789" in said
    assert ("make hint STAGE=01 TEST=broadcasts_rank_0 # LEVEL=2 says more" in said) == (width > 60)
    for other in (ALL_FAIL.replace("failed", "skipped"), "does not compile", "fills the disk"):
        shown(lab, other, width)


def test_a_failure_in_another_order_is_repeated_by_its_schedule(lab: Lab) -> None:
    said = lab.grade(ALL_FAIL.replace("wrong", "in x with SCHEDULE=10000300004: wrong"), "--seed=7", code=1)
    assert re.search(r"make test STAGE=01 TEST=\w+ SEED=7 SCHEDULE=10000300004", said)


def test_a_folded_command_is_still_one() -> None:
    command = "make test STAGE=05 TEST=a_name_of_a_test IMPL=solutions SEED=7"
    folded = fold_command(command, 40, 9)
    assert max(map(len, (9 * " " + folded).split("\n"))) <= 40
    assert shlex.split(folded.replace("\\\n", "")) == shlex.split(command)


@pytest.mark.slow
def test_a_build_is_shown_before_its_first_file_is_done(lab: Lab) -> None:
    waits = lab.write("build_waits", "")
    lab.student(ALL_PASS)
    terminal, seen = lab.on_terminal("--stage=01"), ""
    while "Building [0:02]" not in seen:
        seen += next(terminal)
    assert "Building [0:01]" in seen
    waits.unlink()
    assert "Full marks" in "".join(terminal)


def test_in_a_pipe_it_is_a_line(lab: Lab) -> None:
    waits = lab.write("build_waits", "")
    lab.student(ALL_PASS)
    process = lab.start("grade")
    assert "Building ...\n" in iter(process.stdout.readline, "")
    waits.unlink()
    assert "Building: done" in process.stdout.read()


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
