"""Tests a stage's tests on its solution with a mistake built in.

tests/mutants/<stage>/<name>.patch is a diff of files in solutions/<stage>, under lines that say what is expected:

    Mistake: what the student does
    Killed-by: test_name, another_test    these must fail; the first one with the diagnosis below
    Only: yes                             and no other test may fail
    Says: regular expression              must match the first one's failure; a mere crash or time-out is not enough
    Score: 0                              the points that remain, if they matter
    Loses: 2                              the points that it costs; needless after Only or Score, which say it
    Because: nothing is sent at all       why no fewer, where they are more than the first test's
    Sanitizer: heap-use-after-free        AddressSanitizer must report exactly that; see tools/checking/sanitizers.py

Only, Score, Loses, Because and Sanitizer are optional; with Sanitizer so are Killed-by and Says, if no test need fail
without AddressSanitizer. Each test with points needs a mutant that no other test kills, which shows that the test is
needed.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.checking.context import Context, Outcome, describe, describe_tests, graded_stages
from tools.checking.in_place import code_of, grade, graded_tests, solution_of, surroundings
from tools.checking.remembered import Content, outcome_of
from tools.grading.results import StageReport, Status, TestSpec
from tools.grading.runner import RunOptions
from tools.grading.stages import Stage, short_paths
from tools.setup.toolchain import ROOT, LabError

_REQUIRED = ("Mistake", "Killed-by", "Says")
_FOR_SANITIZER_ALONE = ("Mistake", "Sanitizer")
_KNOWN = (*_REQUIRED, "Only", "Score", "Loses", "Because", "Sanitizer")
SAMPLE = 2  # of each stage's mutants, beside one for each test


@dataclass(frozen=True)
class Mutant:
    name: str
    mistake: str
    killed_by: tuple[str, ...]  # empty: left to AddressSanitizer
    only: bool
    says: re.Pattern[str]
    score: float | None
    loses: float | None
    because: str  # they are more than the first test's points
    sanitizer: str  # the kind of AddressSanitizer's report; empty: none is expected
    diff: str

    def title(self, stage: Stage) -> str:
        return f"tests/mutants/{stage.name}/{self.name}.patch ({self.mistake})"

    @property
    def exclusive(self) -> str:
        """The only test that kills this mutant, and so is needed; empty if several kill it."""
        return self.killed_by[0] if self.only and len(self.killed_by) == 1 else ""


def parse(name: str, patch: str) -> Mutant:
    preamble, found, diff = patch.partition("\n--- ")
    if not found:
        raise LabError("there is no unified diff under its lines")
    fields = {}
    for line in preamble.splitlines():
        key, colon, value = line.partition(":")
        if not colon or key not in _KNOWN or key in fields or not value.strip():
            raise LabError(f"cannot read the line '{line}'; known are, once each: {', '.join(_KNOWN)}")
        fields[key] = value.strip()
    required = _FOR_SANITIZER_ALONE if fields.keys() == set(_FOR_SANITIZER_ALONE) else _REQUIRED
    if missing := [key for key in required if key not in fields]:
        raise LabError(f"lacks the line '{missing[0]}: ...' above the diff")
    if fields.get("Only", "yes") != "yes":
        raise LabError("'Only:' can only be yes; leave the line out otherwise")
    try:
        says = re.compile(fields.get("Says", ""), re.DOTALL)
        score, loses = (float(fields[key]) if key in fields else None for key in ("Score", "Loses"))
    except (re.error, ValueError) as error:
        raise LabError(f"cannot read Says, Score or Loses: {error}") from None
    killed_by = tuple(test.strip() for test in fields["Killed-by"].split(",")) if "Killed-by" in fields else ()
    because, sanitizer, mistake = (fields.get(key, "") for key in ("Because", "Sanitizer", "Mistake"))
    diff = found + diff
    return Mutant(name, mistake, killed_by, "Only" in fields, says, score, loses, because, sanitizer, diff)


def load(stage: Stage, outcome: Outcome) -> list[Mutant]:
    """The stage's mutants; one that cannot be read is a failure of the step."""
    mutants = []
    for path in sorted((ROOT / "tests" / "mutants" / stage.name).glob("*.patch")):
        try:
            mutants.append(parse(path.stem, path.read_text()))
        except LabError as error:
            outcome.add(f"{short_paths(str(path))}: {error}")
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
    if (
        mutant.loses is not None
        and len(report.results) > len(mutant.killed_by)
        and report.max_score - report.score != mutant.loses
    ):
        found.append(f"it should lose {mutant.loses:g} points, and loses {report.max_score - report.score:g}")
    return found


