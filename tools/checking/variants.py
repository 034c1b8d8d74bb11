"""Step of `make check`: other correct solutions get full marks.

tests/variants/<stage>/<name>.cpp is a complete correct solution, however unusual; with ALL=1 each of its bodies
runs in a drawn order of events, too, and it runs under a sanitizer (tools/checking/sanitizers.py).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tools.checking.context import Context, Outcome, describe, describe_tests, graded_stages
from tools.checking.in_place import grade, graded_tests, surroundings
from tools.checking.remembered import files, outcome_of
from tools.grading.results import Status
from tools.grading.runner import RunOptions
from tools.grading.stages import Stage, short_paths
from tools.setup.toolchain import ROOT, LabError


def check_variants(context: Context) -> Outcome:
    outcome, verdicts = Outcome(), []
    for stage in graded_stages():
        sources = variants_of(stage)
        if len(sources) < 2:
            outcome.add(f"tests/variants/{stage.name} needs at least two correct, unusual solutions")
        verdicts += [partial(_verdict, context, stage, source) for source in sources]
    return outcome.take(context.each(lambda verdict: verdict(), verdicts))


def _verdict(context: Context, stage: Stage, source: Path) -> Outcome:
    contents = [source, *files("tests/variants", "*.h"), *surroundings(context, stage), str(context.everything)]
    work = partial(grade_variant, context, RunOptions(context.seed, many_orders=context.everything), stage, source)
    return outcome_of(context, f"variants.{stage.name}.{source.stem}", contents, work)


def variants_of(stage: Stage) -> list[Path]:
    return sorted((ROOT / "tests" / "variants" / stage.name).glob("*.cpp"))


def grade_variant(context: Context, options: RunOptions, stage: Stage, source: Path) -> Outcome:
    folder, title = context.folder("variants", stage.name, source.stem), short_paths(str(source))
    try:
        report, log = grade(context, stage, source, folder, graded_tests(context, stage), options)
    except LabError as error:
        return Outcome.of(describe(title, str(error)))
    wrong = [result for result in report.results if result.status not in (Status.PASSED, Status.SKIPPED)]
    text = f"is correct, but loses points:\n{describe_tests(wrong)}"
    return Outcome.of(describe(title, text, log) if wrong else "")
