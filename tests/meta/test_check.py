"""Tests of `make check` itself: would it notice? Run: python3 -m unittest discover tests/meta"""

from __future__ import annotations

import contextlib
import difflib
import io
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

import check  # noqa: E402
import linting  # noqa: E402
import meta_tests  # noqa: E402
import mutants  # noqa: E402
import patches  # noqa: E402
from checking import Context, Outcome, graded_stages  # noqa: E402
from results import StageReport, Status, TestResult, TestSpec  # noqa: E402
from stages import STAGES  # noqa: E402
from toolchain import ROOT, LabError, Toolchain  # noqa: E402

SPECS = [TestSpec("mean", 3), TestSpec("bitwise", 1), TestSpec("order", 2)]
HEADER = "Mistake: adds up only\nKilled-by: mean, order\nSays: the sum, not .* mean\n"
BEFORE = "".join(f"line {number}\n" for number in range(1, 21))
AFTER = BEFORE.replace("line 3\n", "").replace("line 18\n", "line 18\nand a half\n")


def unified(before: str, after: str) -> str:
    return "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "before", "after"))


def mutant(header: str = HEADER) -> mutants.Mutant:
    return mutants.parse("sum", header + unified(BEFORE, AFTER))


def report(**failures: str) -> StageReport:
    """A grading in which the named tests fail with these texts."""
    results = [TestResult(spec, Status.PASSED) for spec in SPECS]
    for result in results:
        if text := failures.get(result.spec.name):
            result.status, result.failures = Status.FAILED, [text]
    return StageReport(STAGES[0], results)


def context(**fields: str) -> Context:
    known = {name: "" for name in Toolchain.__dataclass_fields__}
    return Context(Toolchain(**(known | fields)), 1, lambda text: None)


class Patches(unittest.TestCase):
    def test_a_diff_does_what_it_says(self) -> None:
        self.assertEqual(patches.apply(unified(BEFORE, AFTER), BEFORE), AFTER)

    def test_a_diff_finds_its_place_where_lines_moved(self) -> None:
        self.assertEqual(patches.apply(unified(BEFORE, AFTER), "new\n\n" + BEFORE), "new\n\n" + AFTER)

    def test_the_closest_of_equal_places_is_taken(self) -> None:
        twice = BEFORE + BEFORE
        self.assertEqual(patches.apply(unified(twice, BEFORE + AFTER), twice), BEFORE + AFTER)

    def test_a_diff_that_no_longer_fits_says_what_it_looks_for(self) -> None:
        with self.assertRaisesRegex(LabError, "(?s)no longer fits.*line 3"):
            patches.apply(unified(BEFORE, AFTER), BEFORE.replace("line 3", "line three"))

    def test_several_files_are_refused(self) -> None:
        with self.assertRaisesRegex(LabError, "one file"):
            patches.split_preamble(HEADER + 2 * unified(BEFORE, AFTER))


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
        ]:
            with self.subTest(message), self.assertRaisesRegex(LabError, message.replace("(", r"\(")):
                mutant(header)


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


class ThisRepository(unittest.TestCase):
    """What can be said about the mutants without building them."""

    def test_every_mutant_fits_its_solution_and_changes_it(self) -> None:
        for stage in graded_stages():
            solution = mutants.solution_of(stage).read_text()
            for path in sorted((ROOT / "tests" / "mutants" / stage.name).glob("*.patch")):
                with self.subTest(path.name):
                    read = mutants.parse(path.stem, path.read_text())
                    self.assertNotEqual(patches.apply(read.diff, solution), solution)

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

    def test_files_that_clash_are_looked_at_alone(self) -> None:
        a, b = Path("/a.cpp"), Path("/b.cpp")
        run = linting.Run((), "", (a, b))
        clash = "redefinition of 'kHalf' [clang-diagnostic-error]"
        self.assertEqual(linting._clashing(run, {b: clash}), [b])
        self.assertEqual(linting._clashing(run, {Path("/c.h"): clash}), [a, b])
        self.assertEqual(linting._clashing(run, {a: "style [readability-x]"}), [])
        self.assertEqual(linting._clashing(linting.Run((), "", (b,)), {b: clash}), [])

    def test_a_missing_tool_is_a_failure_that_says_what_to_do(self) -> None:
        with mock.patch("shutil.which", return_value=None):
            with self.assertRaisesRegex(LabError, "no clang-tidy, .*apt-get install clang-tidy"):
                linting.check_lint(context())


class PythonTests(unittest.TestCase):
    def outcome(self, body: str) -> Outcome:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "test_it.py")
            path.write_text(f"import unittest\nclass T(unittest.TestCase):\n{body}")
            return meta_tests._run_python_tests(context(build_dir=folder), sys.executable, path)

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
    def run_check(self, *steps: Outcome | Exception, names: tuple[str, ...] = ("build", "lint")) -> tuple[int, str]:
        def step(result: Outcome | Exception) -> check.Step:
            return mock.Mock(side_effect=[result])

        table = {name: (name, step(result)) for name, result in zip(names, steps)}
        options = mock.Mock(only=[], seed=7)
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            with mock.patch.object(check, "STEPS", table), mock.patch("costs.measure", return_value=["1 s"]):
                code = check.check(context(build_dir=folder).toolchain, options)
        return code, said.getvalue()

    def test_the_last_line_counts(self) -> None:
        code, said = self.run_check(Outcome(3), Outcome(4, skipped=["no GPU"]))
        self.assertEqual((code, said.splitlines()[-1]), (0, "7 passed, 0 failed"))
        self.assertIn("no GPU", said)

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
