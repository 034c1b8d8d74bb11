"""Grades one submission, a folder or a .zip, as code that nobody trusts, and writes Gradescope's results.json.

The tests, their programs and all that is not the student's come from this checkout, which has to be built (make
autograder makes a tree for that; in a checkout, make test does it). Only each stage's .cpp is taken from the
submission: tools/course/submission.py. The file is replaced as a whole after each test, so that whoever ends this early
keeps what was reached.

Exit code: 0 full marks; 1 less; 2 a choice that does not exist; 3 this checkout or machine cannot grade, and no file is
written; 4 a stage was not graded, and its results say why; 70 a mistake of the grader's own; 128 + n ended by signal n.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from tools.course import hidden
from tools.course.hidden import is_hidden
from tools.course.submission import Submission, collect, wanted_files
from tools.grading.compiling.building import Builder
from tools.grading.compiling.confined import Confined, confined
from tools.grading.grade import end_by_exception_on_signals, mark_build_error
from tools.grading.page import report_page
from tools.grading.running import minimum_activity
from tools.grading.running.runner import RunOptions, run_stage
from tools.grading.running.test_lists import TestLists
from tools.grading.running.waiting_clock import LOOK_S, Look, look, seconds_between
from tools.grading.sandbox.sandbox import make_sandbox
from tools.grading.scorecard import Scorecard
from tools.grading.scoring.results import (
    NOT_HANDED_IN,
    WAS_NOT_GRADED,
    Report,
    StageReport,
    Status,
    TestResult,
    gradescope,
    replace_file,
)
from tools.grading.stages import BadChoice, all_stages, choose_seed
from tools.grading.terminal import Terminal, ending_of
from tools.setup import toolchain
from tools.setup.toolchain import BUILD_DIR
from tools.student import course
from tools.student.course import Course

ALL_S = 220.0  # for the tests of all stages, of which the solutions take 20 on two idle cores


def main() -> int:
    end_by_exception_on_signals()
    return ending_of("grade_submission", _grade_as_asked)


def _grade_as_asked() -> int:
    return minimum_activity.found_out(lambda: run(parse_arguments()).exit_code())


def run(options: argparse.Namespace, alive: bool = True) -> Report:
    """`alive`: ranks have to show what their scenarios are known to do."""
    submission = collect(options.submission)
    if options.keep:
        keep(submission, options.keep)
    grading = Grading(submission, options, alive)
    grading.run()
    return grading.report


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tools.course.grade_submission", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("submission", type=Path, help="a folder, or a .zip such as `make submit` makes")
    parser.add_argument("--out", type=Path, required=True, help="where to write results.json")
    parser.add_argument("--keep", type=Path, help="a folder for what was taken: sources, and answers for the writeup")
    parser.add_argument("--seed", default="", help="of the inputs; default: hidden/seed, else drawn")
    parser.add_argument("--limit", type=float, default=ALL_S, help="seconds for all tests (%(default)g), not counted "
                        "while they wait for a processor; a stage may take its part of what those before it have left"
                        )  # fmt: skip
    options = parser.parse_args(arguments)
    if not options.submission.exists():
        raise BadChoice(f"{options.submission} is not there. Name a folder, or a .zip that `make submit` makes")
    secret = hidden.seed()
    options.secret = secret is not None and not options.seed
    options.seed = secret if options.secret else choose_seed(options.seed)
    return options


def keep(submission: Submission, folder: Path) -> None:
    for name, (stage, path) in wanted_files().items():
        content = (submission.answers if name.endswith(".typ") else submission.sources).get(stage.name)
        if content is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
            for other, text in submission.beside[stage.name].items() if not name.endswith(".typ") else ():
                (folder / path).with_name(other).write_bytes(text)


@dataclass
class Part:
    """What one stage may take, in seconds. `exceeded`: whether it has taken more."""

    allowed: float
    exceeded: bool = False


class Budget:
    """Seconds for several parts, one after the other: each may take its share of what those before it have left. They
    are told by a clock that stands still while what was started waits for a processor."""

    def __init__(self, seconds: float, look: Callable[[], Look] = look, look_s: float = LOOK_S) -> None:
        self._left, self._look, self._look_s = seconds, look, look_s

    @contextlib.contextmanager
    def part(self, parts: int, stopping: threading.Event) -> Iterator[Part]:
        """One of as many parts as are left. Sets `stopping` when it has taken what it may."""
        part, over = Part(self._left / parts), threading.Event()
        watching = threading.Thread(target=self._watch, args=(part, stopping, over, self._look()))
        watching.start()
        try:
            yield part
        finally:
            over.set()
            watching.join()

    def _watch(self, part: Part, stopping: threading.Event, over: threading.Event, before: Look) -> None:
        ends = self._left - part.allowed
        while not over.wait(self._look_s):
            now = self._look()
            self._left -= seconds_between(before, now)
            before = now
            part.exceeded = self._left < ends
            if part.exceeded:
                return stopping.set()


class Discreet(Terminal):
    """Prints what a student may read, whoever reads it."""

    def __init__(self, shown: Shown) -> None:
        super().__init__()
        self._shown = shown

    def print(self, text: str = "") -> None:
        super().print(self._shown.without_seed(text))


class Grading:
    """One run. `report` has what is known so far, as the file has."""

    def __init__(self, submission: Submission, options: argparse.Namespace, alive: bool) -> None:
        self._submission, self._options, self._alive = submission, options, alive
        self._shown = Shown(course.load(), submission, options.secret)
        self._builder = Builder(toolchain.load())
        self._terminal = Discreet(self._shown)
        self.report = Report("assignments", "cpu", options.seed)
        self._scorecard = Scorecard(self._terminal, self.report, verbose=False)

    def run(self) -> None:
        lists = TestLists(BUILD_DIR / "grade")
        for stage in all_stages():
            if stage.has_tests():
                tests = [TestResult(spec) for spec in lists.of(self._builder.program(stage))]
                self.report.stages.append(StageReport(stage, tests))
        minimum_activity.require(stage.stage for stage in self.report.stages if self._alive)
        self._scorecard.heading()
        for note in self._submission.notes:
            self._terminal.print(note)
        self._flush()
        with confined(make_sandbox(self._builder.program(self.report.stages[0].stage))) as place:
            for gap in place.sandbox.gaps:
                self._terminal.print(f"UNTRUSTED=1: {gap}")
            self._compile_all(place)
            self._run_all(place)
        self._flush()
        said = report_page.write(
            self._options.out.absolute().with_name(report_page.FILE), *self._shown.page(self.report)
        )
        self._scorecard.summary(said)

    def _flush(self) -> None:
        text = json.dumps(shown_results(self.report, self._shown), indent=1)
        replace_file(self._options.out.absolute(), text.encode() + b"\n")

    def _compile_all(self, place: Confined) -> None:
        """As many at a time as there are cores; nothing is compiled any more once somebody else's code runs."""
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(functools.partial(self._compile, place), self.report.stages))
        self._flush()

    def _compile(self, place: Confined, report: StageReport) -> None:
        stage, content = report.stage, self._submission.sources.get(report.stage.name)
        names = [path.name for path in stage.sources("assignments")]
        if content is None:
            return mark_build_error(report, f"There is no {' or '.join(names)} in what was handed in.", NOT_HANDED_IN)
        mark_build_error(report, *place.build(stage, {**self._submission.beside[stage.name], names[0]: content}))

    def _run_all(self, place: Confined) -> None:
        runnable = [report.stage for report in self.report.stages if not report.build_error]
        programs = [self._builder.program(stage) for stage in runnable]
        libraries = [place.library(stage) for stage in runnable]
        sandbox = place.sandbox.sealed([*programs, *libraries, *self._builder.common_libraries()])
        budget, parts = Budget(self._options.limit), len(runnable)
        for report in self.report.stages:
            if not report.build_error:
                options = RunOptions(self.report.seed, partial=course.load().partial, sandbox=sandbox,
                                     alive=self._alive, withhold=self._withholds(report))  # fmt: skip
                with budget.part(parts, options.stopping) as part:
                    self._run_one(report, place.library(report.stage), options)
                parts -= 1
                self._say_late(report, part)
                self._flush()
            self._scorecard.stage(report)

    def _withholds(self, report: StageReport) -> bool:
        """What ranks print could tell what students must not know."""
        return self._options.secret or any(is_hidden(result.spec) for result in report.results)

    def _run_one(self, stage: StageReport, library: Path, options: RunOptions) -> None:
        if broken := options.sandbox.broken_seal():
            return mark_build_error(stage, broken, WAS_NOT_GRADED)
        run_stage(self._builder.program(stage.stage), library, stage, options, self._changed)

    def _changed(self, result: TestResult) -> None:
        if result.status is not Status.NOT_RUN:
            self._flush()

    def _say_late(self, stage: StageReport, part: Part) -> None:
        why = f"the tests of this stage took longer than {part.allowed:.0f} s in all"
        for result in stage.results if part.exceeded else []:
            result.failures = [text.replace("interrupted", why) for text in result.failures]


