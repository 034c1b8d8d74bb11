"""What a student sees: points per stage and test, the first failures in full, and what to do next."""

from __future__ import annotations

import itertools
import re
import textwrap

from tools.grading.causes import blocks, died
from tools.grading.compiling.compile_errors import fit
from tools.grading.scoring import deductions
from tools.grading.scoring.results import Report, StageReport, Status, TestResult
from tools.grading.stages import Stage, all_stages, make_command, short_paths
from tools.grading.terminal import Terminal
from tools.setup.columns import fold, fold_command
from tools.setup.toolchain import ROOT

FAILURES_IN_FULL = 2
LINES_IN_FULL = 40
BAR = 20
LONGEST_CLAIM = 52  # characters of a test's name
ROOM_FOR_POINTS_AND_NOTE = 32  # columns beside a claim
_FRAME = "  │ "
_DRAWN = re.compile(r"simulated time|all-reduce|reduce-scatter|all-gather")  # of order, counts and time
_MARKS = {
    Status.PASSED: ("✔", "green"),
    Status.FAILED: ("✘", "red"),
    Status.NOT_JUDGED: ("·", "yellow"),
    Status.TODO: ("○", "yellow"),
    Status.SKIPPED: ("–", "cyan"),
    Status.NOT_RUN: ("–", "dim"),
}


