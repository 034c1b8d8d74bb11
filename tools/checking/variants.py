"""Trials: other correct solutions get full marks.

tests/variants/<stage>/<name>.cpp is a complete correct solution, however unusual; an entry of
tests/variants/<stage>.diff is one that differs from ours in some lines (edits.py), and says under `What:` how. With
ALL=1 each of its bodies runs in a drawn order of events, too, and it runs under a sanitizer
(tools/checking/sanitizers.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.checking import edits
from tools.checking.context import Context, Outcome, describe, describe_tests
from tools.checking.edits import Edit
from tools.checking.in_place import compile_stage, grade, grade_compiled, graded_tests
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import StageReport, Status
from tools.grading.stages import Stage, choose, named, short_paths
from tools.setup.toolchain import ROOT, LabError

FOLDER = ROOT / "tests" / "variants"


@dataclass(frozen=True)
class Variant:
    name: str
    file: Path
    text: str
    edits: tuple[Edit, ...] = ()  # of the stage's solution; none: the file is the whole

    def title(self) -> str:
        return short_paths(str(self.file)) + (f", {self.name}" if self.edits else "")

    def source(self, stage: Stage, folder: Path) -> Path:
        return edits.write_edited(stage, self.edits, folder) if self.edits else self.file


def compile_variant(context: Context, stage_name: str, name: str) -> Outcome:
    stage = named(stage_name)
    variant, folder = _named(stage, name), context.folder("variants", stage_name, name)
    try:
        compile_stage(context, stage, variant.source(stage, folder), folder)
    except LabError as error:
        return Outcome.of(describe(variant.title(), str(error)))
    return Outcome(1)


def try_variant(context: Context, stage_name: str, name: str, many_orders: bool) -> Outcome:
    stage, options = named(stage_name), RunOptions(context.seed, many_orders=many_orders)
    folder = context.folder("variants", stage_name, name)
    return _verdict(_named(stage, name), *grade_compiled(context, stage, folder, graded_tests(context, stage), options))


def _named(stage: Stage, name: str) -> Variant:
    known = {variant.name: variant for variant in variants_of(stage)}
    return known[choose("variant", name, known)]


def variants_of(stage: Stage) -> list[Variant]:
    whole = [Variant(path.stem, path, path.read_text()) for path in sorted((FOLDER / stage.name).glob("*.cpp"))]
    return whole + [_edited(stage, *entry) for entry in edits.entries(_file_of(stage)).items()]


def _file_of(stage: Stage) -> Path:
    return FOLDER / f"{stage.name}.diff"


def _edited(stage: Stage, name: str, text: str) -> Variant:
    try:
        fields, changes = edits.parse(text, ("What",))
        edits.require(fields, ("What",))
    except LabError as error:
        raise LabError(f"{short_paths(str(_file_of(stage)))}, {name}: {error}") from None
    return Variant(name, _file_of(stage), text, changes)


def grade_variant(context: Context, options: RunOptions, stage: Stage, variant: Variant) -> Outcome:
    folder, title = context.folder("variants", stage.name, variant.name), variant.title()
    try:
        source = variant.source(stage, folder)
        graded = grade(context, stage, source, folder, graded_tests(context, stage), options)
    except LabError as error:
        return Outcome.of(describe(title, str(error)))
    return _verdict(variant, *graded)


def _verdict(variant: Variant, report: StageReport, log: Path) -> Outcome:
    wrong = [result for result in report.results if result.status not in (Status.PASSED, Status.SKIPPED)]
    text = f"is correct, but loses points:\n{describe_tests(wrong)}"
    return Outcome.of(describe(variant.title(), text, log) if wrong else "")
