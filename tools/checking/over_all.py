"""What a stage's tests say of each of its mutants and variants: how many points they cost, before and after a change.

    make mutants STAGE=02                        all tests, on all mutants and variants
    make mutants STAGE=02 TEST=name              a new test alone: which mutants it kills; it must kill no variant
    make mutants STAGE=02 NAME='one_launch*'     some of them
    make mutants STAGE=02 KEEP=1                 and what each loses is kept, as "before" of the next run

A line is printed as soon as it is known. A library is compiled again only if something in it has changed. Exit code: 1
if a mutant does not die as its lines in tests/mutants say, or a variant loses points.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from tools.checking import mutants
from tools.checking.context import CORES, Context, graded_stages
from tools.checking.in_place import InPlace, variants_of
from tools.checking.mutants import Mutant
from tools.grading import stages
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import Status
from tools.grading.stages import BadChoice, Stage
from tools.grading.terminal import ending_of
from tools.setup import toolchain
from tools.setup.checkout_lock import hold
from tools.setup.toolchain import LabError

Tried = tuple[str, float, list[str], list[str]]  # its name, what it loses, what fails, what is not as it should be


def main() -> int:
    options = _parse_arguments()
    context = Context(toolchain.load(), stages.choose_seed(options.seed))
    with hold(context.build_dir / "grade" / "lock", "make mutants"):
        return max(_try_stage(context, stage, options) for stage in options.stages)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__, allow_abbrev=False)
    parser.add_argument("--stage", default="", help="01 to 07; all by default")
    parser.add_argument("--test", default="", help="a test's name or a pattern; all by default")
    parser.add_argument("--name", default="*", help="a mutant's or variant's name or a pattern; all by default")
    parser.add_argument("--seed", default="", help="repeats a run that printed it")
    parser.add_argument("--keep", action="store_true", help="what each loses is the next run's 'before'")
    options = parser.parse_args()
    options.stages = [stage for stage in stages.find_stages(options.stage) if stage in graded_stages()]
    return options


def _try_stage(context: Context, stage: Stage, options: argparse.Namespace) -> int:
    if failure := context.build([f"tests_{stage.name}", f"solutions_{stage.name}"]):
        raise LabError(failure)
    context.provide_activity(stage)
    tests = stages.match_tests(options.test, [spec.name for spec in context.tests_of(stage)])
    known: list[InPlace] = [*mutants.seen_by_tests(stage), *variants_of(stage)]
    chosen = [each for each in known if fnmatch.fnmatchcase(each.name, options.name)]
    if not tests or not chosen:
        raise BadChoice(f"{stage.name} has no such {'test' if not tests else 'mutant or variant'}")
    file = context.folder("points") / f"{stage.name}.json"
    before: dict[str, float] = json.loads(file.read_text()) if file.exists() and not options.test else {}
    print(f"{stage.name}: {len(tests)} tests on {len(chosen)} mutants and variants, seed {context.seed}", flush=True)
    now, wrong = dict(before), 0
    for name, lost, failed, faults in _all(context, chosen, tests):
        now[name] = lost
        was = f"{before[name]:g} -> " if before.get(name, lost) != lost else ""
        print(f"  {name:<44} {was + format(lost, 'g'):>10}  {', '.join(failed)}", *faults, sep="\n      ! ", flush=True)
        wrong += len(faults) > 0
    print(f"{stage.name}: {wrong or 'none'} not as it should be" + (f"; kept in {file}" if options.keep else ""))
    if options.keep and not options.test:
        file.write_text(json.dumps(now, indent=1))
    return int(wrong > 0)


def _all(context: Context, chosen: list[InPlace], tests: list[str]) -> Iterator[Tried]:
    with ProcessPoolExecutor(CORES) as pool:
        for ended in as_completed([pool.submit(try_one, context, each, tests) for each in chosen]):
            yield ended.result()


def try_one(context: Context, each: InPlace, tests: list[str]) -> Tried:
    specs = [spec for spec in context.tests_of(each.stage) if spec.name in tests]
    try:
        report, _ = each.grade(context, specs, RunOptions(context.seed, brief=isinstance(each, Mutant)))
    except LabError as error:
        return each.name, 0, [], [str(error)]
    failed = [result.spec.name for result in report.results if result.status is Status.FAILED]
    faults = []
    if isinstance(each, Mutant):
        killers = [name for name in each.killed_by if name in tests]
        if killers == list(each.killed_by):
            faults = mutants.faults(each, report, whole=len(specs) == len(context.tests_of(each.stage)))
    else:
        faults = [f"a correct solution fails {name}" for name in failed]
    return each.name, report.max_score - report.score, failed, faults


if __name__ == "__main__":
    sys.exit(ending_of("make mutants", main))
