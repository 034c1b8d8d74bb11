"""Tests of `make check` itself: would it notice?"""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

TOOLS = Path(__file__).resolve().parents[2] / "tools"

from tools.checking import check
from tools.checking import linting
from tools.checking import own_tests
from tools.checking import mutants
from tools.checking import remembered
from tools.grading import runner
from tools.checking import sanitizer
from tools.checking.context import Context, Outcome, graded_stages
from tools.grading.results import StageReport, Status, TestResult, TestSpec
from tools.grading.stages import all_stages
from tools.setup.toolchain import ROOT, LabError, Toolchain

SPECS = [TestSpec("mean", 3), TestSpec("bitwise", 1), TestSpec("order", 2)]
HEADER = "Mistake: adds up only\nKilled-by: mean, order\nSays: the sum, not .* mean\n"
BEFORE = "".join(f"line {number}\n" for number in range(1, 21))
AFTER = BEFORE.replace("line 3\n", "").replace("line 18\n", "line 18\nand a half\n")


def unified(before: str, after: str, name: str = "sum.cpp") -> str:
    path = f"solutions/09_sums/{name}"
    return "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}"))


def mutant(header: str = HEADER) -> mutants.Mutant:
    return mutants.parse("sum", header + unified(BEFORE, AFTER))


def report(**failures: str) -> StageReport:
    """A grading in which the named tests fail with these texts."""
    results = [TestResult(spec, Status.PASSED) for spec in SPECS]
    for result in results:
        if text := failures.get(result.spec.name):
            result.status, result.failures = Status.FAILED, [text]
    return StageReport(all_stages()[0], results)


def context(**fields: str) -> Context:
    known = {name: "" for name in Toolchain.__dataclass_fields__}
    return Context(Toolchain(**(known | fields)), 1, lambda text: None)


class Sums:
    """A stage with a solution of several files."""

    name = "09_sums"

    def __init__(self, root: Path, **contents: str) -> None:
        self.root = root
        for name, content in {"sum_cpp": BEFORE, "more_cpp": "more\n", "both_h": "both\n", **contents}.items():
            for impl in ("assignments", "solutions") if name == "sum_cpp" else ("solutions",):
                path = root / impl / self.name / name.replace("_", ".")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)

    def sources(self, impl: str) -> list[Path]:
        return sorted((self.root / impl / self.name).glob("*.cpp"))


class Mutated(unittest.TestCase):
    def setUp(self) -> None:
        (ROOT / "build").mkdir(exist_ok=True)  # where `make check` works: inside of a repository, which git must not see
        temporary = tempfile.TemporaryDirectory(dir=ROOT / "build")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        (self.folder / "mutant").mkdir()

    def write(self, diff: str, **contents: str) -> Path:
        stage = Sums(self.folder, **contents)
        return mutants.write_mutated(stage, mutants.parse("sum", HEADER + diff), self.folder / "mutant")

    def test_a_diff_does_what_it_says(self) -> None:
        source = self.write(unified(BEFORE, AFTER))
        self.assertEqual((source.name, source.read_text()), ("sum.cpp", AFTER))

    def test_a_diff_finds_its_place_where_lines_moved(self) -> None:
        moved = ("line 9\n", "line 9\nnew\n\n")
        source = self.write(unified(BEFORE, AFTER), sum_cpp=BEFORE.replace(*moved))
        self.assertEqual(source.read_text(), AFTER.replace(*moved))

    def test_a_diff_that_no_longer_fits_says_so(self) -> None:
        with self.assertRaisesRegex(LabError, "(?s)no longer fits solutions/09_sums.*sum.cpp:1"):
            self.write(unified(BEFORE, AFTER), sum_cpp=BEFORE.replace("line 3", "line three"))

    def test_any_files_of_the_solution_may_be_changed(self) -> None:
        diff = unified("more\n", "less\n", "more.cpp") + unified("both\n", "none\n", "both.h")
        source = self.write(diff)
        changed = [(source.parent / name).read_text() for name in ("sum.cpp", "more.cpp", "both.h")]
        self.assertEqual(changed, [BEFORE, "less\n", "none\n"])

    def test_a_file_that_is_not_there_is_named(self) -> None:
        with self.assertRaisesRegex(LabError, "(?s)no longer fits.*gone.cpp"):
            self.write(unified("more\n", "less\n", "gone.cpp"))


