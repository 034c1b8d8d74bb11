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

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tools.checking import mutants
from tools.checking.context import CORES, Context, Outcome, describe, graded_stages
from tools.checking.in_place import grade, graded_tests
from tools.checking.mutants import Mutant
from tools.checking.own_tests import run_shard
from tools.checking.second_build import grade_solutions, second_build, stage_targets
from tools.checking.variants import grade_variant, variants_of
from tools.grading.runner import RunOptions
from tools.grading.stages import Stage
from tools.setup.toolchain import ROOT, LabError

_DEADLINE_S = 60.0  # for a group of ranks, which is several times slower; speed is not judged here
MISTAKES = "tests/harness/sanitizer_test.cpp"
_PLACE = rf"{re.escape(str(ROOT))}/(?P<place>(?!\.venv/)[^\s:()]+:\d+)(?::\d+)?(?: \(|$)"
_FRAME = re.compile(rf"^ +#\d+ (?:0x\w+ in )?(?P<function>.*?) {_PLACE}")
# Addresses, process and thread numbers.
_CHANGING = re.compile(r"^==\d+==|( on address| at pc| bp| sp| at)? 0x[0-9a-f]+| \(\w*id=\d+[^)]*\)")
_KIND = re.compile(r"AddressSanitizer: ([\w-]+)")
_FRAMES_SHOWN = 3
_WIDTH = 76
SUPPRESSIONS = Path(__file__).with_name("thread_sanitizer.supp")


@dataclass(frozen=True, eq=False)
class Sanitizer:
    name: str
    flag: str  # what the compiler calls it, after -fsanitize=
    title: str
    runtime: str  # what clang calls its library
    options: Mapping[str, str]  # by the variable that it looks for them in
    mistakes: Mapping[str, str]  # tests that make a mistake on purpose, and how it is reported
    cannot_run: Mapping[str, str] = field(default_factory=dict)  # tests of the harness, and why
    variants: bool = False  # whether it watches these, too, and mutants die of it

    def environment(self, reports: Path) -> dict[str, str]:
        return {variable: f'{options}:log_path="{reports}"' for variable, options in self.options.items()}


ADDRESS = Sanitizer(
    "address",
    "address,undefined",
    "AddressSanitizer and UndefinedBehaviorSanitizer",
    "asan",
    {
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1:print_legend=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    },
    {"FindsAUseAfterFreeInARank": "heap-use-after-free", "FindsAnOverflowInARank": "signed integer overflow"},
    {"Faults.OutOfMemorySaysHowMuchWasAskedFor": "AddressSanitizer's operator new ends the process"},
    variants=True,
)
# Accesses that libtorch makes by functions that are looked at, as memcpy(), are ignored.
# exitcode: a report is no failure of the process, which goes on, so that all are found.
THREAD = Sanitizer(
    "thread",
    "thread",
    "ThreadSanitizer",
    "tsan",
    {
        "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:exitcode=0:allocator_may_return_null=1:history_size=4"
        f':suppressions="{SUPPRESSIONS}"'
    },
    {"FindsARaceInARank": "data race"},
    {
        "ForkRanks.StackOverflowNamesThePlace": "ThreadSanitizer's own record of calls overflows first",
        "ForkRanks.EndlessLoopIsStoppedAtTheDeadline": "ThreadSanitizer delivers signals only at calls that it knows",
        "Faults.OutOfMemorySaysHowMuchWasAskedFor": "ThreadSanitizer's operator new ends the process",
    },
)


def check(sanitizer: Sanitizer, context: Context) -> Outcome:
    """Correct code passes in a build with it, and it reports what it should, and nothing else."""
    if not _is_installed(context, sanitizer):
        return Outcome(skipped=[f"{context.toolchain.cxx} has no {sanitizer.title} here"])
    targets = [*stage_targets(), "tests_harness"]
    options = [f"-DSANITIZE={sanitizer.flag}"]
    other, failure = second_build(context, f"sanitized_by_{sanitizer.name}", targets, options)
    failure = failure or _missed(other, sanitizer)
    if failure:
        return Outcome.of(failure)
    reports = _no_reports(other, "report")
    outcome = _run_everything(other, sanitizer, sanitizer.environment(reports))
    for (_, *places), (text, path) in found(reports).items():
        outcome.add(describe(f"SANITIZE={sanitizer.name}: {', '.join(places)}", text, path))
    return outcome


def _is_installed(context: Context, sanitizer: Sanitizer) -> bool:
    clang, gcc = f"libclang_rt.{sanitizer.runtime}-{platform.machine()}.so", f"lib{sanitizer.runtime}.so"
    log = context.folder("sanitizer") / "runtime.log"
    command = [context.toolchain.cxx, f"-print-file-name={clang if context.uses_clang else gcc}"]
    return os.path.isfile(context.run(command, log)[1].strip())  # else it is a bare name


