"""Tests of `make check` itself: would it notice?"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests.tools.checking_test import context, report
from tools.checking import check, formatting, linting, own_tests, remembered
from tools.checking.context import Outcome, graded_stages
from tools.grading import runner
from tools.setup.toolchain import ROOT, LabError


class Memory(unittest.TestCase):
    """What passed is remembered by content."""

    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.header = self.folder / "stage.h"
        self.header.write_text("int rank();")

    def outcome(self, found: Outcome, *contents: remembered.Content) -> tuple[Outcome, bool]:
        """What is found, and whether work was done for it."""
        work = mock.Mock(return_value=found)
        known = remembered.outcome_of(context(build_dir=str(self.folder)), "it", [self.header, *contents], work)
        return known, work.called

    def test_what_passed_is_not_run_again(self) -> None:
        self.assertTrue(self.outcome(Outcome(3, skipped=["no GPU"]))[1])
        again, worked = self.outcome(Outcome(failures=["not run"]))
        self.assertEqual((again.passed, again.remembered, again.skipped, worked), (3, 3, ["no GPU"], False))

    def test_failures_are_never_remembered(self) -> None:
        for found in (Outcome(3, ["b.cpp"]), Outcome(skipped=["no GPU"])):
            self.outcome(found)
            self.assertTrue(self.outcome(found)[1])

    def test_a_changed_header_or_flag_is_noticed_and_so_is_a_missing_file(self) -> None:
        self.outcome(Outcome(1), "-O3")
        self.assertFalse(self.outcome(Outcome(1), "-O3")[1])
        self.assertTrue(self.outcome(Outcome(1), "-O2")[1])
        self.header.write_text("long rank();")
        self.assertTrue(self.outcome(Outcome(1), "-O2")[1])
        self.header.unlink()
        self.assertTrue(self.outcome(Outcome(1), "-O2")[1])

    def test_a_verdict_on_a_stage_hangs_on_its_header_test_program_and_libraries(self) -> None:
        stage = graded_stages()[0]
        built = context(build_dir=str(self.folder), cxx="c++")
        contents = [*remembered.grading(built, stage), *remembered.compiling(built, stage)]
        names = {path.name for path in contents if isinstance(path, Path)}
        program = f"tests_{stage.name}"
        due = {program, f"lib{program}_code.so", "libddp.so", "libddp_testing.so", "results.py", "collectives.h"}
        self.assertLessEqual(due | {path.name for path in (ROOT / "assignments" / stage.name).glob("*.h")}, names)


CLASHING_COMPILER = """\
import pathlib, sys
unit = pathlib.Path(sys.argv[-1]).read_text()
if "/a.cpp" in unit and "/b.cpp" in unit:
    print("/b.cpp:3:1: error: redefinition of 'kHalf'")
