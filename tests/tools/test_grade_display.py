"""What the grader shows: choices, looks, watching, and hints, which say more and are no answer."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from tests.tools.conftest import ALL_FAIL, ALL_PASS, NAMES, Lab
from tools.grading.running.processes import BoundedText
from tools.grading.running.records import Records, printable
from tools.grading.scoring.results import Status, TestResult, TestSpec
from tools.setup.checkout_lock import hold


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


def test_mistakes_are_said_and_hints_given_before_anything_is_built(lab: Lab) -> None:
    hints = lab.write("tests/01_naive_ddp/hints.json", json.dumps({NAMES[1]: "How often do you divide?"}))
    (lab.root / "build/toolchain.json").unlink()
    with hold(lab.root / "build/grade/lock", "make test"):
        for tool in "hint", "grade", "other_ways.debug":
            done = lab.tool(tool, "--test=broadcast rank 0")
            assert (done.returncode, "There are:\n  broadcasts_rank_0\nmake hint lists all" in done.stderr) == (2, True)
        done = lab.tool("grade", "--stage=02", "--test=broadcasts_rank_0")
        assert (done.returncode, "that is a test of stage 01. Say STAGE=01" in done.stderr) == (2, True)
        first = lab.tool("hint", f"--test={NAMES[1]}").stdout
        assert "Divide." in first and "How often" not in first and "Use broadcast." not in first
        assert "How often do you divide?" in lab.tool("hint", f"--test={NAMES[1]}", "--level=2").stdout
    hints.write_text("{broken")
    assert lab.tool("hint", f"--test={NAMES[0]}").returncode == 3