def _run_everything(other: Context, sanitizer: Sanitizer, environment: dict[str, str]) -> Outcome:
    slow = RunOptions(other.seed, deadline_s=_DEADLINE_S, environment=environment)
    only = {"GTEST_FILTER": f"-{':'.join(sanitizer.cannot_run)}"}
    outcome = grade_solutions(other, slow, untimed=True)
    outcome.skipped += [f"{name}: {reason}" for name, reason in sanitizer.cannot_run.items()]
    harness = partial(run_shard, other, "tests_harness", env={**environment, **only})
    trials = [partial(harness, index) for index in range(CORES)]
    for stage in graded_stages() if sanitizer.variants else []:
        trials += [partial(grade_variant, other, slow, stage, source) for source in variants_of(stage)]
        dying = [mutant for mutant in mutants.load(stage, outcome) if mutant.sanitizer]
        trials += [partial(_check_mutant, other, sanitizer, stage, mutant) for mutant in dying]
    return outcome.take(other.each(lambda trial: trial(), trials))


def _missed(other: Context, sanitizer: Sanitizer) -> str:
    """What to say if a mistake on purpose is not reported; empty if all are."""
    for test, kind in sanitizer.mistakes.items():
        reports, log = _no_reports(other, "mistake"), other.folder("sanitizer") / "mistake.log"
        only = ["--gtest_also_run_disabled_tests", f"--gtest_filter=Sanitizer.DISABLED_{test}"]
        command = [str(other.build_dir / "bin" / "tests_harness"), *only]
        _, text = other.run(command, log, sanitizer.environment(reports))
        texts = [text for text, _ in found(reports).values()]
        if not any(kind in text and MISTAKES in text for text in texts):
            title = f"SANITIZE={sanitizer.name} does not report the {kind} in {MISTAKES}; nothing else was run"
            advice = ["sudo sysctl vm.mmap_rnd_bits=28 lets it start"] if "unexpected memory mapping" in text else []
            return describe(title, "\n".join([*texts, text[-4000:], *advice]), log)
    return ""


def _check_mutant(other: Context, sanitizer: Sanitizer, stage: Stage, mutant: Mutant) -> Outcome:
    """One that only a sanitizer sees dies of it."""
    title, reports = mutant.title(stage), _no_reports(other, f"{stage.name}.{mutant.name}")
    folder = other.folder("mutants", stage.name, mutant.name)
    slow = RunOptions(other.seed, deadline_s=_DEADLINE_S, environment=sanitizer.environment(reports))
    tests = graded_tests(other, stage)
    due = mutants.needed(mutant, tests, everything=False) or tests
    try:
        _, log = grade(other, stage, mutants.write_mutated(stage, mutant, folder), folder, due, slow)
    except LabError as error:
        return Outcome.of(describe(title, str(error)))
    kinds = {kind for text, _ in found(reports).values() for kind in _KIND.findall(text)}
    said = f"AddressSanitizer should report {mutant.sanitizer}, and reports {', '.join(sorted(kinds)) or 'nothing'}"
    return Outcome.of("" if mutant.sanitizer in kinds else describe(title, said, log))


def _no_reports(other: Context, name: str) -> Path:
    """Where reports are to go, each process's to a file of its own; older ones are removed."""
    prefix = other.folder("sanitizer") / name
    for old in prefix.parent.glob(f"{name}.*[0-9]"):
        old.unlink()
    return prefix


def found(reports: Path) -> dict[tuple[str, ...], tuple[str, Path]]:
    """Each finding in short, with the file that it stands in, by its innermost places: the same is told once."""
    findings: dict[tuple[str, ...], tuple[str, Path]] = {}
    for path in sorted(reports.parent.glob(f"{reports.name}.*[0-9]")):
        *blocks, rest = re.split(r"^SUMMARY: .*$", path.read_text(errors="replace"), flags=re.MULTILINE)
        for block in blocks or [rest]:  # one that was cut off has no summary
            text, places = summarize(block)
            findings.setdefault(places, (text, path))
    return findings


def summarize(report: str) -> tuple[str, tuple[str, ...]]:
    """What was found, with the lab's innermost places in each stack; and what tells it from others: the kind without
    its numbers, and the innermost place in each of the two stacks that met."""
    lines: list[str] = []
    innermost: list[str] = []
    shown: list[str] = []  # of this stack
    for line in report.splitlines():
        if frame := _FRAME.match(line):
            if frame["place"] not in shown and len(shown) < _FRAMES_SHOWN:
                lines.append(f"    {frame['place']} in {frame['function']}"[:_WIDTH])
                innermost += [] if shown else [frame["place"]]
                shown.append(frame["place"])
        elif line.strip("= ") and not re.match(r" +#\d+ ", line):
            lines.append(_CHANGING.sub("", line).replace(f"{ROOT}/", ""))
            shown = []
    return "\n".join(lines), (*[re.sub(r"\d+", "", line) for line in lines[:1]], *innermost[:2])