"""


class FreshMemory(unittest.TestCase):
    """Freed and uninitialized memory are recognisable in a test program."""

    PROGRAM = "import ctypes; new = ctypes.CDLL(None).malloc; new.restype = ctypes.c_void_p\n" + (
        "print(ctypes.string_at(new(64), 64).hex(), __import__('os').environ.get('MORE'))"
    )

    def test_fresh_memory_is_filled(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "tests")
            program.write_text(f"#!{sys.executable}\n{self.PROGRAM}")
            program.chmod(0o755)
            graded = report()
            options = runner.RunOptions(1, environment={"MORE": "y"})
            runner.run_stage(program, Path("x.so"), graded, options, mock.Mock())
        self.assertIn("fe" * 64 + " y", graded.output)


class Linting(unittest.TestCase):
    def test_findings_go_to_their_files(self) -> None:
        text = "/a.cpp:1:2: error: one [x]\n  code\n/b.h:3:4: warning: two [y]\n/a.cpp:5:6: error: three [z]\n"
        found = formatting.by_file(text)
        self.assertEqual(found[Path("/a.cpp")].count("error"), 2)
        self.assertIn("two", found[Path("/b.h")])

    def test_files_that_do_not_compile_together_are_looked_at_apart(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            compiler = Path(folder, "cxx")
            compiler.write_text(f"#!{sys.executable}\n{CLASHING_COMPILER}")
            compiler.chmod(0o755)
            with mock.patch.object(linting, "tool", return_value="true"):
                linter = linting.Linter(context(build_dir=folder, cxx=str(compiler)))
            a, b, c = Path("/a.cpp"), Path("/b.cpp"), Path("/c.cpp")
            self.assertEqual(linter._together((), [a, b, c])[1], [a, c])
            self.assertEqual(linter._together((), [b, c])[1], [b, c])
            self.assertEqual(linter._together((), [b])[1], [b])

    def test_a_sample_has_what_was_changed(self) -> None:
        files = {Path(f"/{number}.cpp"): () for number in range(99)}
        for seed in range(5):
            chosen = linting.sampled(files, {Path("/7.cpp"), Path("/README.md")}, seed)
            self.assertEqual((len(chosen), Path("/7.cpp") in chosen), (1 + linting.SAMPLE, True))

    def test_a_missing_tool_is_a_failure_that_says_what_to_do(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            python, linter = Path(folder, "python"), Path(folder, "clang-tidy")
            install = rf"{python} -m pip install clang-tidy==\d"
            with self.assertRaisesRegex(LabError, f"There is no {linter}.* {install}"):
                linting.check_lint(context(figure_python=str(python)))
            linter.write_text("#!/bin/sh\necho LLVM version 9.0.1\n")
            linter.chmod(0o755)
            with self.assertRaisesRegex(LabError, f"{linter} is version 9.0.1.* {install}"):
                linting.check_lint(context(figure_python=str(python)))

    def test_the_linter_reads_as_text_what_either_compiler_precompiles(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            header = Path(folder, "pch_tests.dir", "cmake_pch.hxx")
            header.parent.mkdir()
            header.write_text("int precompiled;\n")
            with mock.patch.object(linting, "tool", return_value="true"):
                linter = linting.Linter(context(build_dir=folder))
            clang = ["-Winvalid-pch", "-Xclang", "-include-pch", "-Xclang", f"{header}.pch"]
            clang += ["-Xclang", "-include", "-Xclang", str(header)]
            for flags in (clang, ["-Winvalid-pch", "-include", str(header)]):
                warning, include, copy, last = linter._as_text((*flags, "-O2"))
                self.assertEqual((warning, include, last), ("-Winvalid-pch", "-include", "-O2"))
                self.assertEqual(Path(copy).read_text(), "int precompiled;\n")
                self.assertNotEqual(Path(copy).parent, header.parent, "beside it is what the compiler made")


class PythonTests(unittest.TestCase):
    def outcome(self, body: str) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "test_it.py").write_text(f"import pytest\nclass TestIt:\n{body}")
            Path(folder, "pytest.ini").write_text("[pytest]\nmarkers = slow\naddopts = -m 'not slow'\n")
            return own_tests.run_pytest(context(build_dir=folder, figure_python=sys.executable), Path(folder))

    def test_passed_failed_and_skipped_are_counted(self) -> None:
        found = self.outcome(
            "  def test_a(self): pass\n  def test_b(self): assert 'why' == ''\n  def test_c(self): 1 / 0\n"
            "  @pytest.mark.skip('no GPU')\n  def test_d(self): pass\n  @pytest.mark.slow\n  def test_e(self): 1 / 0\n"
        )
        self.assertEqual((found.passed, len(found.failures)), (1, 2))
        self.assertIn("why", found.failures[0] + found.failures[1])
        self.assertIn("test_d: no GPU", found.skipped[0])

    def test_no_tests_or_no_end_is_a_failure(self) -> None:
        self.assertIn("pytest ended with code 5", self.outcome("  pass\n").failures[0])
        died = "  def test_a(self):\n    import os; os._exit(0)\n"
        self.assertRegex("\n".join(self.outcome(died).failures), "crashed")


class Choices(unittest.TestCase):
    def test_each_sanitizer_is_a_step_that_takes_long(self) -> None:
        self.assertEqual(set(check.SANITIZERS), {"address", "undefined", "thread"})
        self.assertLessEqual(set(check.SANITIZERS.values()), set(check.LONG))
        self.assertLessEqual(set(check.LONG), set(check.STEPS))
        with mock.patch("sys.argv", ["make check", "--sanitize=undefined"]):
            self.assertEqual(check.parse_arguments().only, ["address"])


class Summary(unittest.TestCase):
    def run_check(self, *steps: Outcome | Exception, fresh: bool = False) -> tuple[int, str]:
        names = ("build", "lint", "address")

        def step(result: Outcome | Exception) -> check.Step:
            return mock.Mock(side_effect=[result])

        table = {name: (name, step(result)) for name, result in zip(names, steps)}
        options = mock.Mock(only=[], seed=7, all=True, fresh=fresh)
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            with (
                mock.patch.object(check, "STEPS", table),
                mock.patch("tools.checking.costs.measure", return_value=["1 s"]),
            ):
                code = check.check(context(build_dir=folder).toolchain, options)
        return code, said.getvalue()

    def test_the_last_line_counts(self) -> None:
        code, said = self.run_check(Outcome(3), Outcome(4, skipped=["no GPU"]))
        self.assertEqual((code, said.splitlines()[-1]), (0, "7 passed, 0 failed"))
        self.assertIn("no GPU", said)

    def test_what_is_remembered_is_counted_apart_and_passed_all_the_same(self) -> None:
        code, said = self.run_check(Outcome(3), Outcome(4, remembered=4))
        self.assertEqual((code, said.splitlines()[-1]), (0, "7 passed, 0 failed"))
        self.assertIn("4 of them remembered from an earlier run of the same content; make check FRESH=1", said)

    def test_fresh_forgets(self) -> None:
        with mock.patch.object(check.remembered, "forget") as forget:
            self.run_check(Outcome(1))
            forget.assert_not_called()
            self.run_check(Outcome(1), fresh=True)
            forget.assert_called_once()
        with tempfile.TemporaryDirectory() as folder:
            built, work = context(build_dir=folder), mock.Mock(return_value=Outcome(1))
            for _ in range(2):
                remembered.outcome_of(built, "it", [], work)
                remembered.forget(Path(folder))
            self.assertEqual(work.call_count, 2)

    def test_one_failure_fails_the_whole_and_is_shown_in_full(self) -> None:
        code, said = self.run_check(Outcome(3), Outcome(4, ["b.cpp\n    line 7"]))
        self.assertEqual((code, said.splitlines()[-1]), (1, "7 passed, 1 failed"))
        self.assertIn("    line 7", said)
        self.assertIn("SEED=7", said)

    def test_nothing_runs_on_a_broken_build(self) -> None:
        code, said = self.run_check(Outcome(0, ["does not compile"]), Outcome(4))
        self.assertEqual((code, said.splitlines()[-1]), (1, "0 passed, 1 failed"))

    def test_a_step_that_cannot_be_done_is_a_failure(self) -> None:
        code, said = self.run_check(Outcome(3), LabError("There is no clang-tidy"))
        self.assertEqual((code, said.splitlines()[-1]), (1, "3 passed, 1 failed"))


if __name__ == "__main__":
    unittest.main()