def price(mutant: Mutant, specs: list[TestSpec]) -> float | None:
    """The points that a mutant loses; None: nobody has said it yet."""
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


def check_mutants(context: Context) -> Outcome:
    outcome, trials = Outcome(), []
    for stage in graded_stages():
        tests = graded_tests(context, stage)
        mutants = [mutant for mutant in load(stage, outcome) if mutant.killed_by]
        trial = partial(_verdict, context, stage, tests, [*surroundings(context, stage), *stage.sources("solutions")])
        chosen = mutants if context.everything else sampled(tests, mutants, context.seed)
        trials += [partial(trial, mutant) for mutant in chosen]
        for name in not_needed(tests, mutants):
            outcome.add(f"{stage.name}: no mutant in tests/mutants/{stage.name} is killed by {name} only")
    return outcome.take(context.each(lambda trial: trial(), trials))


def sampled(tests: list[TestSpec], mutants: list[Mutant], seed: int) -> list[Mutant]:
    """For each test one mutant that it alone kills, and SAMPLE of the others."""
    draw = random.Random(seed)
    own = [[mutant for mutant in mutants if mutant.exclusive == spec.name] for spec in tests]
    chosen = [draw.choice(some) for some in own if some]
    others = [mutant for mutant in mutants if mutant not in chosen]
    return chosen + draw.sample(others, min(SAMPLE, len(others)))


def _verdict(context: Context, stage: Stage, tests: list[TestSpec], about: list[Content], mutant: Mutant) -> Outcome:
    contents = [ROOT / "tests" / "mutants" / stage.name / f"{mutant.name}.patch", *about]
    kind = "mutants" if context.everything else "killers"
    work = partial(_try_mutant, context, stage, tests, mutant)
    return outcome_of(context, f"{kind}.{stage.name}.{mutant.name}", contents, work)


def _try_mutant(context: Context, stage: Stage, tests: list[TestSpec], mutant: Mutant) -> Outcome:
    folder, title = context.folder("mutants", stage.name, mutant.name), mutant.title(stage)
    try:
        source = write_mutated(stage, mutant, folder)
        brief = RunOptions(context.seed, brief=True)  # that more bodies break a claim would show nothing more
        report, log = grade(context, stage, source, folder, needed(mutant, tests, context.everything), brief)
    except LabError as error:
        return Outcome.of(describe(title, str(error)))
    problems = faults(mutant, report)
    expected = mutant.killed_by[1:]  # what these say does not matter; it is in the log
    failed = [r for r in report.results if r.status is not Status.PASSED and r.spec.name not in expected]
    text = "\n".join([*problems, "", describe_tests(failed)])
    return Outcome.of(describe(title, text, log) if problems else "")


def needed(mutant: Mutant, tests: list[TestSpec], everything: bool) -> list[TestSpec]:
    """The tests to run on this mutant: those that kill it. All, if it claims something about all of them; that no other
    test fails is looked at with ALL=1 only, which takes twice as long."""
    killers = [spec for spec in tests if spec.name in mutant.killed_by]
    says_all = mutant.score is not None or (everything and (mutant.only or mutant.loses is not None))
    about_all = says_all or len(killers) < len(mutant.killed_by)
    return tests if about_all else killers


def write_mutated(stage: Stage, mutant: Mutant, folder: Path) -> Path:
    """Writes a copy of the solution's folder with the mistake built in; returns its main source."""
    for path in code_of(stage):
        shutil.copyfile(path, folder / path.name)
    command = ["git", "apply", "-p3", "--whitespace=nowarn", "-"]  # -p3: a/solutions/<stage>/name.cpp is name.cpp here
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}  # no repository: paths are the folder's
    done = subprocess.run(command, cwd=folder, env=alone, input=mutant.diff, capture_output=True, text=True)
    if done.returncode:
        raise LabError(
            f"no longer fits solutions/{stage.name}; make it anew from the files as they are.\n{done.stderr}"
        )
    return folder / solution_of(stage).name