class Scorecard:
    def __init__(self, terminal: Terminal, report: Report, verbose: bool) -> None:
        self._terminal = terminal
        self._report = report
        self._verbose = verbose
        self._print = terminal.print
        self._paint = terminal.paint
        self._width = terminal.width
        self._column = min(LONGEST_CLAIM, self._width - ROOM_FOR_POINTS_AND_NOTE)
        self._last_reason = ""  # why a test was not judged: often as the one before

    def heading(self) -> None:
        report = self._report
        watched = f", SANITIZE={report.sanitize}: no grade" if report.sanitize else ""
        details = f"{report.impl}, {report.device}, seed {report.seed}{watched}"
        self._print(f"{self._paint('ddp-lab', 'bold')}  {self._paint(details, 'dim')}")

    def running(self, stage: StageReport, result: TestResult) -> None:
        done = len(stage.results) - stage.count(Status.NOT_RUN)
        self._terminal.status(f"{stage.stage.title}: {done}/{len(stage.results)} {result.spec.title}")

    def again(self, text: str) -> None:
        """Of what failed last, before the rest is run."""
        first, *more = text.splitlines()[:LINES_IN_FULL] or [""]
        if first:
            self._print(f"\n{self._paint(first, 'bold')}")
        if more:
            self._framed("\n".join(more))

    def stage(self, stage: StageReport) -> None:
        self._print()
        points = f"{stage.score:g} / {stage.max_score:g}"
        colour = "green" if stage.score == stage.max_score else "bold"
        title = self._paint(f"{stage.stage.title:<{self._column + 3}}", "bold")
        bar = self._paint(_bar(stage.score, stage.max_score, self._width - self._column - 22), colour)
        self._print(f"{title}  {self._paint(f'{points:>7}', colour)}  {bar}{stage.seconds:.1f} s")
        if stage.build_error:
            self._print(f"  {self._paint(f'{stage.problem}, so none of its tests ran:', 'red')}")
            self._print(_indent(fit(stage.build_error, self._width - len(_FRAME)), _FRAME))
            return
        self._last_reason = ""
        for result in stage.results:
            self._test(stage.stage, result)
        if self._verbose and stage.output:
            self._print(self._paint("  what the ranks printed:", "dim"))
            self._framed(stage.output.rstrip())

    def _framed(self, text: str) -> None:
        self._print(_indent(fold(text, self._width - len(_FRAME)), _FRAME))

    def _below(self, text: str, *styles: str) -> None:
        """Something about the test above."""
        for line in fold(_indent(text, 6 * " "), self._width).splitlines():
            self._print(self._paint(line, *styles))

    def _test(self, stage: Stage, result: TestResult) -> None:
        mark, colour = _MARKS[result.status]
        points = f"{result.score:g}/{result.spec.points:g}"
        *above, claim = textwrap.wrap(result.spec.title, self._column)
        note, reason = self._note(stage, result)
        for number, line in enumerate([*above, f"{claim:<{self._column}} {points:>8}  "]):
            sign = self._paint(mark, colour) if number == 0 else " "
            self._print(f"  {sign} {line}{self._paint(note, 'dim') if number == len(above) else ''}")
        if reason and reason != self._last_reason:
            self._below(reason, "dim" if result.status is Status.PASSED else colour)
        self._last_reason = reason
        for text in (text for text in result.notes if text != reason) if self._verbose else []:
            self._below(text, "dim")

    def _note(self, stage: Stage, result: TestResult) -> tuple[str, str]:
        """A word at the end of the test's line, and what is said below it."""
        if result.status is Status.TODO:
            line = self._todo(stage, result).partition(":")[2]
            return f"TODO line {line}" if line else "TODO", ""
        if result.status is Status.SKIPPED:
            return "skipped", f"skipped: {' '.join(result.notes) or 'no reason given'}"
        if result.status is Status.NOT_JUDGED:
            return "", result.failures[0].splitlines()[0] if result.failures else "not judged"
        without = next((text for text in result.notes if text.startswith(deductions.WITHOUT)), "")
        return "not run" if result.status is Status.NOT_RUN else f"{result.seconds:.2f} s", without

    def _todo(self, stage: Stage, result: TestResult) -> str:
        return todo_place(stage, self._report.impl, "\n".join(result.failures))

    def summary(self, page: str = "") -> None:
        """`page`: where the same is shown with pictures, or why it is not."""
        self._failures()
        self._not_run()
        self._print()
        report = self._report
        if report.sanitize:
            passed = sum(result.status is Status.PASSED for result in report.results)
            return self._print(f"{passed} of {len(report.results)} tests passed.")
        sums, colour = report.sums, "green" if report.full_marks() else "bold"
        if sums.most or not sums.most_of_extension:
            total = f"Total  {sums.score:g} / {sums.most:g} points"
            self._print(self._paint(total, "bold", colour))
        if sums.most_of_extension:
            total = f"Extension  {sums.extension:g} / {sums.most_of_extension:g} points"
            self._print(self._paint(total, "bold", colour))
        if page:
            self._print(self._paint(fold(page, self._width), "dim"))
        self._print(fold(self._next_step(), self._width))

    def _failures(self) -> None:
        failures = [
            (report.stage, block)
            for report in self._report.stages
            if not report.build_error
            for block in blocks(result for result in report.results if result.status is Status.FAILED)
        ]
        failures.sort(key=lambda failure: not died(failure[1][0]))
        in_full = len(failures) if self._verbose else FAILURES_IN_FULL
        for stage, block in failures[:in_full]:
            self._failure(stage, block)
        if more := sum(len(block) for _, block in failures[in_full:]):
            self._print(f"\n{more} more failed; one at a time:")
        for stage, block in failures[in_full:]:
            self._below("".join(block[0].failures).partition("\n")[0], "dim")
            self._others(block)
            self._print(f"  {fold_command(again(self._report, stage, block[0]), self._width, 2)}")

    def _others(self, block: list[TestResult]) -> None:
        """The tests that fail for the reason above."""
        if block[1:]:
            titles = "; ".join(result.spec.title for result in block[1:])
            self._below(f"For the same reason {len(block) - 1} more fail{'s' * (len(block) == 2)}: {titles}")

    def _failure(self, stage: Stage, block: list[TestResult]) -> None:
        result = block[0]
        place = f"{short_paths(result.spec.file)}:{result.spec.line}"
        title = f"{_MARKS[Status.FAILED][0]} {result.spec.title}"
        gap = "  " if len(title) + 2 + len(place) <= self._width else "\n  "
        self._print(f"\n{self._paint(title, 'bold', 'red')}{gap}{self._paint(place, 'dim')}")
        text = "\n\n".join(failure.rstrip() for failure in result.failures) or "(the test gives no reason)"
        lines = _collapse(text.splitlines())
        if len(lines) > LINES_IN_FULL and not self._verbose:
            lines = [*lines[:LINES_IN_FULL], f"[... {len(lines) - LINES_IN_FULL} more lines with VERBOSE=1 ...]"]
        self._framed("\n".join(lines))
        self._others(block)
        self._print(f"  hint   {self._hint(stage, result)}")
        self._print(f"  again  {fold_command(again(self._report, stage, result), self._width, 9)}")
        if "died: signal" in text and not self._report.sanitize:
            command = f"{again(self._report, stage, result)} SANITIZE=address   # names the line that misuses memory"
            self._print(f"  found  {fold_command(command, self._width, 9)}")
        if _DRAWN.search(text):
            command = f"{again(self._report, stage, result)} TRACE=step.json   # opens in https://ui.perfetto.dev"
            self._print(f"  drawn  {fold_command(command, self._width, 9)}")

    def _hint(self, stage: Stage, result: TestResult) -> str:
        """The command; a comment of the shell says that there is a second hint, where the line has room."""
        command, more = make_command("hint", stage, test=result.spec.name), "   # LEVEL=2 says more"
        room = 9 + len(command) + len(more) <= min(self._width, 100)
        return command + self._paint(more, "dim") if room else fold_command(command, self._width, 9)

    def _not_run(self) -> None:
        """Why tests did not run, once per stage: it is the same for all its tests."""
        for stage in self._report.stages:
            reasons = {"\n".join(result.failures) for result in stage.results if result.status is Status.NOT_RUN}
            for reason in reasons - {""}:
                self._print(f"\n{stage.stage.title}, {stage.count(Status.NOT_RUN)} of {len(stage.results)} tests:")
                self._framed(reason)

    def _next_step(self) -> str:
        report = self._report
        if not report.stages:
            return "Nothing was graded: there are no graded tests here yet."
        if report.full_marks():
            return self._after_full_marks()
        for stage in report.stages:
            if step := self._next_step_of(stage):
                return f"Next: {step}"
        return "No full marks: what was skipped or did not run is not passed."

    def _after_full_marks(self) -> str:
        last = self._report.stages[-1].stage
        following = [stage for stage in all_stages() if stage.name > last.name and stage.has_tests()]
        if self._report.partial:
            return f"Passed. The whole stage: {make_command('test', last, self._report.impl)}"
        if following:
            return f"Full marks. Next: assignments/{following[0].name}/README.md"
        alone = last if len(self._report.stages) == 1 else None
        return f"Full marks. Next: see it measured, {make_command('figures', alone, self._report.impl)}"

    def _next_step_of(self, stage: StageReport) -> str:
        folder = f"{self._report.impl}/{stage.stage.name}"
        if stage.build_error:
            return f"{folder} {stage.problem}; what is wrong is said above."
        todo = self._first_todo(stage)
        if todo and not stage.score and not stage.count(Status.FAILED):
            return f"begin with assignments/{stage.stage.name}/README.md; the code goes into {todo}"
        for result in sorted(stage.results, key=lambda result: not died(result)):
            if result.status is Status.FAILED:
                again = make_command("test", stage.stage, self._report.impl, device=self._report.device)
                return f"fix '{result.spec.title}' in {folder}, then {again}"
        return f"{todo} is still to do." if todo else ""

    def _first_todo(self, stage: StageReport) -> str:
        undone = [result for result in stage.results if result.status is Status.TODO]
        places = {self._todo(stage.stage, result) for result in undone}
        return min(places, key=lambda place: [place.split(":")[0], int(place.partition(":")[2] or 0)], default="")


