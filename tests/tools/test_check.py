"""Would `make check` notice? A planted failure of each kind fails it, nothing passes without having run, and what hangs
is ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.setup.toolchain import ROOT

LAB = ("stages", "mutants", "variants", "cpp", "code")
SLEEP = "1000.375"  # seconds; nothing else on this machine sleeps so long
ONE = "(01_naive_ddp and not many_orders) or program or format or all_stages"


def lab_tests(planted: str, *options: str) -> tuple[int, set[str], str]:
    """How pytest ends with this plant, the tests that fail, and all that it says."""
    files = [f"tests/lab/test_{name}.py" for name in LAB]
    command = [sys.executable, "-m", "pytest", "-p", "tests.tools.planted", "-q", "-m", "not slow", "-k", ONE, *files]
    env = {**os.environ, "PLANTED": planted, "FOR_SECONDS": SLEEP}
    done = subprocess.run([*command, *options], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    return done.returncode, set(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)", done.stdout, re.MULTILINE)), done.stdout


BUILT = {"test_solution", "test_stub", "test_mutant", "test_all_stages_names_each_stub", "test_program"}
FORMAT = {"test_format_of_cpp", "test_format_of_python"}


@pytest.mark.parametrize(
    ("planted", "failed", "said"),
    [
        ("fails", BUILT | FORMAT, "planted"),
        ("passes", {"test_stub", "test_mutant", "test_all_stages_names_each_stub"}, "it survives: every test passes"),
        ("nothing", BUILT, "nothing was judged"),
        ("does not build", BUILT, "The build: planted"),
    ],
)
def test_each_failure_fails_the_whole(planted: str, failed: set[str], said: str) -> None:
    code, found, text = lab_tests(planted)
    assert (code, found - {"test_variant"}, said in text) == (1, failed, True), text


def test_what_hangs_is_ended_at_its_deadline() -> None:
    code, found, text = lab_tests("hangs", "--override-ini=timeout=1", "-k", "format_of_cpp")
    assert (code, found, "Timeout" in text) == (1, {"test_format_of_cpp"}, True), text
    assert not any(SLEEP in path.read_text() for path in Path("/proc").glob("[0-9]*/cmdline"))


def test_variants_lose_no_points_unnoticed() -> None:
    code, found, text = lab_tests("fails", "-k", "variants and usual_order")
    assert (code, found) == (1, {"test_variant"}), text


@pytest.mark.parametrize(
    ("options", "chosen"), [(["-k", "01 and averaged_twice"], 1), (["-k", "averaged_twice", "-m", "not slow"], 0)]
)
def test_who_is_named_runs_though_a_plain_run_leaves_it_out(options: list[str], chosen: int) -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/lab/test_mutants.py", *options]
    env = os.environ | {"SEED": SEED_WITHOUT}
    said = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False).stdout
    assert len(re.findall("averaged_twice", said)) == chosen, said


def test_workers_run_who_is_named_too() -> None:
    command = [sys.executable, "-m", "pytest", "-n", "1", "-v", "--setup-plan", "-k", "01 and averaged_twice"]
    env = os.environ | {"SEED": SEED_WITHOUT}
    done = subprocess.run([*command, "tests/lab"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert "1 worker [1 item]" in done.stdout, done.stdout


SEED_WITHOUT = "1"  # draws no mutant of this name


def test_make_hands_on_what_is_asked_for() -> None:
    command = ["make", "-n", "check", "ALL=1", "ARGS=-k 'mutants and 03'"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert """pytest -n auto -m "" -k 'mutants and 03'\n""" in said
