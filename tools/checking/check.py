"""The repository's own tests: make check.

Everything is built; the solutions get full marks and the stubs none; mutants die for the right reason and variants
live; the harness's and the tools' own tests pass; the format is right and the linter silent. The last line counts what
passed and failed; the exit code is 0 only if nothing failed.

A plain run takes a sample of the mutants and of the linter's files. ALL=1 runs all of them, the sanitizers, other
compilers, the oldest PyTorch, a build for arm64 and the slow Python tests. Neither repeats what has passed on the same
content: tools/checking/remembered.py. ONLY="format lint" runs these steps alone; ONLY=machines, which no other run
does, tries the lab on fresh systems.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools.checking import (
    arm64,
    claims,
    compilers,
    costs,
    formatting,
    includes,
    linting,
    machines,
    mutants,
    own_tests,
    remembered,
    sanitizers,
    variants,
)
from tools.checking.context import CORES, Context, Outcome, describe, describe_tests, graded_stages
from tools.grading import stages, unresolved
from tools.grading.compile_errors import condense
from tools.grading.results import StageReport, Status, TestResult
from tools.grading.stages import Stage, short_paths
from tools.setup import toolchain
from tools.setup.checkout_lock import hold
from tools.setup.progress import ProgressLine, elapsed
from tools.setup.toolchain import LabError, Toolchain

Step = Callable[[Context], Outcome]


def build_everything(context: Context) -> Outcome:
    """The library, all tests, benchmarks, stubs and solutions."""
    tools, log = context.toolchain, context.folder() / "build.log"
    command = [tools.cmake, "--build", tools.build_dir, "--parallel", str(CORES), "--", "-k0"]
    code, text = context.run(command, log, on_line=lambda line: context.show(line[:70]))
    failure = describe("The build", condense(text), log) if code else ""
    if not failure and (missing := unresolved.missing_in(context.build_dir)):
        failure = describe("What is built lacks what nothing defines", "\n".join(missing))
    return Outcome.of(failure)


def check_solutions(context: Context) -> Outcome:
    """Each test passes on the solution; a test that this machine cannot run counts as skipped, not as passed."""
    return Outcome().take(context.each(partial(_grade, context, "solutions", _judge_solution), graded_stages()))


def check_stubs(context: Context) -> Outcome:
    """Each test fails on the stub with its TODO, and nothing crashes."""
    return Outcome().take(context.each(partial(_grade, context, "assignments", _judge_stub), graded_stages()))


def _grade(context: Context, impl: str, judge: Callable[[StageReport], Outcome], stage: Stage) -> Outcome:
    library = context.builder.library(stage, impl)

    def work() -> Outcome:
        report = context.grade(stage, library, context.tests_of(stage))
        if impl == "solutions":
            claims.keep_bodies(context, report)
        return judge(report)

    contents = [library, Path(__file__), *remembered.grading(context, stage)]
    return remembered.outcome_of(context, f"{impl}.{stage.name}", contents, work)


def _judge_solution(report: StageReport) -> Outcome:
    outcome, stage = Outcome(), report.stage
    for result in not_skipped(report, outcome):
        outcome.add("" if result.status is Status.PASSED else describe(stage.name, describe_tests([result])))
    if report.max_score != stage.points:
        outcome.add(f"the tests of {stage.name} add up to {report.max_score:g} points, but it has {stage.points}")
    return outcome


def _judge_stub(report: StageReport) -> Outcome:
    outcome = Outcome()
    for result in not_skipped(report, outcome):
        due = result.status is Status.TODO and "TODO(student)" in "".join(result.failures)
        title = f"{report.stage.name}: on a stub, a test should say TODO"
        outcome.add("" if due else describe(title, describe_tests([result])))
    return outcome


def not_skipped(report: StageReport, outcome: Outcome) -> list[TestResult]:
    """The tests with a verdict. The skipped ones are noted in `outcome`, with their reasons."""
    skipped = [result for result in report.results if result.status is Status.SKIPPED]
    outcome.skipped += [f"{result.spec.name}: {' '.join(result.measured)}" for result in skipped]
    return [result for result in report.results if result not in skipped]


STEPS: dict[str, tuple[str, Step]] = {
    "build": ("Building everything", build_everything),
    "solutions": ("Solutions get full marks", check_solutions),
    "stubs": ("Stubs say what is to do", check_stubs),
    "mutants": ("Mutants die for the right reason", mutants.check_mutants),
    "claims": ("Tables of claims and mutants", claims.check_claims),
    "variants": ("Correct variants get full marks", variants.check_variants),
    "address": (sanitizers.ADDRESS.title, partial(sanitizers.check, sanitizers.ADDRESS)),
    "thread": (sanitizers.THREAD.title, partial(sanitizers.check, sanitizers.THREAD)),
    "compilers": ("Stages built by other compilers", compilers.check_compilers),
    "torch": ("Stages built on the oldest PyTorch", compilers.check_oldest_torch),
    "arm64": ("Everything built for arm64", arm64.check_arm64),
    "harness": ("Tests of the harness, in C++", own_tests.check_harness),
    "python": ("Tests of the tools and figures, in Python", own_tests.check_python),
    "gallery": ("Figures of the gallery", own_tests.check_gallery),
    "benchmarks": ("Benchmarks run without the stages", own_tests.check_unfinished_benchmark),
    "includes": ("Include directions", includes.check_includes),
    "format": ("Format, and Python by ruff", formatting.check_format),
    "lint": ("Linter", linting.check_lint),
    "machines": ("The lab on fresh machines", machines.check_machines),
}

LONG = ("address", "thread", "compilers", "torch", "arm64")  # run with ALL=1 only, or when asked for
APART = ("machines",)  # only when asked for
SANITIZERS = {"address": "address", "undefined": "address", "thread": "thread"}


def main() -> int:
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.default_int_handler)
    try:
        options = parse_arguments()
        return check(toolchain.load(), options)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, stages.BadChoice) else 3
    except KeyboardInterrupt:
        print("\nStopped.", flush=True)
        os._exit(130)  # at once: tools/grading/guard.py ends what other threads still run


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make check", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", action="append", default=[], help=f"just these of {', '.join([*STEPS, 'costs'])}")
    parser.add_argument("--sanitize", choices=SANITIZERS, help="just the step of this sanitizer")
    parser.add_argument("--all", action="store_true", help="also what takes long, and no samples")
    parser.add_argument("--fresh", action="store_true", help="forget what passed in earlier runs")
    parser.add_argument("--seed", default=os.environ.get("SEED"), help="repeats the run that printed it")
    options = parser.parse_args()
    options.only = [stages.choose("ONLY", name, [*STEPS, "costs"]) for names in options.only for name in names.split()]
    options.only += [SANITIZERS[options.sanitize]] if options.sanitize else []
    options.seed = stages.choose_seed(options.seed)
    return options


def check(tools: Toolchain, options: argparse.Namespace) -> int:
    started, total = time.monotonic(), Outcome()
    samples = "everything" if options.all else "a sample of mutants and of files for the linter; ALL=1 for everything"
    print(f"Checking with seed {options.seed} on {CORES} cores: {samples}.", flush=True)
    with hold(Path(tools.build_dir) / "grade" / "lock", "make check"):
        if options.fresh:
            remembered.forget(Path(tools.build_dir))
        for name, (title, step) in STEPS.items():
            if name not in (options.only or by_default(options.all)):
                continue
            outcome = run_step(title, step, tools, options)
            total.take([outcome])
            if name == "build" and outcome.failures:
                break  # no later step could be trusted
    if "costs" in options.only or (options.all and not options.only):
        print("\nMeasured here, and no part of the verdict:")
        for line in costs.measure(tools):
            print(f"  {line}", flush=True)
    print_summary(total, time.monotonic() - started, options.seed)
    return 1 if total.failures else 0


def by_default(everything: bool) -> list[str]:
    left_out = APART if everything else (*APART, *LONG)
    return [step for step in STEPS if step not in left_out]


def run_step(title: str, step: Step, tools: Toolchain, options: argparse.Namespace) -> Outcome:
    line = ProgressLine(title)
    try:
        outcome = step(Context(tools, options.seed, line.show, options.all))
    except (LabError, OSError) as error:
        outcome = Outcome(failures=[f"{title}: {error}"])
    except KeyboardInterrupt:
        line.done("stopped")
        raise
    line.done(counts(outcome))
    for text in outcome.skipped:
        print(f"  skipped: {text}")
    for text in outcome.failures:
        print(f"\n{text}\n")
    sys.stdout.flush()
    return outcome


def counts(outcome: Outcome) -> str:
    parts = [f"{outcome.passed} passed"]
    parts += [f"{outcome.remembered} of them remembered"] if outcome.remembered else []
    parts += [f"{len(outcome.skipped)} skipped"] if outcome.skipped else []
    parts += [f"{len(outcome.failures)} FAILED"] if outcome.failures else []
    return ", ".join(parts)


def print_summary(total: Outcome, seconds: float, seed: int) -> None:
    print()
    for text in total.failures:
        print(f"FAILED  {short_paths(text.splitlines()[0])}")
    if total.failures:
        print(f"Each in full above. The same again: make check SEED={seed}")
    if total.skipped:
        print(f"{len(total.skipped)} skipped, which is not passed.")
    print(f"All in {elapsed(seconds)} minutes.")
    if total.remembered:
        again = "make check FRESH=1 runs all again"
        print(f"{total.remembered} of them remembered from an earlier run of the same content; {again}")
    print(f"{total.passed} passed, {len(total.failures)} failed", flush=True)


if __name__ == "__main__":
    sys.exit(main())
