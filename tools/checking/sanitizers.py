"""Steps of `make check ALL=1`, or alone: make check SANITIZE=address and SANITIZE=thread.

All of the lab's own code that a test runs (common, solutions, tests) is built with the sanitizer. The solutions then
get full marks, the harness's tests pass, and nothing is reported, by whatever process. First, mistakes on purpose in
tests/harness/sanitizer_test.cpp must be reported, or silence would mean nothing. libtorch is not built with it, and not
looked into, but its memory comes from the sanitizer, so that what touches freed memory of libtorch's is caught; what
else follows stands in thread_sanitizer.supp. Leaks are not reported: the ranks end without cleaning up.

AddressSanitizer, with which UndefinedBehaviorSanitizer shares a build, watches the variants (tests/variants) as well,
and a mutant with a line `Sanitizer: <kind of report>` must die of such a report: tools/checking/mutants.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tools.checking import mutants
from tools.checking.context import CORES, Context, Outcome, describe, graded_stages
from tools.checking.in_place import graded_tests
from tools.checking.mutants import Mutant
from tools.checking.own_tests import run_shard
from tools.checking.second_build import grade_solutions, second_build, stage_targets
from tools.checking.variants import Variant, grade_variant, variants_of
from tools.grading.other_ways import sanitizer_reports
from tools.grading.other_ways.sanitizer_reports import Sanitizer, found, is_installed, no_reports
from tools.grading.running.runner import RunOptions

MISTAKES = "tests/harness/sanitizer_test.cpp"
_KIND = re.compile(r"AddressSanitizer: ([\w-]+)")
SUPPRESSIONS = Path(__file__).with_name("thread_sanitizer.supp")


@dataclass(frozen=True, eq=False)
class Watcher(Sanitizer):
    mistakes: Mapping[str, str] = field(default_factory=dict)  # tests that make one on purpose, and how it is reported
    cannot_run: Mapping[str, str] = field(default_factory=dict)  # tests of the harness, and why
    variants: bool = False  # whether it watches these, too, and mutants die of it


ADDRESS = Watcher(
    **vars(sanitizer_reports.ADDRESS),
    mistakes={"FindsAUseAfterFreeInARank": "heap-use-after-free", "FindsAnOverflowInARank": "signed integer overflow"},
    cannot_run={
        "Faults.OutOfMemorySaysHowMuchWasAskedFor": "AddressSanitizer's operator new ends the process",
        "RankReports.ExceptionsNameTheirPlaceAndOperator": "clang 19 then writes no name of an inlined lambda",
    },
    variants=True,
)
# Accesses that libtorch makes by functions that are looked at, as memcpy(), are ignored.
# exitcode: a report is no failure of the process, which goes on, so that all are found.
THREAD = Watcher(
    "thread",
    "thread",
    "ThreadSanitizer",
    "tsan",
    {
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:exitcode=0:allocator_may_return_null=1:history_size=4"
        f':suppressions="{SUPPRESSIONS}"'
    },
    mistakes={"FindsARaceInARank": "data race"},
    cannot_run={
        "ForkRanks.StackOverflowNamesThePlace": "ThreadSanitizer's own record of calls overflows first",
        "ForkRanks.EndlessLoopIsStoppedAtTheDeadline": "ThreadSanitizer delivers signals only at calls that it knows",
        "Faults.OutOfMemorySaysHowMuchWasAskedFor": "ThreadSanitizer's operator new ends the process",
    },
)


def check(sanitizer: Watcher, context: Context) -> Outcome:
    """Correct code passes in a build with it, and it reports what it should, and nothing else."""
    if not is_installed(sanitizer, context.toolchain.cxx):
        return Outcome(skipped=[f"{context.toolchain.cxx} has no {sanitizer.title} here"])
    targets = [*stage_targets(), "tests_harness"]
    options = [f"-DSANITIZE={sanitizer.flag}"]
    other, failure = second_build(context, f"sanitized_by_{sanitizer.name}", targets, options)
    failure = failure or _missed(other, sanitizer)
    if failure:
        return Outcome.of(failure)
    reports = no_reports(other.folder("sanitizer") / "report")
    outcome = _run_everything(other, sanitizer, sanitizer.environment(reports))
    for (_, *places), (text, path) in found(reports).items():
        outcome.add(describe(f"SANITIZE={sanitizer.name}: {', '.join(places)}", text, path))
    return outcome


def _run_everything(other: Context, sanitizer: Watcher, environment: dict[str, str]) -> Outcome:
    slow = RunOptions(other.seed, deadline_s=sanitizer_reports.DEADLINE_S, environment=environment)
    only = {"GTEST_FILTER": f"-{':'.join(sanitizer.cannot_run)}"}
    outcome = grade_solutions(other, slow, untimed=True)
    outcome.skipped += [f"{name}: {reason}" for name, reason in sanitizer.cannot_run.items()]
    harness = partial(run_shard, other, "tests_harness", env={**environment, **only})
    trials = [partial(harness, index) for index in range(CORES)]
    for stage in graded_stages() if sanitizer.variants else []:
        dying = [mutant for mutant in mutants.load(stage, outcome) if mutant.sanitizer]
        trials += [partial(_try_in_place, other, sanitizer, slow, each) for each in (*variants_of(stage), *dying)]
    return outcome.take(other.each(lambda trial: trial(), trials))


def _missed(other: Context, sanitizer: Watcher) -> str:
    """What to say if a mistake on purpose is not reported; empty if all are."""
    for test, kind in sanitizer.mistakes.items():
        reports, log = no_reports(other.folder("sanitizer") / "mistake"), other.folder("sanitizer") / "mistake.log"
        only = ["--gtest_also_run_disabled_tests", f"--gtest_filter=Sanitizer.DISABLED_{test}"]
        command = [str(other.build_dir / "bin" / "tests_harness"), *only]
        _, text = other.run(command, log, sanitizer.environment(reports))
        texts = [text for text, _ in found(reports).values()]
        if not any(kind in text and MISTAKES in text for text in texts):
            title = f"SANITIZE={sanitizer.name} does not report the {kind} in {MISTAKES}; nothing else was run"
            advice = ["sudo sysctl vm.mmap_rnd_bits=28 lets it start"] if "unexpected memory mapping" in text else []
            return describe(title, "\n".join([*texts, text[-4000:], *advice]), log)
    return ""


def _try_in_place(other: Context, sanitizer: Watcher, slow: RunOptions, entry: Mutant | Variant) -> Outcome:
    if (compiled := entry.compile(other)).failures:
        return compiled
    return _check_mutant(other, sanitizer, entry) if isinstance(entry, Mutant) else grade_variant(other, slow, entry)


def _check_mutant(other: Context, sanitizer: Watcher, mutant: Mutant) -> Outcome:
    """One that only a sanitizer sees dies of it."""
    reports = no_reports(other.folder("sanitizer") / f"{mutant.stage.name}.{mutant.name}")
    slow = RunOptions(other.seed, deadline_s=sanitizer_reports.DEADLINE_S, environment=sanitizer.environment(reports))
    tests = graded_tests(other, mutant.stage)
    _, log = mutant.grade(other, mutants.needed(mutant, tests, everything=False) or tests, slow)
    kinds = {kind for text, _ in found(reports).values() for kind in _KIND.findall(text)}
    said = f"AddressSanitizer should report {mutant.sanitizer}, and reports {', '.join(sorted(kinds)) or 'nothing'}"
    return Outcome.of("" if mutant.sanitizer in kinds else describe(mutant.title, said, log))
