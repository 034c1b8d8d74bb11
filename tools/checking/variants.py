"""Trials: other correct solutions get full marks.

tests/variants/<stage>/<name>.cpp is a complete correct solution, however unusual; an entry of
tests/variants/<stage>.diff is one that differs from ours in some lines (in_place.py), and says under `What:` how. With
ALL=1 each of its bodies runs in a drawn order of events, too, and it runs under a sanitizer
(tools/checking/sanitizers.py).
"""

from __future__ import annotations

from tools.checking import in_place
from tools.checking.context import Context, Outcome, describe, describe_tests
from tools.checking.in_place import InPlace, graded_tests
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import Status
from tools.grading.stages import Stage, choose, named
from tools.setup.toolchain import ROOT, LabError


class Variant(InPlace):
    kind = "variants"


def variants_of(stage: Stage) -> list[Variant]:
    files = sorted((ROOT / "tests" / Variant.kind / stage.name).glob("*.cpp"))
    whole = [Variant(stage, path.stem, path.read_text(), ()) for path in files]
    return whole + [_edited(stage, *entry) for entry in in_place.entries(Variant.kind, stage).items()]


def _edited(stage: Stage, name: str, text: str) -> Variant:
    try:
        fields, edits = in_place.parse(text, ("What",))
        in_place.require(fields, ("What",))
    except LabError as error:
        raise LabError(f"tests/variants/{stage.name}.diff, {name}: {error}") from None
    return Variant(stage, name, text, edits)


def _named(stage_name: str, name: str) -> Variant:
    known = {variant.name: variant for variant in variants_of(named(stage_name))}
    return known[choose("variant", name, known)]


def compile_variant(context: Context, stage_name: str, name: str) -> Outcome:
    return _named(stage_name, name).compile(context)


def try_variant(context: Context, stage_name: str, name: str, many_orders: bool) -> Outcome:
    return grade_variant(context, RunOptions(context.seed, many_orders=many_orders), _named(stage_name, name))


def grade_variant(context: Context, options: RunOptions, variant: Variant) -> Outcome:
    report, log = variant.grade(context, graded_tests(context, variant.stage), options)
    wrong = [result for result in report.results if result.status not in (Status.PASSED, Status.SKIPPED)]
    text = f"is correct, but loses points:\n{describe_tests(wrong)}"
    return Outcome.of(describe(variant.title, text, log) if wrong else "")
