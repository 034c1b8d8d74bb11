"""Trials of the stages themselves: each test passes on the solution, and says TODO on the stub."""

from __future__ import annotations

from tools.checking import claims
from tools.checking.context import Context, Outcome, describe, describe_tests
from tools.grading.scoring.results import StageReport, Status, TestResult
from tools.grading.stages import named


def check_solution(context: Context, stage_name: str) -> Outcome:
    """A test that this machine cannot run counts as skipped, not as passed."""
    report, outcome = _grade(context, stage_name, "solutions"), Outcome()
    claims.keep_bodies(context, report)
    for result in _not_skipped(report, outcome):
        outcome.add("" if result.status is Status.PASSED else describe(stage_name, describe_tests([result])))
    if report.max_score != report.stage.points:
        outcome.add(
            f"the tests of {stage_name} add up to {report.max_score:g} points, but it has {report.stage.points}"
        )
    return outcome


def check_stub(context: Context, stage_name: str) -> Outcome:
    """Each test fails with the stub's TODO, and nothing crashes."""
    report, outcome = _grade(context, stage_name, "assignments"), Outcome()
    for result in _not_skipped(report, outcome):
        due = result.status is Status.TODO and "TODO(student)" in "".join(result.failures)
        title = f"{stage_name}: on a stub, a test should say TODO"
        outcome.add("" if due else describe(title, describe_tests([result])))
    return outcome


def _grade(context: Context, stage_name: str, impl: str) -> StageReport:
    stage = named(stage_name)
    return context.grade(stage, context.builder.library(stage, impl), context.tests_of(stage))


def _not_skipped(report: StageReport, outcome: Outcome) -> list[TestResult]:
    """The tests with a verdict. The skipped ones are noted in `outcome`, with their reasons."""
    skipped = [result for result in report.results if result.status is Status.SKIPPED]
    outcome.skipped += [f"{result.spec.name}: {' '.join(result.measured)}" for result in skipped]
    return [result for result in report.results if result not in skipped]
