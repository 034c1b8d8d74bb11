"""Step of `make check ALL=1`, or alone: make check SANITIZE=undefined.

All of the lab's own code that a test runs (common, solutions, tests) is built with UndefinedBehaviorSanitizer. The
solutions then get full marks, and the harness's tests pass. The first report ends its process, so it fails what ran and
stands in what it printed. libtorch is not built with it, and not looked into.
"""

from __future__ import annotations

from functools import partial

from tools.checking.context import CORES, Context, Outcome
from tools.checking.own_tests import run_shard
from tools.checking.second_build import grade_solutions, second_build, stage_targets
from tools.grading.runner import RunOptions

_ENVIRONMENT = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
_DEADLINE_S = 60.0  # for a group of ranks, which is several times slower; speed is not judged here


def check_undefined(context: Context) -> Outcome:
    """No undefined behaviour in the lab's own code."""
    targets = [*stage_targets(), "tests_harness"]
    other, failure = second_build(
        context, "sanitized_by_undefined", context.toolchain.cxx, targets, ["-DSANITIZE=undefined"]
    )
    if failure:
        return Outcome.of(failure)
    slow = RunOptions(other.seed, deadline_s=_DEADLINE_S, environment=_ENVIRONMENT)
    harness = partial(run_shard, other, "tests_harness", env=_ENVIRONMENT)
    return grade_solutions(other, slow, untimed=True).take(other.each(harness, range(CORES)))
