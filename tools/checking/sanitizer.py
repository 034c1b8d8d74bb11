"""Steps of `make check`: variants; with ALL=1, solutions and variants under AddressSanitizer, and what it must catch.

tests/variants/<stage>/<name>.cpp is a complete correct solution, however unusual, and must get full marks; with
ALL=1 in shaken worlds, where threads and ranks come in orders that are rare otherwise.

Only the stage's library is instrumented: it is the code that a student writes. The test program, the lab's library and
libtorch are not; they get AddressSanitizer's allocator by LD_PRELOAD, so that the stage is also caught if it touches
memory that one of these has freed. Leaks are not reported: the ranks end without cleaning up.

A mutant with a line `Sanitizer: <kind of report>` must die of such a report; see tools/checking/mutants.py. At least
one is needed, or nobody would notice if nothing were found any more.
"""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.checking import mutants
from tools.checking.context import Context, Outcome, describe, describe_tests, graded_stages
from tools.checking.mutants import Mutant
from tools.checking.remembered import outcome_of
from tools.grading.results import StageReport, Status, TestSpec
from tools.grading.runner import RunOptions
from tools.grading.stages import Stage, short_paths
from tools.setup.toolchain import ROOT, LabError

# The build's precompiled header serves although it was made without the sanitizer: none of the code in it asks whether
# there is one.
_FLAGS = ("-fsanitize=address", "-fno-omit-frame-pointer")
_FLAGS_OF_GCC = (*_FLAGS, "-U__SANITIZE_ADDRESS__")
_FLAGS_OF_CLANG = (*_FLAGS, "-shared-libasan", "-Xclang", "-fno-validate-pch")
_OPTIONS = "detect_leaks=0:detect_stack_use_after_return=1:print_legend=0"
_KIND = re.compile(r"ERROR: AddressSanitizer: ([\w-]+)")
_HEADING = re.compile(r"^(READ|WRITE) of size|^freed by|^previously allocated by|^0x\w+ is located|^Address 0x\w+ is")
_FRAME = re.compile(rf"^ +#\d+ 0x\w+ in (?P<function>.*) {re.escape(str(ROOT))}/(?P<place>(?!\.venv/)\S+:\d+)$")
_FRAMES_SHOWN = 3
_DEADLINE_S = 60.0  # for a group of ranks, which is several times slower; speed is not judged here


@dataclass(frozen=True)
class Sanitizer:
    runtime: str  # AddressSanitizer's library
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """A library to be tested. `mutant` is the mutant that it was made from, if any."""

    stage: Stage
    source: Path
    tests: list[TestSpec]
    mutant: Mutant | None = None

    @property
    def name(self) -> str:
        return self.mutant.name if self.mutant else f"{self.source.parent.parent.name}.{self.source.stem}"

    @property
    def title(self) -> str:
        return self.mutant.title(self.stage) if self.mutant else short_paths(str(self.source))

    @property
    def sources(self) -> list[Path]:
        patch = ROOT / "tests" / "mutants" / self.stage.name / f"{self.name}.patch"
        return [*self.stage.sources("solutions"), patch] if self.mutant else [self.source]


def check_variants(context: Context) -> Outcome:
    """Other correct solutions get full marks."""
    outcome = Outcome()
    for stage in graded_stages():
        cases = _variants(context, stage)
        if len(cases) < 2:
            outcome.add(f"tests/variants/{stage.name} needs at least two correct, unusual solutions")
        outcome.take(_try_all(context, stage, cases, None))
    return outcome


def check_sanitizer(context: Context) -> Outcome:
    """Solutions and variants pass under AddressSanitizer too, and it catches what it should."""
    outcome, sanitizer, mutants_seen = Outcome(), find(context), 0
    if not sanitizer:
        outcome.skipped.append(f"{context.toolchain.cxx} has no AddressSanitizer here")
        return outcome
    for stage in graded_stages():
        cases = [*_variants(context, stage), *_solution_and_mutants(context, stage, outcome)]
        mutants_seen += sum(1 for case in cases if case.mutant)
        outcome.take(_try_all(context, stage, cases, sanitizer))
    if not mutants_seen:
        outcome.add("no mutant has the line 'Sanitizer: ...', so nothing shows that AddressSanitizer would notice")
    return outcome


def find(context: Context) -> Sanitizer | None:
    """The compiler's AddressSanitizer, if it is installed."""
    library = runtime(context, "asan")
    return Sanitizer(library, _FLAGS_OF_CLANG if context.uses_clang else _FLAGS_OF_GCC) if library else None


