"""Step of `make check ALL=1`: the compiler that was not chosen builds the stages too, and the solutions get full marks.

What both build is alike for a student, whichever is installed; benchmarks are left to the compiler that was chosen.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial

from tools.checking.context import CORES, Context, Outcome, describe, describe_tests, graded_stages
from tools.grading.compile_errors import condense
from tools.grading.results import Status
from tools.grading.stages import Stage
from tools.setup.configuring import cmake_command
from tools.setup.system_packages import tool_gap


def check_other_compiler(context: Context) -> Outcome:
    name = "g++" if context.uses_clang else "clang++"
    compiler = shutil.which(name)
    if not compiler or tool_gap(compiler):
        return Outcome(skipped=[f"{name} is not installed, or too old"])
    folder = context.folder("built_by_" + name.removesuffix("++"))
    other = replace(context, toolchain=replace(context.toolchain, cxx=compiler, build_dir=str(folder)))
    if failure := _build(other, name):
        return Outcome.of(failure)
    return Outcome().take(other.each(partial(_grade, other, name), graded_stages()))


def _build(other: Context, name: str) -> str:
    """What went wrong; empty if nothing did."""
    targets = [target for stage in graded_stages() for target in (f"tests_{stage.name}", f"solutions_{stage.name}")]
    build = [
        other.toolchain.cmake,
        "--build",
        other.toolchain.build_dir,
        "--parallel",
        str(CORES),
        "--target",
        *targets,
    ]
    for command in (cmake_command(other.toolchain), build):
        log = other.build_dir / "build.log"
        code, text = other.run(command, log, on_line=lambda line: other.show(line[:70]))
        if code:
            return describe(f"The build by {name}", condense(text), log)
    return ""


def _grade(other: Context, name: str, stage: Stage) -> Outcome:
    report = other.grade(stage, other.builder.library(stage, "solutions"), other.tests_of(stage))
    bad = [result for result in report.results if result.status not in (Status.PASSED, Status.SKIPPED)]
    return Outcome.of(describe(f"{stage.name}, built by {name}", describe_tests(bad)) if bad else "")
