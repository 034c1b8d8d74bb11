"""The whole lab under a sanitizer: tools/checking/sanitizers.py."""

from __future__ import annotations

import os
import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests.tools.checking_test import context, mutant, report
from tools.checking import sanitizers
from tools.checking.context import Context, Outcome, graded_stages
from tools.checking.sanitizers import ADDRESS, THREAD, Watcher
from tools.grading.other_ways import sanitizer_reports
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import StageReport, TestSpec
from tools.grading.stages import Stage
from tools.setup.toolchain import ROOT

LIBRARY = "(libddp.so+0x8ada4) (BuildId: fd2a)"
RACE = f"""\
==================
WARNING: ThreadSanitizer: data race (pid=2525)
  Write of size 8 at 0x7b58000a4e88 by thread T1 (mutexes: write M0):
    #0 std::vector<int>::push_back(int const&) /usr/include/c++/12/bits/stl_vector.h:1280 {LIBRARY}
    #1 __invoke_impl<void, (lambda at {ROOT}/common/ddp/futures.cpp:7:3) &> /usr/include/c++/12/invoke.h:61 {LIBRARY}
    #1 ddp::Clocks::wait(long) {ROOT}/common/ddp/clocks.cpp:12:3 {LIBRARY}
    #2 invoke {ROOT}/.venv/lib/torch/include/c10/util/x.h:5:1 {LIBRARY}
    #3 serve {ROOT}/common/ddp/futures.cpp:101:14 {LIBRARY}

  Previous read of size 8 at 0x7b58000a4e88 by main thread:
    #0 now {ROOT}/common/ddp/clocks.h:49:45 {LIBRARY}

SUMMARY: ThreadSanitizer: data race {ROOT}/common/ddp/clocks.cpp:12:3 in ddp::Clocks::wait(long)
==================
"""
OVERFLOW = f"""\
{ROOT}/tests/harness/sanitizer_test.cpp:34:23: runtime error: signed integer overflow: 2147483647 + 1
    #0 0x7f12 in operator() {ROOT}/tests/harness/sanitizer_test.cpp:34:23
SUMMARY: UndefinedBehaviorSanitizer: signed-integer-overflow
"""
FREED = f"""\
=================================================================
==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x60600 at pc 0x7f4 bp 0x7ff sp 0x7fd
READ of size 8 at 0x60600 thread T0
    #0 0x7f4ac in at::TensorBase::defined() const {ROOT}/.venv/lib/torch/include/ATen/core/TensorBase.h:215
    #1 0x7f4ad in finish {ROOT}/build/check/leaks/overlapped_ddp.cpp:124
    #2 0x7f4ae in void run(int, char const*) {ROOT}/tests/02_overlapped_ddp/07_lifetime.cpp:84
    #3 0x7f4af in (/lib/libc.so.6+0xbc936)

0x60600 is located 0 bytes inside of 64-byte region [0x60600,0x60640)
freed by thread T0 here:
    #0 0x7f4b0 in operator delete(void*, unsigned long) ../../../../src/libsanitizer/asan/asan_new_delete.cpp:164
    #1 0x7f4b1 in reset {ROOT}/tests/02_overlapped_ddp/07_lifetime.cpp:80

SUMMARY: AddressSanitizer: heap-use-after-free
Shadow bytes around the buggy address:
  0x0c067fff8000: fa fa fd fd
==7==ABORTING
"""
MISTAKES = {
    THREAD: RACE.replace("common/ddp/clocks.h", sanitizers.MISTAKES),
    ADDRESS: OVERFLOW + FREED.replace("tests/02_overlapped_ddp/07_lifetime.cpp", sanitizers.MISTAKES),
}


