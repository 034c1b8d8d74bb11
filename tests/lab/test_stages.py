"""Solutions get full marks, and stubs none."""

from __future__ import annotations

import pytest

from tests.lab.marks import each_stage_built
from tools.checking.context import Context, describe_tests
from tools.grading.running import minimum_activity
from tools.grading.scoring.results import StageReport, Status, TestResult
from tools.grading.stages import Stage

UNFINISHED = 3  # a program's exit code if a stage is not written yet; benchmarks/measuring/benchmark.h


def judged(report: StageReport, subtests: pytest.Subtests) -> list[TestResult]:
    """The tests with a verdict. Those that this machine cannot run are skipped, which is not passed."""
    for result in report.results:
        if result.status is Status.SKIPPED:
            with subtests.test(result.spec.name):
                pytest.skip(" ".join(result.notes))
    found = [result for result in report.results if result.status is not Status.SKIPPED]
    assert found, "nothing was judged"
    return found


@each_stage_built("solutions")
def test_solution(stage: Stage, context: Context, subtests: pytest.Subtests) -> None:
    with minimum_activity.renewing(stage):
        report = context.grade(stage, context.builder.library(stage, "solutions"), context.tests_of(stage))
        wrong = [result for result in judged(report, subtests) if result.status is not Status.PASSED]
        assert not wrong, describe_tests(wrong)
        minimum_activity.keep(report)
    assert report.unpaid == [], "whoever is charged with a scenario judges it, or code dies there for free"
    assert report.max_score == stage.points, f"its tests add up to {report.max_score:g} points"


@each_stage_built("assignments")
def test_stub(stage: Stage, context: Context, subtests: pytest.Subtests) -> None:
    """Each test says TODO, and nothing crashes."""
    report = context.grade(stage, context.builder.library(stage, "assignments"), context.tests_of(stage))
    due = [result.status is Status.TODO and "TODO(student)" in "".join(result.failures) for result in report.results]
    wrong = [result for result in judged(report, subtests) if not due[report.results.index(result)]]
    assert not wrong, describe_tests(wrong)
