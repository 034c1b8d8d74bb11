"""Step of `make check ALL=1`, or alone: make check SANITIZE=undefined.

All of the lab's own code that a test runs (common, solutions, tests) is built with UndefinedBehaviorSanitizer. The
solutions then get full marks, and the harness's tests pass. The first report ends its process, so it fails what ran and
stands in what it printed. libtorch is not built with it, and not looked into.
"""

from __future__ import annotations

from functools import partial

from tools.checking.context import CORES, Context, Outcome, describe, describe_tests, graded_stages
from tools.checking.second_build import second_build, stage_targets
from tools.grading.results import Status
from tools.grading.runner import RunOptions
from tools.grading.stages import Stage

_ENVIRONMENT = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
_DEADLINE_S = 60.0  # for a group of ranks, which is several times slower; speed is not judged here


def check_undefined(context: Context) -> Outcome:
    """No undefined behaviour in the lab's own code."""
    targets, options = [*stage_targets(), "tests_harness"], ["-DSANITIZE=undefined"]
    other, failure = second_build(context, "sanitized_by_undefined", context.toolchain.cxx, targets, options)
    if failure:
        return Outcome.of(failure)
    outcome = Outcome().take(other.each(partial(_grade, other), graded_stages()))
    return outcome.take(other.each(partial(_harness, other), range(CORES)))


def _grade(other: Context, stage: Stage) -> Outcome:
    tests = [spec for spec in other.tests_of(stage) if spec.points]  # a report is about speed
    options = RunOptions(other.seed, deadline_s=_DEADLINE_S, environment=_ENVIRONMENT)
    report = other.grade(stage, other.builder.library(stage, "solutions"), tests, options)
    bad = [result for result in report.results if result.status not in (Status.PASSED, Status.SKIPPED)]
    return Outcome.of(describe(stage.name, describe_tests(bad)) if bad else "")


def _harness(other: Context, shard: int) -> Outcome:
    log = other.folder() / f"harness.undefined.{shard}.log"
    command = [str(other.build_dir / "bin" / "tests_harness"), "--gtest_brief=1"]
    shards = {"GTEST_TOTAL_SHARDS": str(CORES), "GTEST_SHARD_INDEX": str(shard)}
    code, text = other.run(command, log, {**_ENVIRONMENT, **shards})
    return Outcome.of(describe("the harness's tests", text[-4000:], log) if code else "")
