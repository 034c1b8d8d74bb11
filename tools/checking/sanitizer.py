"""Steps of `make check`: solutions and variants under AddressSanitizer, and mutants that it must catch.

tests/variants/<stage>/<name>.cpp is a complete correct solution, however unusual, and must get full marks. Variants run
under AddressSanitizer if the compiler has it, else without.

Only the stage's library is instrumented: it is the code that a student writes. The test program, the lab's library and
libtorch are not; they get AddressSanitizer's allocator by LD_PRELOAD, so that the stage is also caught if it touches
memory that one of these has freed. Leaks are not reported: the ranks end without cleaning up.

A mutant with a line `Sanitizer: <kind of report>` must die of such a report; see tools/checking/mutants.py. At least
one is needed, or nobody would notice if nothing were found any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tools.checking import mutants
from tools.checking.context import Context, Outcome, describe, describe_tests, graded_stages
from tools.checking.mutants import Mutant
from tools.grading.results import StageReport, Status, TestSpec
from tools.grading.runner import RunOptions
from tools.grading.stages import Stage, short_paths
from tools.setup.toolchain import ROOT, LabError

# A precompiled header fits only if all macros agree; the code here uses none of the sanitizer's.
_FLAGS = ("-fsanitize=address", "-fno-omit-frame-pointer", "-U__SANITIZE_ADDRESS__")
_OPTIONS = "detect_leaks=0:detect_stack_use_after_return=1:print_legend=0"
_KIND = re.compile(r"ERROR: AddressSanitizer: ([\w-]+)")
_HEADING = re.compile(r"^(READ|WRITE) of size|^freed by|^previously allocated by|^0x\w+ is located|^Address 0x\w+ is")
_FRAME = re.compile(rf"^ +#\d+ 0x\w+ in (?P<function>.*) {re.escape(str(ROOT))}/(?P<place>(?!\.venv/)\S+:\d+)$")
_FRAMES_SHOWN = 3
_DEADLINE_S = 60.0  # for a group of ranks, which is several times slower; speed is not judged here


@dataclass(frozen=True)
class Case:
    """A library to be tested. `mutant` is the mutant that it was made from, if any."""

    stage: Stage
    source: Path
    tests: list[TestSpec]
    mutant: Mutant | None = None

    @property
    def title(self) -> str:
        return self.mutant.title(self.stage) if self.mutant else short_paths(str(self.source))


def check_variants(context: Context) -> Outcome:
    """Other correct solutions get full marks."""
    outcome, cases, runtime = Outcome(), [], _runtime(context)
    for stage in graded_stages():
        variants = sorted((ROOT / "tests" / "variants" / stage.name).glob("*.cpp"))
        if len(variants) < 2:
            outcome.add(f"tests/variants/{stage.name} needs at least two correct, unusual solutions")
        cases += [Case(stage, path, mutants.graded_tests(context, stage)) for path in variants]
    return _try_all(context, cases, runtime, outcome)


def check_sanitizer(context: Context) -> Outcome:
    """The solutions pass under AddressSanitizer too, and it catches what it should."""
    outcome, runtime = Outcome(), _runtime(context)
    if not runtime:
        outcome.skipped.append(f"{context.toolchain.cxx} has no AddressSanitizer here (libasan.so)")
        return outcome
    cases = [case for stage in graded_stages() for case in _cases(context, stage, outcome)]
    if not any(case.mutant for case in cases):
        outcome.add("no mutant has the line 'Sanitizer: ...', so nothing shows that AddressSanitizer would notice")
    return _try_all(context, cases, runtime, outcome)


def _runtime(context: Context) -> str:
    """The sanitizer's library; empty if the compiler has none."""
    log = context.folder("sanitizer") / "runtime.log"
    _, text = context.run([context.toolchain.cxx, "-print-file-name=libasan.so"], log)
    return text.strip() if Path(text.strip()).is_absolute() else ""  # a bare name: not found


def _cases(context: Context, stage: Stage, outcome: Outcome) -> list[Case]:
    tests, solution = mutants.graded_tests(context, stage), mutants.solution_of(stage)
    cases = [Case(stage, solution, tests)]
    for mutant in mutants.load(stage, outcome):
        if mutant.sanitizer:
            killers = [spec for spec in tests if spec.name in mutant.killed_by]
            cases.append(Case(stage, solution, killers or tests, mutant))
    return cases


def _try_all(context: Context, cases: list[Case], runtime: str, outcome: Outcome) -> Outcome:
    for problem in context.each(lambda case: _try(context, case, runtime), cases):
        outcome.add(problem)
    return outcome


def _try(context: Context, case: Case, runtime: str) -> str:
    """What is wrong with a case; empty if nothing. `runtime` is AddressSanitizer's library; empty: run without it."""
    name = case.mutant.name if case.mutant else f"{case.source.parent.parent.name}.{case.source.stem}"
    folder = context.folder("sanitizer", case.stage.name, name)
    for old in folder.glob("report.*"):
        old.unlink()
    try:
        source = mutants.write_mutated(case.stage, case.mutant, folder) if case.mutant else case.source
        library = mutants.compile_stage(context, case.stage, source, folder, _FLAGS if runtime else ())
    except LabError as error:
        return describe(case.title, str(error))
    environment = {"LD_PRELOAD": runtime, "ASAN_OPTIONS": f'{_OPTIONS}:log_path="{folder}/report"'}
    options = RunOptions(context.seed, deadline_s=_DEADLINE_S, environment=environment if runtime else {})
    report = context.grade(case.stage, library, case.tests, options)
    log = mutants.write_log(folder, report)
    reports = [path.read_text(errors="replace") for path in sorted(folder.glob("report.*"))]
    problems = missed(case.mutant, reports) if case.mutant else found(report, reports)
    return describe(case.title, problems, log) if problems else ""


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
