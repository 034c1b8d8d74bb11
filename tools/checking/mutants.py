"""Tests a stage's tests on its solution with a mistake built in: tools/checking/mutant_files.py.

Each test with points needs a mutant that no other test kills, which shows that the test is needed.
"""

from __future__ import annotations

from tools.checking.context import Context, Outcome, describe, describe_tests
from tools.checking.edits import write_edited
from tools.checking.in_place import compile_stage, grade_compiled, graded_tests
from tools.checking.mutant_files import Mutant, entries, parse
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import StageReport, Status, TestSpec
from tools.grading.stages import Stage, choose, named
from tools.setup.toolchain import LabError


def load(stage: Stage, outcome: Outcome) -> list[Mutant]:
    """The stage's mutants; one that cannot be read is a failure of the step."""
    mutants = []
    try:
        texts = entries(stage)
    except LabError as error:
        outcome.add(str(error))
        return []
    for name, text in texts.items():
        try:
            mutants.append(parse(name, text))
        except LabError as error:
            outcome.add(f"tests/mutants/{stage.name}.diff, {name}: {error}")
    return mutants


def faults(mutant: Mutant, report: StageReport) -> list[str]:
    """How a mutant's grading differs from what was expected; empty if it does not."""
    known = {result.spec.name: result for result in report.results}
    if unknown := [name for name in mutant.killed_by if name not in known]:
        return [f"Killed-by names what is no test of the stage: {', '.join(unknown)}"]
    failed = {name for name, result in known.items() if result.status is Status.FAILED}
    found = []
    if not failed:
        found.append("it survives: every test passes")
    elif spared := [name for name in mutant.killed_by if name not in failed]:
        found.append(f"it should fail {', '.join(spared)}, and does not")
    if mutant.only and (others := sorted(failed - set(mutant.killed_by))):
        found.append(f"no other test should fail, but {', '.join(others)} does")
    first = known[mutant.killed_by[0]]
    if first.spec.name in failed and not mutant.says.search("\n".join(first.failures)):
        found.append(f"{first.spec.name} fails, but without saying '{mutant.says.pattern}'")
    if unjudged := [name for name, result in known.items() if result.status in (Status.NOT_RUN, Status.TODO)]:
        found.append(f"it has no verdict on {', '.join(unjudged)}")
    if mutant.score is not None and report.score != mutant.score:
        found.append(f"it should get {mutant.score:g} points, and gets {report.score:g}")
    most, lost = price(mutant, [result.spec for result in report.results]), report.max_score - report.score
    if most is not None and lost > most:
        found.append(f"it should lose no more than {most:g} points, and loses {lost:g}: say that (Loses: {lost:g})")
    return found


def price(mutant: Mutant, specs: list[TestSpec]) -> float | None:
    """The most points that a mutant loses; None: nobody has said it yet."""
    if mutant.score is not None:
        return sum(spec.points for spec in specs) - mutant.score
    if mutant.loses is not None or not mutant.only:
        return mutant.loses
    return sum(spec.points for spec in specs if spec.name in mutant.killed_by)


def unexplained(mutant: Mutant, specs: list[TestSpec]) -> str:
    """What is wrong with what is said of its price."""
    most = max((spec.points for spec in specs if spec.name in mutant.killed_by[:1]), default=0.0)
    lost = price(mutant, specs)
    if lost is not None and lost > most and not mutant.because:
        return f"loses {lost:g} points, more than {mutant.killed_by[0]} has: say why no fewer (Because: ...)"
    return ""


def not_needed(specs: list[TestSpec], mutants: list[Mutant]) -> list[str]:
    """The tests that no mutant proves to be needed."""
    needed = {mutant.exclusive for mutant in mutants}
    return [spec.name for spec in specs if spec.name not in needed]


def compile_mutant(context: Context, stage_name: str, name: str) -> Outcome:
    stage = named(stage_name)
    mutant, folder = _named(stage, name), context.folder("mutants", stage_name, name)
    try:
        compile_stage(context, stage, write_edited(stage, mutant.edits, folder), folder)
    except LabError as error:
        return Outcome.of(describe(mutant.title(stage), str(error)))
    return Outcome(1)


def try_mutant(context: Context, stage_name: str, name: str, everything: bool) -> Outcome:
    stage = named(stage_name)
    mutant, folder, tests = (
        _named(stage, name),
        context.folder("mutants", stage_name, name),
        graded_tests(context, stage),
    )
    brief = RunOptions(context.seed, brief=True)  # that more bodies break a claim would show nothing more
    report, log = grade_compiled(context, stage, folder, needed(mutant, tests, everything), brief)
    problems = faults(mutant, report)
    expected = mutant.killed_by[1:]  # what these say does not matter; it is in the log
    failed = [r for r in report.results if r.status is not Status.PASSED and r.spec.name not in expected]
    text = "\n".join([*problems, "", describe_tests(failed)])
    return Outcome.of(describe(mutant.title(stage), text, log) if problems else "")


def _named(stage: Stage, name: str) -> Mutant:
    texts = entries(stage)
    return parse(name, texts[choose("mutant", name, texts)])


def needed(mutant: Mutant, tests: list[TestSpec], everything: bool) -> list[TestSpec]:
    """The tests to run on this mutant: those that kill it. All, if it claims something about all of them; that no other
    test fails is looked at with ALL=1 only, which takes twice as long."""
    killers = [spec for spec in tests if spec.name in mutant.killed_by]
    says_all = mutant.score is not None or (everything and (mutant.only or mutant.loses is not None))
    about_all = says_all or len(killers) < len(mutant.killed_by)
    return tests if about_all else killers