LONGEST_OUTPUT = 20_000  # characters of one test's
SECRET = "(kept secret)"


@dataclass(frozen=True)
class Shown:
    """What of a run is shown to whom. `secret`: the seed is to be read nowhere."""

    course: Course
    submission: Submission
    secret: bool

    def without_seed(self, text: str) -> str:
        """Nor any number that could be one, or a student who has a compiler quote numbers learns which it is."""
        return re.sub(r"\d{9,}", SECRET, text) if self.secret else text

    def page(self, report: Report) -> tuple[Report, report_page.Before, Callable[[str], str]]:
        """What its page is written of: no hidden tests, and no seed that is kept secret."""
        stages = [
            replace(stage, results=[result for result in stage.results if not is_hidden(result.spec)])
            for stage in without_hidden_names(report).stages
        ]
        return replace(report, stages=stages), {}, self.without_seed

    def clean(self, text: str) -> str:
        text = self.without_seed(text)
        left_out = len(text) - LONGEST_OUTPUT
        return text if left_out <= 0 else f"{text[:LONGEST_OUTPUT]}\n[... {left_out} characters left out ...]"


def without_hidden_names(report: Report) -> Report:
    """Other tests may name hidden ones, and what these alone look at: a run that hung, a mistake charged there."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for result in report.results:
        spec, looked_at = result.spec, (f'"{name}"' for name in result.scenarios)
        names[is_hidden(spec)] |= {spec.name, spec.title, *looked_at}
    words = sorted(names[True] - names[False], key=len, reverse=True)

    def clean(texts: list[str]) -> list[str]:
        return [re.sub("|".join(map(re.escape, words)), "a hidden test", text) if words else text for text in texts]

    stages = [
        replace(stage, results=[
            result if is_hidden(result.spec)
            else replace(result, failures=clean(result.failures), notes=clean(result.notes))
            for result in stage.results
        ])
        for stage in report.stages
    ]  # fmt: skip
    return replace(report, stages=stages)


def shown_results(report: Report, shown: Shown) -> dict[str, object]:
    report = without_hidden_names(report)
    found = gradescope(report)
    visibility = shown.course.visibility
    found["stdout_visibility"] = visibility.get("stdout", "hidden")
    found["output"] = shown.clean(_summary(report, shown))
    problems = {stage.stage.name: stage.problem for stage in report.stages if stage.build_error}
    for test, result in zip(found["tests"], report.results):
        test["extra_data"]["problem"] = problems.get(test["extra_data"]["stage"], "")
        kind = "hidden" if is_hidden(result.spec) else "tests"
        test["visibility"] = visibility.get(kind, "visible" if kind == "tests" else "after_published")
        test["output"] = shown.clean(test["output"])
        test["extra_data"]["notes"] = [shown.clean(line) for line in result.notes]
    if shown.secret:
        del found["extra_data"]["seed"]
    return found


def _summary(report: Report, shown: Shown) -> str:
    """What a student reads first."""
    seed = "" if shown.secret else f", seed {report.seed}"
    stages = [f"{stage.stage.title}: {stage.score:g} / {stage.max_score:g}" for stage in report.stages]
    lines = [f"{report.sums}{seed}", *stages]
    answers = ", ".join(name.partition("_")[0] for name in sorted(shown.submission.answers))
    lines += [f"Answers for the writeup, which a person reads: {answers or 'none'}"]
    return "\n".join([*lines, *(f"Note: {note}" for note in shown.submission.notes)])


if __name__ == "__main__":
    sys.exit(main())