class Compiled(unittest.TestCase):
    """What is compiled again: the compiler here is `echo`, and its log the command."""

    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.stage = Sums(self.folder)
        self.solution = self.folder / "solutions" / "09_sums"
        commands = [
            {"file": str(self.solution / name), "command": f"echo -O3 -o {name}.o -c {self.solution / name}"}
            for name in ("more.cpp", "sum.cpp")
        ]
        (self.folder / "compile_commands.json").write_text(json.dumps(commands))

    def inputs(self, source: Path, *flags: str) -> list[str]:
        mutants.compile_stage(context(build_dir=str(self.folder)), self.stage, source, self.folder, flags)
        words = (self.folder / "compiler.log").read_text().split()
        return [word.replace(f"{self.folder}/", "") for word in words[words.index("-o") + 2 :]]

    def copy(self, **contents: str) -> Path:
        copy = Sums(self.folder / "mutant", **contents)
        return copy.root / "solutions" / copy.name / "sum.cpp"

    def test_a_variant_stands_alone(self) -> None:
        variant = self.folder / "variant.cpp"
        self.assertEqual(self.inputs(variant), ["variant.cpp"])

    def test_only_the_changed_file_of_a_mutant(self) -> None:
        self.assertEqual(self.inputs(self.copy(sum_cpp=AFTER)), ["more.cpp.o", "mutant/solutions/09_sums/sum.cpp"])
        changed = self.inputs(self.copy(more_cpp="less\n"))
        self.assertEqual(changed, ["mutant/solutions/09_sums/more.cpp", "sum.cpp.o"])

    def test_all_files_with_a_changed_header_or_other_flags(self) -> None:
        both = ["mutant/solutions/09_sums/more.cpp", "mutant/solutions/09_sums/sum.cpp"]
        self.assertEqual(self.inputs(self.copy(both_h="none\n")), both)
        self.assertEqual(self.inputs(self.solution / "sum.cpp", "-g"), [path.removeprefix("mutant/") for path in both])


class Headers(unittest.TestCase):
    def test_all_of_it_is_read(self) -> None:
        read = mutant(HEADER + "Score: 0\n")
        self.assertEqual((read.killed_by, read.only, read.score), (("mean", "order"), False, 0))

    def test_mistakes_are_named(self) -> None:
        for header, message in [
            (HEADER.replace("Says: the sum, not .* mean\n", ""), "lacks the line 'Says"),
            (HEADER + "Kiled-by: order\n", "cannot read the line 'Kiled-by: order'"),
            (HEADER + "Only: no\n", "can only be yes"),
            (HEADER.replace(".* mean", "(mean"), "cannot read Says"),
            (HEADER + "Score: none\n", "cannot read Says or Score"),
            ("Mistake: frees twice\nSanitizer: double-free\nOnly: yes\n", "lacks the line 'Killed-by"),
        ]:
            with self.subTest(message), self.assertRaisesRegex(LabError, message.replace("(", r"\(")):
                mutant(header)


    def test_a_mutant_may_be_left_to_the_sanitizer(self) -> None:
        read = mutant("Mistake: frees twice\nSanitizer: double-free\n")
        self.assertEqual((read.sanitizer, read.killed_by), ("double-free", ()))
        self.assertEqual(mutant(HEADER + "Sanitizer: double-free\n").killed_by, ("mean", "order"))


