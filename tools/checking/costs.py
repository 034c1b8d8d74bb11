"""What an edit and a test cost on this machine: printed at the end of `make check`, never judged."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tools.checking.context import CORES, graded_stages
from tools.setup.toolchain import ROOT, Toolchain

TWO_RANK_TEST = "CheckedRaces.WriteByOperator"  # of tests_harness: two ranks and a few all-reduces
REPEATS = 5
# What a student should have to wait for at most, on two idle cores.
EDIT_TARGET_S = 3
SOLUTIONS_TARGET_S = 15


def measure(tools: Toolchain) -> Iterator[str]:
    yield f"on {CORES} cores, which others may be using:"
    for stage in graded_stages():
        for source in stage.sources("assignments"):
            os.utime(source)
        yield _timed(f"make test STAGE={stage.number}", "after an edit of the stub, build included", EDIT_TARGET_S)
    yield _timed("make test IMPL=solutions", "all stages, from a built tree", SOLUTIONS_TARGET_S)
    yield _two_ranks(Path(tools.build_dir) / "bin" / "tests_harness")


def _timed(command: str, what: str, target_s: float) -> str:
    return f"{command}, {what}: {_seconds(command.split()):.1f} s (target: {target_s:g} s)"


def _seconds(command: list[str]) -> float:
    started = time.monotonic()
    subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return time.monotonic() - started


def _two_ranks(program: Path) -> str:
    command = [str(program), f"--gtest_filter={TWO_RANK_TEST}", f"--gtest_repeat={REPEATS}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    times = [int(ms) for ms in re.findall(rf"OK \] {re.escape(TWO_RANK_TEST)} \((\d+) ms\)", done.stdout)]
    median = f"{statistics.median(times):.0f} ms" if times else "not measured"
    return f"a test of two ranks ({TWO_RANK_TEST}, median of {len(times)}): {median}"
