"""A build of the lab beside the student's, in a folder of its own: by another compiler, or with a sanitizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tools.checking.context import CORES, Context, Outcome, describe, describe_tests, graded_stages
from tools.grading.compile_errors import condense
from tools.grading.results import Status
from tools.grading.runner import RunOptions
from tools.grading.stages import Stage
from tools.setup.configuring import cmake_command


def stage_targets() -> list[str]:
    return [target for stage in graded_stages() for target in (f"tests_{stage.name}", f"solutions_{stage.name}")]


def second_build(
    context: Context, name: str, cxx: str, targets: Sequence[str], options: Sequence[str] = ()
) -> tuple[Context, str]:
    """Builds `targets` in a folder of this name. Returns the context of that build, and what went wrong; empty if
    nothing did."""
    folder = context.folder(name)
    other = replace(context, toolchain=replace(context.toolchain, cxx=cxx, build_dir=str(folder)))
    build = [other.toolchain.cmake, "--build", str(folder), "--parallel", str(CORES), "--target", *targets]
    for command in ([*cmake_command(other.toolchain), *options], build):
        log = folder / "build.log"
        code, text = other.run(command, log, on_line=lambda line: other.show(line[:70]))
        if code:
            return other, describe(f"The build in {name}", condense(text), log)
    return other, ""


def grade_solutions(other: Context, options: RunOptions, untimed: bool = False) -> Outcome:
    """The solutions get full marks in that build. `untimed`: but for the reports about speed."""
    return Outcome().take(other.each(partial(_grade, other, options, untimed), graded_stages()))


def _grade(other: Context, options: RunOptions, untimed: bool, stage: Stage) -> Outcome:
    tests = [spec for spec in other.tests_of(stage) if spec.points or not untimed]
    report = other.grade(stage, other.builder.library(stage, "solutions"), tests, options)
    bad = [result for result in report.results if result.status not in (Status.PASSED, Status.SKIPPED)]
    return Outcome.of(describe(f"{stage.name} in {other.build_dir.name}", describe_tests(bad)) if bad else "")
