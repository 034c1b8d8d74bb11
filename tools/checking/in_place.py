"""What is compiled in the place of a stage's solution, and graded: a mutant of it, or a variant."""

from __future__ import annotations

from pathlib import Path

from tools.checking.context import Context, describe_tests
from tools.grading.compile_commands import compile_command, object_of
from tools.grading.compiling.compile_errors import condense
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import StageReport, TestSpec
from tools.grading.stages import Stage, short_paths
from tools.setup.toolchain import LabError

LIBRARY = "libstage.so"


def grade(
    context: Context, stage: Stage, source: Path, folder: Path, tests: list[TestSpec], options: RunOptions
) -> tuple[StageReport, Path]:
    """What these tests say of `source`, and the log, which is in `folder` as all that is made of it."""
    compile_stage(context, stage, source, folder)
    return grade_compiled(context, stage, folder, tests, options)


def grade_compiled(
    context: Context, stage: Stage, folder: Path, tests: list[TestSpec], options: RunOptions
) -> tuple[StageReport, Path]:
    report = context.grade(stage, folder / LIBRARY, tests, options)
    log = folder / "tests.log"
    log.write_text(f"{describe_tests(report.results)}\n\nThe program printed:\n{report.output}", encoding="utf-8")
    return report, log


def graded_tests(context: Context, stage: Stage) -> list[TestSpec]:
    """The tests with points; a report has none, and may be slow."""
    return [spec for spec in context.tests_of(stage) if spec.points]


def solution_of(stage: Stage) -> Path:
    """The main source of the solution: the one that is named as what a student edits."""
    names = {path.name for path in stage.sources("assignments")}
    for path in stage.sources("solutions"):
        if path.name in names:
            return path
    raise LabError(f"solutions/{stage.name} has no {' or '.join(sorted(names))}, which the mutants are made from")


def code_of(stage: Stage) -> list[Path]:
    return [*stage.sources("solutions"), *sorted(solution_of(stage).parent.glob("*.h"))]


def compile_stage(context: Context, stage: Stage, source: Path, folder: Path) -> Path:
    """Builds `source` in place of the stage's solution, with the same flags and precompiled header.

    If it lies in a copy of the solution's folder, the copies of the other sources go with it. Those that are as in the
    solution are not compiled again: the build has their objects.
    """
    library = folder / LIBRARY
    library.unlink(missing_ok=True)
    copies = {path: source.parent / path.name for path in code_of(stage) if (source.parent / path.name).exists()}
    changed = {path for path, copy in copies.items() if copy.read_bytes() != path.read_bytes()}
    everything = any(path.suffix == ".h" for path in changed)
    inputs = [] if source in copies.values() else [source]
    for path, copy in copies.items():
        if path.suffix == ".cpp":
            inputs.append(copy if everything or path in changed else object_of(context.build_dir, path))
    flags = compile_command(context.build_dir, solution_of(stage))
    command = [*flags, "-shared", "-o", str(library), *map(str, inputs)]
    log = folder / "compiler.log"
    code, text = context.run(command, log)
    if code:
        raise LabError(f"does not compile:\n{condense(text)}\nThe whole log: {short_paths(str(log))}")
    return library
