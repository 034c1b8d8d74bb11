"""make debug: gdb on one rank of one test's run, without deadlines; and what it says where it cannot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import unittest

import pytest

from tests.tools.test_untrusted_attacks import FORBID
from tools.setup import system_packages
from tools.setup.toolchain import BUILD_DIR, ROOT

STAGE, TEST = "01", "one_all_reduce_per_parameter"
GRADED = BUILD_DIR / "stages/solutions/01_naive_ddp/libstage.so"
PATIENCE_S = 12  # more than any rank may be silent for: tests/support/settings.h
PROGRAM = BUILD_DIR / "bin" / "tests_01_naive_ddp"
MODULE = "tools.grading.other_ways.debug"
SOURCE = ROOT / "solutions/01_naive_ddp/naive_ddp.cpp"
SYS_PTRACE = {"x86_64": 101, "aarch64": 117}.get(os.uname().machine)


# `make check`, which runs this, holds the checkout, and `make debug` would wait for it.
UNHELD = f"""\
import contextlib, runpy
from tools.setup import checkout_lock
checkout_lock.hold = lambda path, doing: contextlib.nullcontext()
runpy.run_module('{MODULE}', run_name='__main__')
"""


def debug(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", UNHELD, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, **options)


class Refusals(unittest.TestCase):
    def assert_refused(self, done: subprocess.CompletedProcess[str], code: int, *expected: str) -> None:
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for part in expected:
            self.assertIn(part, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_no_test(self) -> None:
        self.assert_refused(debug(f"--stage={STAGE}"), 2, "make debug STAGE=01 TEST=<name> RANK=1")

    def test_no_rank(self) -> None:
        self.assert_refused(debug(f"--test={TEST}", "--rank=one"), 2, "RANK=one is not the number of a rank")

    def test_no_gdb(self) -> None:
        done = debug(f"--stage={STAGE}", f"--test={TEST}", env={**os.environ, "PATH": "/nowhere"})
        line = f"apt-get install --no-install-recommends {' '.join(system_packages.PACKAGES)}"
        self.assert_refused(done, 3, "gdb is missing: make debug needs it", line)

    @unittest.skipUnless(SYS_PTRACE and shutil.which("gdb"), "skipped: no gdb, or an unknown machine")
    def test_a_container_without_ptrace(self) -> None:
        """As Docker's are, unless they are told to allow it."""
        arguments = [f"--stage={STAGE}", f"--test={TEST}"]
        run = f"import runpy, sys; sys.argv[1:] = {arguments}; runpy.run_module('{MODULE}', run_name='__main__')"
        command = [sys.executable, "-c", f"{FORBID}forbid([{SYS_PTRACE}])\n{run}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        self.assert_refused(done, 3, "ptrace: Operation not permitted", "docker run --cap-add=SYS_PTRACE")


@pytest.mark.slow
@unittest.skipUnless(shutil.which("gdb"), "skipped: no gdb here, which make debug needs")
@unittest.skipUnless(PROGRAM.exists(), f"skipped: {PROGRAM} is not built")
class Gdb(unittest.TestCase):
    def gdb(self, *commands: str, **choices: object) -> str:
        """What gdb says after it has stopped in the student's code."""
        line = " ".join(["-nx -batch", *(f"-ex '{each}'" for each in commands)])
        given = {"stage": STAGE, "test": TEST, "impl": "solutions", "seed": 7, **choices}
        done = debug(*(f"--{name}={value}" for name, value in given.items()), f"--gdb-args={line}")
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (0, False), done.stdout + done.stderr)
        return done.stdout

    def test_a_local_variable_of_rank_1(self) -> None:
        """At a breakpoint, after longer than the grader's patience, while the other rank waits."""
        line = next(i for i, each in enumerate(SOURCE.read_text().splitlines(), 1) if "contiguous.div_(" in each)
        graded = GRADED.stat().st_mtime_ns
        said = self.gdb(
            f"break {SOURCE.name}:{line}", "continue", "print gradients.size()", f"shell sleep {PATIENCE_S}",
            "next", "next", "continue", rank=1,
        )  # fmt: skip
        self.assertIn("gdb comes to rank 1 of", said)
        self.assertRegex(said, r"Breakpoint \d+, ddp::make_naive_ddp \(")  # the first of the student's functions
        self.assertRegex(said, rf"average_each \(gradients=.*{SOURCE.name}:{line}\n")
        self.assertRegex(said, r"\$1 = [1-9]\d*\n")
        after_the_wait = said.partition("$1 = ")[2]
        self.assertRegex(after_the_wait, rf"average_each \(gradients=.*{SOURCE.name}:{line}\n")  # its next gradient
        self.assertNotIn("SIGKILL", said)
        self.assertEqual(graded, GRADED.stat().st_mtime_ns, "the graded library was built anew")

    def test_a_backtrace_is_of_the_students_code(self) -> None:
        """In a hook there are frames of libtorch's below it and above; all are there when asked for."""
        said = self.gdb("break average_each", "continue", "backtrace", "shell echo all:", "backtrace -no-filters")
        shown, _, everything = said.partition("all:\n")
        frames = re.findall(r"^#\d+ .*", shown, re.MULTILINE)
        self.assertLess(len(frames), 6, shown)
        self.assertRegex(frames[0], rf"::average_each \(gradients=.*{SOURCE.name}:\d+$")
        self.assertRegex(frames[-1], r"\[\d+ frames of the lab and its libraries: backtrace -no-filters\]")
        self.assertGreater(len(re.findall(r"^#\d+ ", everything, re.MULTILINE)), 30)

    def test_a_choice_that_does_not_exist(self) -> None:
        for choices, expected in (
            ({"rank": 9}, "RANK=9:"),
            ({"body": "no such run"}, "is no run that one_all_reduce_per_parameter is judged on"),
        ):
            with self.subTest(expected):
                given = {"stage": STAGE, "test": TEST, "impl": "solutions", **choices}
                done = debug(*(f"--{name}={value}" for name, value in given.items()))
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(expected, done.stderr)
