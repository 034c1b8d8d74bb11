"""Step of `make check`: other correct solutions get full marks.

tests/variants/<stage>/<name>.cpp is a complete correct solution, however unusual; an entry of
tests/variants/<stage>.diff is one that differs from ours in some lines (edits.py), and says under `What:` how. With
ALL=1 each of its bodies runs in a drawn order of events, too, and it runs under a sanitizer
(tools/checking/sanitizers.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.checking import edits
from tools.checking.context import Context, Outcome, describe, describe_tests, graded_stages
from tools.checking.edits import Edit
from tools.checking.in_place import grade, graded_tests, surroundings
from tools.checking.remembered import Content, files, outcome_of
from tools.grading.results import Status
from tools.grading.runner import RunOptions
from tools.grading.stages import Stage, short_paths
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


def check_variants(context: Context) -> Outcome:
    outcome, verdicts = Outcome(), []
    for stage in graded_stages():
        variants = variants_of(stage)
        if len(variants) < 2:
            outcome.add(f"tests/variants/{stage.name} needs at least two correct, unusual solutions")
        verdicts += [partial(_verdict, context, stage, variant) for variant in variants]
    return outcome.take(context.each(lambda verdict: verdict(), verdicts))


def _verdict(context: Context, stage: Stage, variant: Variant) -> Outcome:
    ours: list[Content] = [*stage.sources("solutions")] if variant.edits else []
    about = [*files("tests/variants", "*.h"), *ours, *surroundings(context, stage), str(context.everything)]
    work = partial(grade_variant, context, RunOptions(context.seed, many_orders=context.everything), stage, variant)
    return outcome_of(context, f"variants.{stage.name}.{variant.name}", [variant.text, *about], work)


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
        report, log = grade(context, stage, source, folder, graded_tests(context, stage), options)
    except LabError as error:
        return Outcome.of(describe(title, str(error)))
    wrong = [result for result in report.results if result.status not in (Status.PASSED, Status.SKIPPED)]
    text = f"is correct, but loses points:\n{describe_tests(wrong)}"
    return Outcome.of(describe(title, text, log) if wrong else "")
