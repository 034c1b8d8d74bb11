"""Step of `make check ALL=1`: the compiler that was not chosen builds the stages too, and the solutions get full marks.

What both build is alike for a student, whichever is installed; benchmarks are left to the compiler that was chosen.
"""

from __future__ import annotations

import shutil
from functools import partial

from tools.checking.context import Context, Outcome, describe, describe_tests, graded_stages
from tools.checking.second_build import second_build, stage_targets
from tools.grading.results import Status
from tools.grading.stages import Stage
from tools.setup.system_packages import tool_gap


def check_other_compiler(context: Context) -> Outcome:
    name = "g++" if context.uses_clang else "clang++"
    compiler = shutil.which(name)
    if not compiler or tool_gap(compiler):
        return Outcome(skipped=[f"{name} is not installed, or too old"])
    other, failure = second_build(context, "built_by_" + name.removesuffix("++"), compiler, stage_targets())
    if failure:
        return Outcome.of(failure)
    return Outcome().take(other.each(partial(_grade, other, name), graded_stages()))


def _grade(other: Context, name: str, stage: Stage) -> Outcome:
    report = other.grade(stage, other.builder.library(stage, "solutions"), other.tests_of(stage))
    bad = [result for result in report.results if result.status not in (Status.PASSED, Status.SKIPPED)]
    return Outcome.of(describe(f"{stage.name}, built by {name}", describe_tests(bad)) if bad else "")