class Reports(unittest.TestCase):
    def test_of_a_report_the_useful_part_is_shown(self) -> None:
        text, innermost = sanitizer_reports.summarize(RACE)
        self.assertEqual(
            text.splitlines()[:6],
            [
                "WARNING: ThreadSanitizer: data race",
                "  Write of size 8 by thread T1 (mutexes: write M0):",
                "    common/ddp/clocks.cpp:12 in ddp::Clocks::wait(long)",
                "    common/ddp/futures.cpp:101 in serve",
                "  Previous read of size 8 by main thread:",
                "    common/ddp/clocks.h:49 in now",
            ],
        )
        self.assertEqual(innermost[1:], ("common/ddp/clocks.cpp:12", "common/ddp/clocks.h:49"))
        self.assertIn("    tests/harness/sanitizer_test.cpp:34 in operator()", sanitizer_reports.summarize(OVERFLOW)[0])

    def test_of_freed_memory_it_is_told_who_used_and_who_freed_it(self) -> None:
        text, innermost = sanitizer_reports.summarize(FREED.partition("SUMMARY")[0])
        used = "build/check/leaks/overlapped_ddp.cpp:124"
        self.assertEqual(
            text.splitlines(),
            [
                "ERROR: AddressSanitizer: heap-use-after-free",
                "READ of size 8 thread T0",
                f"    {used} in finish",
                "    tests/02_overlapped_ddp/07_lifetime.cpp:84 in void run(int, char const*)",
                "0x60600 is located 0 bytes inside of 64-byte region [0x60600,0x60640)",
                "freed by thread T0 here:",
                "    tests/02_overlapped_ddp/07_lifetime.cpp:80 in reset",
            ],
        )
        self.assertEqual(innermost[1:], (used, "tests/02_overlapped_ddp/07_lifetime.cpp:80"))

    def test_each_is_found_once_in_whichever_process(self) -> None:
        again = RACE.replace("serve", "other") + OVERFLOW.replace("2147483647 + 1", "2147483646 + 2")
        for pid, text in {3: RACE + OVERFLOW, 7: again, 8: "FATAL: cut off"}.items():
            (self.folder / f"report.{pid}").write_text(text)
        (self.folder / "mistake.9").write_text("WARNING: of another run\n")
        found = sanitizer_reports.found(self.folder / "report")
        self.assertEqual([path.name for _, path in found.values()], ["report.3", "report.3", "report.8"])


class Symbols(unittest.TestCase):
    def test_a_link_to_nothing_tells_no_lines(self) -> None:
        """As Debian's alternatives leave one where another clang was removed."""
        (self.folder / "llvm-symbolizer").symlink_to("gone")
        addr2line = self.folder / "addr2line"
        addr2line.write_text("#!/bin/sh\n")
        addr2line.chmod(0o755)
        with mock.patch.dict(os.environ, {"PATH": str(self.folder)}):
            told = ADDRESS.environment(Path("/reports"))
        for options in told.values():
            self.assertIn(f':external_symbolizer_path="{addr2line}"', options)


