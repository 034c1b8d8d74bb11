"""Steps of `make check ALL=1`, or alone: make check SANITIZE=undefined and SANITIZE=thread.

All of the lab's own code that a test runs (common, solutions, tests) is built with the sanitizer. The solutions then
get full marks, the harness's tests pass, and nothing is reported, by whatever process. First, a mistake on purpose in
tests/harness/sanitizer_test.cpp must be reported, or silence would mean nothing. libtorch is not built with it, and not
looked into; what follows from that stands in thread_sanitizer.supp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tools.checking.context import CORES, Context, Outcome, describe
from tools.checking.own_tests import run_shard
from tools.checking.sanitizer import runtime
from tools.checking.second_build import grade_solutions, second_build, stage_targets
from tools.grading.runner import RunOptions
from tools.setup.toolchain import ROOT

_DEADLINE_S = 60.0  # for a group of ranks, which is several times slower; speed is not judged here
MISTAKES = "tests/harness/sanitizer_test.cpp"
_PLACE = rf"{re.escape(str(ROOT))}/(?P<place>(?!\.venv/)[^\s:()]+:\d+)(?::\d+)?(?: \(|$)"
_FRAME = re.compile(rf"^ +#\d+ (?:0x\w+ in )?(?P<function>.*?) {_PLACE}")
_CHANGING = re.compile(r"( at)? 0x[0-9a-f]+| \(\w*id=\d+[^)]*\)")  # addresses, process and thread numbers
_FRAMES_SHOWN = 3
_WIDTH = 76
SUPPRESSIONS = Path(__file__).with_name("thread_sanitizer.supp")


@dataclass(frozen=True, eq=False)
class WholeLabSanitizer:
    """A sanitizer that the compiler calls `name`."""

    name: str
    title: str
    runtime: str  # what clang calls its library
    variable: str  # where it looks for its options
    options: str
    mistake: str  # the test that makes a mistake on purpose
    kind: str  # how that is reported
    cannot_run: Mapping[str, str] = field(default_factory=dict)  # tests of the harness, and why

    def environment(self, reports: Path) -> dict[str, str]:
        return {self.variable: f'{self.options}:log_path="{reports}"'}


UNDEFINED = WholeLabSanitizer(
    "undefined",
    "UndefinedBehaviorSanitizer",
    "ubsan_standalone",
    "UBSAN_OPTIONS",
    "print_stacktrace=1",
    "FindsAnOverflowInARank",
    "signed integer overflow",
)
# Accesses that libtorch makes by functions that are looked at, as memcpy(), are ignored.
# exitcode: a report is no failure of the process, which goes on, so that all are found.
THREAD = WholeLabSanitizer(
    "thread",
    "ThreadSanitizer",
    "tsan",
    "TSAN_OPTIONS",
    "ignore_noninstrumented_modules=1:exitcode=0:allocator_may_return_null=1:history_size=4"
    f':suppressions="{SUPPRESSIONS}"',
    "FindsARaceInARank",
    "data race",
    {
        "ForkRanks.StackOverflowNamesThePlace": "ThreadSanitizer's own record of calls overflows first",
        "ForkRanks.EndlessLoopIsStoppedAtTheDeadline": "ThreadSanitizer delivers signals only at calls that it knows",
        "Faults.OutOfMemorySaysHowMuchWasAskedFor": "ThreadSanitizer's operator new ends the process",
    },
)


def check(sanitizer: WholeLabSanitizer, context: Context) -> Outcome:
    """Solutions and the harness's tests pass in a build with it, and it reports what it should, and nothing else."""
    if not runtime(context, sanitizer.runtime):
        return Outcome(skipped=[f"{context.toolchain.cxx} has no {sanitizer.title} here"])
    targets = [*stage_targets(), "tests_harness"]
    options = [f"-DSANITIZE={sanitizer.name}"]
    other, failure = second_build(context, f"sanitized_by_{sanitizer.name}", context.toolchain.cxx, targets, options)
    failure = failure or _missed(other, sanitizer)
    if failure:
        return Outcome.of(failure)
    reports = _no_reports(other, "report")
    environment = sanitizer.environment(reports)
    slow = RunOptions(other.seed, deadline_s=_DEADLINE_S, environment=environment)
    only = {"GTEST_FILTER": f"-{':'.join(sanitizer.cannot_run)}"}
    harness = partial(run_shard, other, "tests_harness", env={**environment, **only})
    outcome = grade_solutions(other, slow, untimed=True).take(other.each(harness, range(CORES)))
    outcome.skipped += [f"{name}: {reason}" for name, reason in sanitizer.cannot_run.items()]
    for (_, *places), (text, path) in found(reports).items():
        outcome.add(describe(f"SANITIZE={sanitizer.name}: {', '.join(places)}", text, path))
    return outcome


def _missed(other: Context, sanitizer: WholeLabSanitizer) -> str:
    """What to say if the mistake on purpose is not reported; empty if it is."""
    reports, log = _no_reports(other, "mistake"), other.folder("sanitizer") / "mistake.log"
    test = ["--gtest_also_run_disabled_tests", f"--gtest_filter=Sanitizer.DISABLED_{sanitizer.mistake}"]
    command = [str(other.build_dir / "bin" / "tests_harness"), *test]
    _, text = other.run(command, log, sanitizer.environment(reports))
    texts = [text for text, _ in found(reports).values()]
    if any(sanitizer.kind in text and MISTAKES in text for text in texts):
        return ""
    title = f"SANITIZE={sanitizer.name} does not report the {sanitizer.kind} in {MISTAKES}; nothing else was run"
    advice = ["sudo sysctl vm.mmap_rnd_bits=28 lets it start"] if "unexpected memory mapping" in text else []
    return describe(title, "\n".join([*texts, text[-4000:], *advice]), log)


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
    """What was found, with the lab's innermost places in each stack; and what tells it from others: the kind, and the
    innermost place in each of the two stacks that met."""
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
    return "\n".join(lines), (*lines[:1], *innermost[:2])