def runtime(context: Context, name: str) -> str:
    """The library of a sanitizer that clang calls `name`; empty if it is not installed."""
    clang, gcc = f"libclang_rt.{name}-{platform.machine()}.so", f"lib{name.removesuffix('_standalone')}.so"
    log = context.folder("sanitizer") / "runtime.log"
    command = [context.toolchain.cxx, f"-print-file-name={clang if context.uses_clang else gcc}"]
    path = context.run(command, log)[1].strip()
    return path if os.path.isfile(path) else ""  # else a bare name


def _variants(context: Context, stage: Stage) -> list[Case]:
    paths = sorted((ROOT / "tests" / "variants" / stage.name).glob("*.cpp"))
    return [Case(stage, path, mutants.graded_tests(context, stage)) for path in paths]


def _solution_and_mutants(context: Context, stage: Stage, outcome: Outcome) -> list[Case]:
    tests, solution = mutants.graded_tests(context, stage), mutants.solution_of(stage)
    cases = [Case(stage, solution, tests)]
    for mutant in mutants.load(stage, outcome):
        if mutant.sanitizer:
            killers = [spec for spec in tests if spec.name in mutant.killed_by]
            cases.append(Case(stage, solution, killers or tests, mutant))
    return cases


def _try_all(context: Context, stage: Stage, cases: list[Case], sanitizer: Sanitizer | None) -> list[Outcome]:
    surroundings, kind = (
        [*mutants.surroundings(context, stage), repr(sanitizer), str(context.everything)],
        "sanitizer" if sanitizer else "variants",
    )

    def verdict(case: Case) -> Outcome:
        folder = context.folder(kind, stage.name, case.name)
        work = partial(_try, context, case, folder, sanitizer)
        return outcome_of(context, f"{kind}.{stage.name}.{case.name}", [*case.sources, *surroundings], work)

    return context.each(verdict, cases)


def _try(context: Context, case: Case, folder: Path, sanitizer: Sanitizer | None) -> Outcome:
    for old in folder.glob("report.*"):
        old.unlink()
    try:
        source = mutants.write_mutated(case.stage, case.mutant, folder) if case.mutant else case.source
        library = mutants.compile_stage(context, case.stage, source, folder, sanitizer.flags if sanitizer else ())
    except LabError as error:
        return Outcome.of(describe(case.title, str(error)))
    options = RunOptions(context.seed, shaken=context.everything)
    if sanitizer:
        environment = {"LD_PRELOAD": sanitizer.runtime, "ASAN_OPTIONS": f'{_OPTIONS}:log_path="{folder}/report"'}
        options = RunOptions(context.seed, deadline_s=_DEADLINE_S, environment=environment)
    report = context.grade(case.stage, library, case.tests, options)
    log = mutants.write_log(folder, report)
    reports = [path.read_text(errors="replace") for path in sorted(folder.glob("report.*"))]
    problems = missed(case.mutant, reports) if case.mutant else found(report, reports)
    return Outcome.of(describe(case.title, problems, log) if problems else "")


def found(report: StageReport, reports: list[str]) -> str:
    """What was found in a library that should be correct."""
    wrong = [result for result in report.results if result.status not in (Status.PASSED, Status.SKIPPED)]
    if reports:
        names = ", ".join(result.spec.name for result in wrong) or "none"
        return f"{summarize(reports[0])}\nReports in all: {len(reports)}. Tests that fail: {names}"
    return f"is correct, but loses points:\n{describe_tests(wrong)}" if wrong else ""


def missed(mutant: Mutant, reports: list[str]) -> str:
    """Why a mutant was not caught as expected; empty if it was."""
    kinds = sorted({kind for text in reports for kind in _KIND.findall(text)})
    if mutant.sanitizer in kinds:
        return ""
    return f"AddressSanitizer should report {mutant.sanitizer}, and reports {', '.join(kinds) or 'nothing'}"


def summarize(text: str) -> str:
    """The kind of a report, and the lab's innermost places in each of its stacks."""
    lines, shown = [f"AddressSanitizer: {(_KIND.findall(text) or ['a report that cannot be read'])[0]}"], 0
    for line in text.splitlines():
        if _HEADING.match(line):
            lines.append(line)
            shown = 0
        elif (frame := _FRAME.match(line)) and shown < _FRAMES_SHOWN:
            lines.append(f"    {frame['place']} in {frame['function']}")
            shown += 1
    return "\n".join(lines)
