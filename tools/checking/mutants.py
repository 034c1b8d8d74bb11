"""Mutants: a stage's solution with a mistake built in, and what its tests are to say.

tests/mutants/<stage>.diff has those of a stage, one after the other:

    ## name
    Mistake: what the student does
    Killed-by: test_name, another_test    these must fail; the first one with the diagnosis below
    Only: yes                             and no other test may fail
    Says: regular expression              must match the first one's failure; a mere crash or time-out is not enough
    Marks: regular expression             must match "kind: operation" of what is marked in its picture
    Score: 0                              the points that remain, if they matter
    Loses: 2                              the most points that it costs, if not the sum of its tests after Only
    Because: nothing is sent at all       why it costs more than the first test's points
    Sanitizer: heap-use-after-free        AddressSanitizer must report exactly that; see tools/checking/sanitizers.py

and then the edits, as in tools/checking/in_place.py. Marks, Only, Score, Loses, Because and Sanitizer are optional;
with Sanitizer so are Killed-by and Says, if no test need fail without AddressSanitizer. Each test with points needs a
mutant that no other test kills, which shows that the test is needed.

    python3 -m tools.checking.mutants 01_naive_ddp averaged_twice FOLDER      writes the solution with that mistake
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.checking import in_place
from tools.checking.context import Context, describe, describe_tests
from tools.checking.in_place import InPlace, entries, write_edited
from tools.grading.page.report_page import picture_of
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.deductions import WITHOUT
from tools.grading.scoring.results import StageReport, Status, TestResult, TestSpec
from tools.grading.stages import Stage, choose, named
from tools.setup.toolchain import LabError

_REQUIRED = ("Mistake", "Killed-by", "Says")
_FOR_SANITIZER_ALONE = ("Mistake", "Sanitizer")
_KNOWN = (*_REQUIRED, "Marks", "Only", "Score", "Loses", "Because", "Sanitizer")


@dataclass(frozen=True)
class Mutant(InPlace):
    kind = "mutants"
    mistake: str
    killed_by: tuple[str, ...]  # empty: left to AddressSanitizer
    only: bool
    says: re.Pattern[str]
    marks: str
    score: float | None
    loses: float | None
    because: str  # they are more than the first test's points
    sanitizer: str  # the kind of AddressSanitizer's report; empty: none is expected

    @property
    def title(self) -> str:
        return f"{super().title} ({self.mistake})"

    @property
    def exclusive(self) -> str:
        """The only test that kills this mutant, and so is needed; empty if several kill it."""
        return self.killed_by[0] if self.only and len(self.killed_by) == 1 else ""


def parse(stage: Stage, name: str, text: str) -> Mutant:
    fields, edits = in_place.parse(text, _KNOWN)
    in_place.require(fields, _FOR_SANITIZER_ALONE if fields.keys() == set(_FOR_SANITIZER_ALONE) else _REQUIRED)
    if fields.get("Only", "yes") != "yes":
        raise LabError("'Only:' can only be yes; leave the line out otherwise")
    try:
        says = re.compile(fields.get("Says", ""), re.DOTALL)
        score, loses = (float(fields[key]) if key in fields else None for key in ("Score", "Loses"))
    except (re.error, ValueError) as error:
        raise LabError(f"cannot read Says, Score or Loses: {error}") from None
    killed_by = tuple(test.strip() for test in fields["Killed-by"].split(",")) if "Killed-by" in fields else ()
    mistake, marks, because, sanitizer = (fields.get(key, "") for key in ("Mistake", "Marks", "Because", "Sanitizer"))
    return Mutant(
        stage, name, text, edits, mistake, killed_by, "Only" in fields, says, marks, score, loses, because, sanitizer
    )


def load(stage: Stage) -> list[Mutant]:
    mutants = []
    for name, text in entries(Mutant.kind, stage).items():
        try:
            mutants.append(parse(stage, name, text))
        except LabError as error:
            raise LabError(f"tests/mutants/{stage.name}.diff, {name}: {error}") from None
    return mutants


def seen_by_tests(stage: Stage) -> list[Mutant]:
    """All but those that only sanitizers see."""
    return [mutant for mutant in load(stage) if mutant.killed_by]


def faults(mutant: Mutant, report: StageReport, whole: bool = True) -> list[str]:
    """How a mutant's grading differs from what was expected; empty if it does not. Not `whole`: some tests were left
    out, and nothing is said of points."""
    known = {result.spec.name: result for result in report.results}
    if unknown := [name for name in mutant.killed_by if name not in known]:
        return [f"Killed-by names what is no test of the stage: {', '.join(unknown)}"]
    failed = {name for name, result in known.items() if result.status is Status.FAILED}
    found = []
    if not failed:
        found.append("it survives: every test passes")
    elif spared := [name for name in mutant.killed_by if name not in failed]:
        found.append(f"it should fail {', '.join(spared)}, and does not{_who_pays(known, spared)}")
    if mutant.only and (others := sorted(failed - set(mutant.killed_by))):
        found.append(f"no other test should fail, but {', '.join(others)} does")
    first = known[mutant.killed_by[0]]
    if first.spec.name in failed and not mutant.says.search("\n".join(first.failures)):
        found.append(f"{first.spec.name} fails, but without saying '{mutant.says.pattern}'")
    found += _faults_of_picture(mutant, first)
    if unjudged := [name for name, result in known.items() if result.status in (Status.NOT_RUN, Status.TODO)]:
        found.append(f"it has no verdict on {', '.join(unjudged)}")
    if whole and mutant.score is not None and report.score != mutant.score:
        found.append(f"it should get {mutant.score:g} points, and gets {report.score:g}")
    most, lost = most_lost(mutant, [result.spec for result in report.results]), report.max_score - report.score
    if whole and most is not None and lost > most:
        found.append(
            f"{mutant.name} should lose no more than {most:g} points, and loses {lost:g}: say that (Loses: {lost:g})"
        )
    return found


def _who_pays(known: dict[str, TestResult], spared: list[str]) -> str:
    """That a test fails in edge cases alone, and another one loses the points."""
    notes = [f"{name}: {note}" for name in spared for note in known[name].notes if note.startswith(WITHOUT)]
    return f" (deducted from another test: {'; '.join(notes)})" if notes else ""


def _faults_of_picture(mutant: Mutant, result: TestResult) -> list[str]:
    """Each failed test has a picture of its run, unless nothing ran at all; and the fault is marked there."""
    if result.status is not Status.FAILED:
        return []
    picture = picture_of(result.picture) if result.picture else None
    if picture is None or not picture.charts:
        return [f"{result.spec.name} has no picture"]
    marks = "\n".join(f"{kind}: {operation}" for kind, operation in marked(result.picture))
    return [] if re.search(mutant.marks, marks) else [f"what is marked is {marks or 'nothing'}, and not {mutant.marks}"]


def marked(picture: dict[str, Any]) -> list[tuple[str, str]]:
    """The kind of each mark, and the operation that is marked."""
    return [
        (mark["kind"], chart["lanes"][mark["lane"]]["operations"][mark["operation"]]["name"])
        if mark["operation"] >= 0
        else (mark["kind"], "")
        for chart in picture["charts"]
        for mark in chart.get("marks", ())
    ]


def most_lost(mutant: Mutant, specs: list[TestSpec]) -> float | None:
    """The most points that a mutant loses; None: nobody has said it yet."""
    if mutant.score is not None:
        return sum(spec.points for spec in specs) - mutant.score
    if mutant.loses is not None or not mutant.only:
        return mutant.loses
    return sum(spec.points for spec in specs if spec.name in mutant.killed_by)


def unexplained(mutant: Mutant, specs: list[TestSpec]) -> str:
    """What is wrong with what is said of the points that it loses."""
    most = max((spec.points for spec in specs if spec.name in mutant.killed_by[:1]), default=0.0)
    lost = most_lost(mutant, specs)
    if lost is not None and lost > most and not mutant.because:
        return (
            f"{mutant.name} loses {lost:g} points, more than {mutant.killed_by[0]} has: say why no fewer (Because: ...)"
        )
    return ""


def not_needed(specs: list[TestSpec], mutants: list[Mutant]) -> list[str]:
    """The tests that no mutant proves to be needed."""
    needed = {mutant.exclusive for mutant in mutants}
    return [spec.name for spec in specs if spec.name not in needed]


def try_mutant(context: Context, mutant: Mutant, whole: bool = True) -> str:
    """How it does not die as it should; empty if it does. Not `whole`: by the tests that it names alone."""
    tests = context.tests_of(mutant.stage)
    tests = needed(mutant, tests) if whole else [spec for spec in tests if spec.name in mutant.killed_by]
    brief = RunOptions(context.seed, brief=True)  # that more scenarios break a claim would show nothing more
    report, log = mutant.grade(context, tests, brief)
    problems = faults(mutant, report, whole)
    expected = mutant.killed_by[1:]  # what these say does not matter; it is in the log
    failed = [r for r in report.results if r.status is not Status.PASSED and r.spec.name not in expected]
    return describe(mutant.title, "\n".join([*problems, "", describe_tests(failed)]), log) if problems else ""


def needed(mutant: Mutant, tests: list[TestSpec]) -> list[TestSpec]:
    """The tests to run on this mutant: those that kill it, or all if it claims something about all of them."""
    killers = [spec for spec in tests if spec.name in mutant.killed_by]
    says_all = mutant.only or mutant.score is not None or mutant.loses is not None
    return tests if says_all or len(killers) < len(mutant.killed_by) else killers


def write(stage: str, name: str, folder: str) -> None:
    known = {mutant.name: mutant for mutant in load(named(stage))}
    write_edited(named(stage), known[choose("mutant", name, known)].edits, Path(folder))


if __name__ == "__main__":
    try:
        write(*sys.argv[1:])
    except LabError as error:
        sys.exit(str(error))
