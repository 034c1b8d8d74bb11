"""Step of `make check ALL=1`: the compiler that was not chosen builds the stages too, and the solutions get full marks.

What both build is alike for a student, whichever is installed; benchmarks are left to the compiler that was chosen.
"""

from __future__ import annotations

import shutil

from tools.checking.context import Context, Outcome
from tools.checking.second_build import grade_solutions, second_build, stage_targets
from tools.grading.runner import RunOptions
from tools.setup.system_packages import tool_gap


def check_other_compiler(context: Context) -> Outcome:
    name = "g++" if context.uses_clang else "clang++"
    compiler = shutil.which(name)
    if not compiler or tool_gap(compiler):
        return Outcome(skipped=[f"{name} is not installed, or too old"])
    other, failure = second_build(context, "built_by_" + name.removesuffix("++"), compiler, stage_targets())
    if failure:
        return Outcome.of(failure)
    return grade_solutions(other, RunOptions(other.seed))