class Verdicts(unittest.TestCase):
    DUE = {"mean": "diagnosis: the sum, not the mean", "order": "wrong order"}

    def faults(self, header: str = HEADER, **failures: str) -> str:
        return "; ".join(mutants.faults(mutant(header), report(**failures)))

    def test_a_mutant_that_dies_as_it_should_has_no_fault(self) -> None:
        self.assertEqual(self.faults(**self.DUE), "")

    def test_a_survivor_is_found(self) -> None:
        self.assertIn("survives", self.faults())

    def test_a_test_that_should_fail_and_does_not_is_found(self) -> None:
        self.assertIn("should fail order", self.faults(mean=self.DUE["mean"]))

    def test_a_crash_is_no_diagnosis(self) -> None:
        self.assertIn("without saying", self.faults(mean="rank 0 died: SIGSEGV", order="wrong order"))

    def test_a_mutant_of_one_test_must_not_fail_others(self) -> None:
        found = self.faults(HEADER + "Only: yes\n", bitwise="x", **self.DUE)
        self.assertIn("no other test should fail, but bitwise", found)
        self.assertEqual(self.faults(HEADER, bitwise="x", **self.DUE), "")

    def test_a_misspelled_test_is_found(self) -> None:
        self.assertIn("no test of the stage: means", self.faults(HEADER.replace("mean,", "means,"), **self.DUE))

    def test_a_run_that_broke_off_is_found(self) -> None:
        broken = report(**self.DUE)
        broken.results[1].status = Status.NOT_RUN
        self.assertIn("no verdict on bitwise", "".join(mutants.faults(mutant(), broken)))

    def test_an_empty_solution_must_have_no_points(self) -> None:
        self.assertIn("should get 0 points, and gets 1", self.faults(HEADER + "Score: 0\n", **self.DUE))

    def test_a_test_without_a_mutant_of_its_own_is_found(self) -> None:
        only = HEADER.replace("mean, order", "mean") + "Only: yes\n"
        self.assertEqual(mutants.not_needed(SPECS, [mutant(), mutant(only)]), ["bitwise", "order"])


    def test_only_tests_that_matter_are_run(self) -> None:
        def names(header: str, everything: bool = True) -> list[str]:
            return [spec.name for spec in mutants.needed(mutant(header), SPECS, everything)]

        everything = [spec.name for spec in SPECS]
        self.assertEqual(names(HEADER), ["mean", "order"])
        for about_all in ("Only: yes\n", "Score: 0\n"):
            self.assertEqual(names(HEADER + about_all), everything)
        self.assertEqual(names(HEADER.replace("mean,", "means,")), everything)  # so that its fault can be told
        self.assertEqual(names(HEADER + "Only: yes\n", everything=False), ["mean", "order"])
        self.assertEqual(names(HEADER + "Score: 0\n", everything=False), everything)

    def test_a_sample_has_for_each_test_a_mutant_that_it_alone_kills(self) -> None:
        def named(name: str, killed_by: str) -> mutants.Mutant:
            return replace(mutant(HEADER + "Only: yes\n"), name=name, killed_by=tuple(killed_by.split()))

        known = [named(f"{test}_{number}", test) for test in ("mean", "order", "bitwise") for number in range(9)]
        known += [named(f"several_{number}", "mean order") for number in range(9)]
        for seed in range(20):
            chosen = mutants.sampled(SPECS, known, seed)
            self.assertEqual({each.exclusive for each in chosen} | {""}, {"mean", "order", "bitwise", ""})
            self.assertEqual(len(set(chosen)), 3 + mutants.SAMPLE)
            self.assertEqual(chosen, mutants.sampled(SPECS, known, seed))
        self.assertEqual(len(mutants.sampled(SPECS, known[:1], 1)), 1)


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
ASAN_REPORT = f"""\
=================================================================
==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x60600 at pc 0x7f4 bp 0x7ff sp 0x7fd
READ of size 8 at 0x60600 thread T0
    #0 0x7f4ac in at::TensorBase::defined() const {ROOT}/.venv/lib/torch/include/ATen/core/TensorBase.h:215
    #1 0x7f4ad in finish {ROOT}/build/check/sanitizer/02_overlapped_ddp/leaks/overlapped_ddp.cpp:124
    #2 0x7f4ae in void run(int, char const*) {ROOT}/tests/02_overlapped_ddp/07_lifetime.cpp:84
    #3 0x7f4af in (/lib/libc.so.6+0xbc936)

0x60600 is located 0 bytes inside of 64-byte region [0x60600,0x60640)
freed by thread T0 here:
    #0 0x7f4b0 in operator delete(void*, unsigned long) ../../../../src/libsanitizer/asan/asan_new_delete.cpp:164
    #1 0x7f4b1 in reset {ROOT}/tests/02_overlapped_ddp/07_lifetime.cpp:80

SUMMARY: AddressSanitizer: heap-use-after-free
"""


class Memory(unittest.TestCase):
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


