"""Variants: other correct solutions, which must get full marks.

tests/variants/<stage>/<name>.cpp is a complete correct solution, however unusual; an entry of
tests/variants/<stage>.diff is one that differs from ours in some lines (in_place.py), and says under `What:` how.
"""

from __future__ import annotations

from tools.checking import in_place
from tools.checking.context import Context, describe, describe_tests, not_passed
from tools.checking.in_place import InPlace
from tools.grading.running.runner import RunOptions
from tools.grading.stages import Stage
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


def try_variant(context: Context, variant: Variant, options: RunOptions) -> str:
    """What a correct solution loses points for; empty if it gets full marks."""
    report, log = variant.grade(context, context.graded_tests(variant.stage), options)
    wrong = not_passed(report)
    return describe(f"{variant.title} is correct, but loses points", describe_tests(wrong), log) if wrong else ""
