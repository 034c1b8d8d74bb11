"""The whole lab under a sanitizer: tools/checking/whole_lab.py."""

from __future__ import annotations

import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests.tools.checking_test import context
from tools.checking import whole_lab
from tools.checking.context import Context, Outcome
from tools.checking.whole_lab import THREAD, UNDEFINED, WholeLabSanitizer
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
MISTAKES = {THREAD: RACE.replace("common/ddp/clocks.h", whole_lab.MISTAKES), UNDEFINED: OVERFLOW}


class Reports(unittest.TestCase):
    def test_of_a_report_the_useful_part_is_shown(self) -> None:
        text, innermost = whole_lab.summarize(RACE)
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
        self.assertIn("    tests/harness/sanitizer_test.cpp:34 in operator()", whole_lab.summarize(OVERFLOW)[0])

    def test_each_is_found_once_in_whichever_process(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for pid, text in {3: RACE + OVERFLOW, 7: RACE.replace("serve", "other"), 8: "FATAL: cut off"}.items():
                Path(folder, f"report.{pid}").write_text(text)
            Path(folder, "mistake.9").write_text("WARNING: of another run\n")
            found = whole_lab.found(Path(folder, "report"))
        self.assertEqual([path.name for _, path in found.values()], ["report.3", "report.3", "report.8"])


class Steps(unittest.TestCase):
    """The step, in which the solutions and the harness's tests pass, and the given texts are reported."""

    def outcome(self, sanitizer: WholeLabSanitizer, mistake: str, report: str = "") -> Outcome:
        def run(command: list[str], log: Path, env: dict[str, str]) -> tuple[int, str]:
            self.write(env[sanitizer.variable], mistake)
            return 0, "FATAL: unexpected memory mapping"

        def grade(other: Context, options: mock.Mock, untimed: bool) -> Outcome:
            self.write(options.environment[sanitizer.variable], report)
            return Outcome(5)

        self.shards: list[str] = []

        def shard(other: Context, program: str, index: int, env: dict[str, str]) -> Outcome:
            self.shards.append(env["GTEST_FILTER"])
            return Outcome(1)

        with (
            mock.patch.object(whole_lab, "runtime", return_value="libsan.so"),
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(whole_lab, "second_build", return_value=(context(build_dir=folder), "")),
            mock.patch.object(whole_lab, "grade_solutions", grade),
            mock.patch.object(whole_lab, "run_shard", shard),
            mock.patch.object(whole_lab, "CORES", 2),
            mock.patch.object(Context, "run", lambda self, *arguments: run(*arguments)),
        ):
            return whole_lab.check(sanitizer, context(build_dir=folder))

    def write(self, options: str, text: str) -> None:
        path = re.findall(r'log_path="(.*?)"', options)[0]
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
            for wrong in ("", mistake.replace(whole_lab.MISTAKES, "common/a.cpp"), mistake.replace(sanitizer.kind, "")):
                outcome = self.outcome(sanitizer, wrong)
                self.assertEqual((outcome.passed, len(outcome.failures), self.shards), (0, 1, []))
                self.assertIn(f"SANITIZE={sanitizer.name} does not report the {sanitizer.kind}", outcome.failures[0])
                self.assertIn("FATAL: unexpected memory mapping", outcome.failures[0])
                self.assertIn("sudo sysctl", outcome.failures[0])

    def test_a_compiler_without_it_is_skipped(self) -> None:
        for sanitizer in MISTAKES:
            with tempfile.TemporaryDirectory() as folder:
                outcome = whole_lab.check(sanitizer, context(build_dir=folder, cxx="echo"))
            self.assertEqual((outcome.passed, outcome.failures, len(outcome.skipped)), (0, [], 1))


class Exceptions(unittest.TestCase):
    """What is not looked at."""

    def test_each_test_that_cannot_run_exists(self) -> None:
        text = "".join(path.read_text() for path in (ROOT / "tests" / "harness").glob("*.cpp"))
        tests = {".".join(names) for names in re.findall(r"^TEST(?:_F)?\((\w+), (\w+)\)", text, re.MULTILINE)}
        for sanitizer in (THREAD, UNDEFINED):
            self.assertLessEqual({*sanitizer.cannot_run, f"Sanitizer.DISABLED_{sanitizer.mistake}"}, tests)

    def test_each_suppression_has_its_reason_above(self) -> None:
        for block in whole_lab.SUPPRESSIONS.read_text().split("\n\n"):
            lines = block.strip().splitlines()
            self.assertTrue(lines[0].startswith("# "), block)
            self.assertLessEqual(sum(not line.startswith("#") for line in lines), 1, block)


if __name__ == "__main__":
    unittest.main()