def again(report: Report, stage: Stage, result: TestResult) -> str:
    """What to type to repeat one test of a run."""
    choices = {"test": result.spec.name, "seed": report.seed}
    return make_command("test", stage, report.impl, **choices, device=report.device, sanitize=report.sanitize)


def todo_place(stage: Stage, impl: str, failure: str) -> str:
    """File and line of the stub that wrote this failure; the file alone if no line has its text."""
    sources = stage.sources(impl)
    for source in sources:
        for number, line in enumerate(source.read_text(errors="replace").splitlines(), start=1):
            found = re.search(r'TODO\(student\):[^"\\]*', line)
            if found and found[0] in failure:
                return f"{source.relative_to(ROOT)}:{number}"
    return str(sources[0].relative_to(ROOT)) if sources else f"{impl}/{stage.name}"


def _bar(score: float, max_score: float, room: int) -> str:
    """With a gap behind it; nothing if there is no room."""
    length = min(BAR, room)
    filled = int(length * score / max_score) if max_score else 0
    return "█" * filled + "░" * (length - filled) + "  " if length >= 8 else ""


def _collapse(lines: list[str]) -> list[str]:
    """Replaces a run of equal lines by one of them and their number."""
    shown = []
    for line, equal in itertools.groupby(lines):
        count = len(list(equal))
        shown += [line] * count if count < 4 else [line, f"[... {count - 1} more lines like this ...]"]
    return shown


def _indent(text: str, prefix: str) -> str:
    return "\n".join((prefix + line).rstrip() for line in text.splitlines())