class Sanitizer(unittest.TestCase):
    def test_of_a_report_the_useful_part_is_shown(self) -> None:
        said = sanitizer.summarize(ASAN_REPORT).splitlines()
        self.assertEqual(
            said,
            [
                "AddressSanitizer: heap-use-after-free",
                "READ of size 8 at 0x60600 thread T0",
                "    build/check/sanitizer/02_overlapped_ddp/leaks/overlapped_ddp.cpp:124 in finish",
                "    tests/02_overlapped_ddp/07_lifetime.cpp:84 in void run(int, char const*)",
                "0x60600 is located 0 bytes inside of 64-byte region [0x60600,0x60640)",
                "freed by thread T0 here:",
                "    tests/02_overlapped_ddp/07_lifetime.cpp:80 in reset",
            ],
        )

    def test_any_report_or_failed_test_is_found(self) -> None:
        self.assertEqual(sanitizer.found(report(), []), "")
        self.assertIn("overlapped_ddp.cpp:124", sanitizer.found(report(), [ASAN_REPORT]))
        self.assertIn("Tests that fail: mean", sanitizer.found(report(mean="rank 0 exited"), [ASAN_REPORT]))
        self.assertIn("rank 0 exited", sanitizer.found(report(mean="rank 0 exited"), []))

    def test_a_mutant_must_die_of_the_report_it_names(self) -> None:
        due = mutant("Mistake: hooks leak\nSanitizer: heap-use-after-free\n")
        self.assertEqual(sanitizer.missed(due, [ASAN_REPORT]), "")
        self.assertIn("reports nothing", sanitizer.missed(due, []))
        other = mutant("Mistake: frees twice\nSanitizer: double-free\n")
        self.assertIn("double-free, and reports heap-use-after-free", sanitizer.missed(other, [ASAN_REPORT]))

    def test_a_compiler_without_it_is_skipped(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            outcome = sanitizer.check_sanitizer(context(build_dir=folder, cxx="echo"))
        self.assertEqual((outcome.passed, outcome.failures, len(outcome.skipped)), (0, [], 1))


class ThisRepository(unittest.TestCase):
    """Checks of the mutants that need no build."""

    def test_every_mutant_fits_its_solution_and_changes_it(self) -> None:
        for stage in graded_stages():
            solution = mutants.solution_of(stage).parent
            for path in sorted((ROOT / "tests" / "mutants" / stage.name).glob("*.patch")):
                with self.subTest(path.name), tempfile.TemporaryDirectory() as folder:
                    read = mutants.parse(path.stem, path.read_text())
                    mutants.write_mutated(stage, read, Path(folder))
                    same = [copy.read_bytes() == (solution / copy.name).read_bytes() for copy in Path(folder).iterdir()]
                    self.assertFalse(all(same))

    def test_every_stage_has_an_empty_solution_among_them(self) -> None:
        for stage in graded_stages():
            folder = ROOT / "tests" / "mutants" / stage.name
            scores = [mutants.parse(path.stem, path.read_text()).score for path in folder.glob("*.patch")]
            self.assertIn(0, scores, stage.name)


class Linting(unittest.TestCase):
    def test_findings_go_to_their_files(self) -> None:
        text = "/a.cpp:1:2: error: one [x]\n  code\n/b.h:3:4: warning: two [y]\n/a.cpp:5:6: error: three [z]\n"
        found = linting._by_file(text)
        self.assertEqual(found[Path("/a.cpp")].count("error"), 2)
        self.assertIn("two", found[Path("/b.h")])

    def test_files_that_do_not_compile_together_are_looked_at_apart(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            compiler = Path(folder, "cxx")
            compiler.write_text(f"#!{sys.executable}\n{CLASHING_COMPILER}")
            compiler.chmod(0o755)
            with mock.patch.object(linting, "_tool", return_value="true"):
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
        with mock.patch("shutil.which", return_value=None):
            with self.assertRaisesRegex(LabError, "no clang-tidy, .*apt-get install clang-tidy"):
                linting.check_lint(context())


class PythonTests(unittest.TestCase):
    def outcome(self, body: str) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "test_it.py").write_text(f"import unittest\nclass T(unittest.TestCase):\n{body}")
            return own_tests._run_python_tests(context(build_dir=folder), sys.executable, "test_it", Path(folder))

    def test_passed_failed_and_skipped_are_counted(self) -> None:
        found = self.outcome(
            "  def test_a(self): pass\n  def test_b(self): self.fail('why')\n"
            "  def test_c(self): 1 / 0\n  @unittest.skip('x')\n  def test_d(self): pass\n"
        )
        self.assertEqual((found.passed, len(found.failures), len(found.skipped)), (1, 2, 1))
        self.assertIn("why", found.failures[0] + found.failures[1])

    def test_no_tests_or_no_end_is_a_failure(self) -> None:
        self.assertIn("ran no tests", self.outcome("  pass\n").failures[0])
        self.assertIn("ran no tests", self.outcome("  def test_a(self):\n    import os; os._exit(0)\n").failures[0])


class Summary(unittest.TestCase):
    def run_check(self, *steps: Outcome | Exception, fresh: bool = False) -> tuple[int, str]:
        names = ("build", "lint", "sanitizer")

        def step(result: Outcome | Exception) -> check.Step:
            return mock.Mock(side_effect=[result])

        table = {name: (name, step(result)) for name, result in zip(names, steps)}
        options = mock.Mock(only=[], seed=7, all=True, fresh=fresh)
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            with mock.patch.object(check, "STEPS", table), mock.patch("tools.checking.costs.measure", return_value=["1 s"]):
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