class Steps(unittest.TestCase):
    """The step, in which the solutions and the harness's tests pass, and the given texts are reported."""

    def outcome(self, sanitizer: Watcher, mistake: str, report: str = "") -> Outcome:
        def run(command: list[str], log: Path, env: dict[str, str]) -> tuple[int, str]:
            self.write(env, mistake)
            return 0, "FATAL: unexpected memory mapping"

        def grade(other: Context, options: mock.Mock, untimed: bool) -> Outcome:
            self.write(options.environment, report)
            return Outcome(5)

        self.shards: list[str] = []

        def shard(other: Context, program: str, index: int, env: dict[str, str]) -> Outcome:
            self.shards.append(env["GTEST_FILTER"])
            return Outcome(1)

        with (
            mock.patch.object(sanitizers, "is_installed", return_value=True),
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(sanitizers, "second_build", return_value=(context(build_dir=folder), "")),
            mock.patch.object(sanitizers, "grade_solutions", grade),
            mock.patch.object(sanitizers, "graded_stages", return_value=[]),
            mock.patch.object(sanitizers, "run_shard", shard),
            mock.patch.object(sanitizers, "CORES", 2),
            mock.patch.object(Context, "run", lambda self, *arguments: run(*arguments)),
        ):
            return sanitizers.check(sanitizer, context(build_dir=folder))

    def write(self, environment: dict[str, str], text: str) -> None:
        (path,) = {path for options in environment.values() for path in re.findall(r'log_path="(.*?)"', options)}
        if text:
            Path(f"{path}.77").write_text(text)

    def test_silence_passes_and_what_cannot_run_is_skipped(self) -> None:
        for sanitizer, mistake in MISTAKES.items():
            outcome = self.outcome(sanitizer, mistake)
            self.assertEqual((outcome.passed, outcome.failures), (7, []))
            self.assertEqual(len(outcome.skipped), len(sanitizer.cannot_run))
            self.assertEqual(self.shards, ["-" + ":".join(sanitizer.cannot_run)] * 2)

    def test_a_report_fails_it_though_all_tests_pass(self) -> None:
        failures = self.outcome(THREAD, MISTAKES[THREAD], RACE).failures
        self.assertEqual(len(failures), 1)
        self.assertIn("common/ddp/clocks.h:49 in now", failures[0])
        self.assertIn("report.77", failures[0])
        title = "SANITIZE=thread: common/ddp/clocks.cpp:12, common/ddp/clocks.h:49"
        self.assertEqual(failures[0].splitlines()[0], title)

    def test_a_mistake_that_is_not_reported_fails_it_and_nothing_else_runs(self) -> None:
        for sanitizer, mistake in MISTAKES.items():
            for kind in sanitizer.mistakes.values():
                for wrong in ("", mistake.replace(sanitizers.MISTAKES, "common/a.cpp"), mistake.replace(kind, "")):
                    outcome = self.outcome(sanitizer, wrong)
                    self.assertEqual((outcome.passed, len(outcome.failures), self.shards), (0, 1, []))
                    self.assertIn(f"SANITIZE={sanitizer.name} does not report the ", outcome.failures[0])
                    self.assertIn("FATAL: unexpected memory mapping", outcome.failures[0])
                    self.assertIn("sudo sysctl", outcome.failures[0])

    def test_a_compiler_without_it_is_skipped(self) -> None:
        for sanitizer in MISTAKES:
            with tempfile.TemporaryDirectory() as folder:
                outcome = sanitizers.check(sanitizer, context(build_dir=folder, cxx="echo"))
            self.assertEqual((outcome.passed, outcome.failures, len(outcome.skipped)), (0, [], 1))


class Mutants(unittest.TestCase):
    """A mutant must die of the report that it names."""

    def outcome(self, kind: str, reported: str) -> Outcome:
        due = mutant(f"Mistake: hooks leak\nSanitizer: {kind}\n")

        def grade(
            other: Context, stage: Stage, source: Path, folder: Path, tests: list[TestSpec], options: RunOptions
        ) -> tuple[StageReport, Path]:
            path = re.findall(r'log_path="(.*?)"', options.environment["ASAN_OPTIONS"])[0]
            Path(f"{path}.7").write_text(reported)
            return report(), folder / "tests.log"

        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(sanitizers, "write_edited"),
            mock.patch.object(sanitizers, "graded_tests", return_value=[]),
            mock.patch.object(sanitizers, "grade", grade),
        ):
            return sanitizers._check_mutant(context(build_dir=folder), ADDRESS, graded_stages()[0], due)

    def test_of_that_report_it_dies(self) -> None:
        self.assertEqual(self.outcome("heap-use-after-free", FREED).passed, 1)

    def test_silence_and_other_reports_are_failures(self) -> None:
        self.assertIn("reports nothing", self.outcome("heap-use-after-free", "").failures[0])
        self.assertIn("double-free, and reports heap-use-after-free", self.outcome("double-free", FREED).failures[0])


class Exceptions(unittest.TestCase):
    """What is not looked at."""

    def test_each_test_that_cannot_run_exists(self) -> None:
        text = "".join(path.read_text() for path in (ROOT / "tests" / "harness").glob("*.cpp"))
        named = re.findall(r"^(?:CHILD_)?TEST(?:_F)?\((\w+), (\w+)\)", text, re.MULTILINE)
        tests = {".".join(names) for names in named}
        for sanitizer in MISTAKES:
            mistakes = {f"Sanitizer.DISABLED_{test}" for test in sanitizer.mistakes}
            self.assertLessEqual({*sanitizer.cannot_run, *mistakes}, tests)

    def test_each_suppression_has_its_reason_above(self) -> None:
        for block in sanitizers.SUPPRESSIONS.read_text().split("\n\n"):
            lines = block.strip().splitlines()
            self.assertTrue(lines[0].startswith("# "), block)
            self.assertLessEqual(sum(not line.startswith("#") for line in lines), 1, block)
