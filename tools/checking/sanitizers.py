"""The lab's own code under sanitizers: what each must report, what it cannot run, and a build with it.

All code of the lab that a test runs (common, solutions, tests) is built with the sanitizer. Correct code passes and
nothing is reported, by any process. First, mistakes on purpose in tests/common/sanitizer_test.cpp must be reported, or
silence would mean nothing. libtorch is not built with it, but its memory comes from the sanitizer, so that what touches
freed memory of libtorch's is caught; thread_sanitizer.supp has the rest. Leaks are not reported: ranks end without
cleaning up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.checking.context import Context, describe
from tools.checking.mutants import Mutant
from tools.checking.second_build import second_build, stage_targets
from tools.grading.debugging import sanitizer_reports
from tools.grading.debugging.sanitizer_reports import Sanitizer, found, no_reports
from tools.grading.running.runner import RunOptions
from tools.setup.toolchain import LabError

MISTAKES = "tests/common/sanitizer_test.cpp"
SUPPRESSIONS = Path(__file__).with_name("thread_sanitizer.supp")
_KIND = re.compile(r"AddressSanitizer: ([\w-]+)")


@dataclass(frozen=True, eq=False)
class Watcher(Sanitizer):
    mistakes: Mapping[str, str] = field(default_factory=dict)  # tests that make one on purpose, and how it is reported
    cannot_run: Mapping[str, str] = field(default_factory=dict)  # tests of the harness, and why


ADDRESS = Watcher(
    **vars(sanitizer_reports.ADDRESS),
    mistakes={"FindsAUseAfterFreeInARank": "heap-use-after-free", "FindsAnOverflowInARank": "signed integer overflow"},
    cannot_run={
        "Faults.OutOfMemorySaysHowMuchWasAskedFor": "AddressSanitizer's operator new ends the process",
        "RankReports.ExceptionsNameTheirPlaceAndOperator": "clang 19 then writes no name of an inlined lambda",
    },
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


def build(context: Context, sanitizer: Watcher) -> Context:
    """A build with it, which reports each mistake on purpose."""
    targets = [*stage_targets(), "tests_common"]
    other = second_build(context, f"sanitized_by_{sanitizer.name}", targets, [f"-DSANITIZE={sanitizer.flag}"])
    for test, kind in sanitizer.mistakes.items():
        _require_report(other, sanitizer, test, kind)
    return other


def _require_report(other: Context, sanitizer: Watcher, test: str, kind: str) -> None:
    reports, log = no_reports(other.folder("sanitizer") / "mistake"), other.folder("sanitizer") / "mistake.log"
    only = ["--gtest_also_run_disabled_tests", f"--gtest_filter=Sanitizer.DISABLED_{test}"]
    _, text = other.run([str(other.build_dir / "bin/tests_common"), *only], log, sanitizer.environment(reports))
    texts = [text for text, _ in found(reports).values()]
    if not any(kind in text and MISTAKES in text for text in texts):
        advice = ["sudo sysctl vm.mmap_rnd_bits=28 lets it start"] if "unexpected memory mapping" in text else []
        said = "\n".join([*texts, text[-4000:], *advice])
        raise LabError(describe(f"{sanitizer.title} does not report the {kind} in {MISTAKES}", said, log))


class Watched:
    """What one run is told, and what was reported of it."""

    def __init__(self, other: Context, sanitizer: Watcher, name: str) -> None:
        self._reports = no_reports(other.folder("sanitizer") / name)
        self.environment = sanitizer.environment(self._reports)
        deadline = sanitizer_reports.DEADLINE_S
        self.options = RunOptions(other.seed, deadline_s=deadline, environment=self.environment)

    def reported(self) -> str:
        """All reports; empty if there are none."""
        return "\n".join(
            describe(", ".join(places), text, path)
            for (_, *places), (text, path) in found(self._reports).items()
        )  # fmt: skip

    def kinds(self) -> set[str]:
        return {kind for text, _ in found(self._reports).values() for kind in _KIND.findall(text)}


def try_mutant(other: Context, mutant: Mutant, watched: Watched) -> str:
    """Empty if AddressSanitizer reports what the mutant's line `Sanitizer:` says."""
    tests = other.tests_of(mutant.stage)
    killers = [spec for spec in tests if spec.name in mutant.killed_by]
    _, log = mutant.grade(other, killers or tests, watched.options)
    kinds = watched.kinds()
    said = f"AddressSanitizer should report {mutant.sanitizer}, and reports {', '.join(sorted(kinds)) or 'nothing'}"
    return "" if mutant.sanitizer in kinds else describe(mutant.title, said, log)
