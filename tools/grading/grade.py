"""Grades the lab: builds each stage apart, runs its tests, prints the scorecard, writes the result files.

Exit code: 0 full marks in what was graded; 1 less; 2 a choice that does not exist; 3 the lab could not be built or the
results not be written; 4 a stage was not graded, with UNTRUSTED=1; 70 a mistake of the grader's own; 128 + n ended by
signal n (130: Ctrl-C).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

from tools.grading import stages
from tools.grading.compiling import confined
from tools.grading.compiling.building import Builder, StageBuilds, edited_note
from tools.grading.compiling.one_file import OneFile
from tools.grading.debugging import sanitized
from tools.grading.page import report_page
from tools.grading.running import failed_last, minimum_activity, test_lists
from tools.grading.running.runner import RunOptions, run_stage
from tools.grading.running.test_lists import TestLists
from tools.grading.sandbox.sandbox import Sandbox, make_sandbox
from tools.grading.scorecard import Scorecard
from tools.grading.scoring import kept_scores
from tools.grading.scoring.results import (
    DOES_NOT_COMPILE,
    WAS_NOT_GRADED,
    Report,
    ResultFiles,
    StageReport,
    Status,
    TestResult,
)
from tools.grading.stages import BadChoice, Stage
from tools.grading.terminal import Interrupted, Terminal, ending_of
from tools.setup import cuda, toolchain
from tools.setup.checkout_lock import hold
from tools.setup.columns import fold


def main() -> int:
    end_by_exception_on_signals()
    return ending_of("make test", functools.partial(minimum_activity.found_out, _grade_as_asked))


def _grade_as_asked() -> int:
    options = _parse_arguments()
    tools = toolchain.load()
    if options.device == "cuda":
        cuda.require(tools)
    builder, folder = Builder(tools, options.device), Path(tools.build_dir) / "grade"
    with hold(folder / "lock", "make test"):
        if options.sanitize:
            builder, folder = sanitized.prepared(tools, options)
        if options.file:
            folder = Path(tools.build_dir) / "file"
            builder = OneFile(tools, Path(options.file), folder)
        if not options.untrusted:
            return grade(options, builder, folder)
        with confined.confined(make_sandbox(Path("/bin/true"))) as place:
            return grade(options, Builder(tools, confined=place), folder)


def end_by_exception_on_signals() -> None:
    def raise_once(signum: int, _: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)  # cleaning up is quick, and must not be interrupted
        raise Interrupted(signum)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, raise_once)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test", description=__doc__, allow_abbrev=False)
    parser.add_argument("--stage", default="", help="01 to 07, or a stage's full name; all of them by default")
    parser.add_argument("--test", default="", help="a test's name, or a pattern such as '*bitwise*'")
    parser.add_argument("--file", default="", help="graded in the place of yours, of one stage")
    parser.add_argument("--impl", default="", help="assignments (default), which is yours")
    parser.add_argument("--device", default="", help="cpu (default) or cuda")
    parser.add_argument("--seed", default="", help="repeats the run that printed it")
    parser.add_argument("--trace", default="", help="where to write what each rank did and when, as a Chrome trace")
    parser.add_argument("--sanitize", default="", help="address or undefined: watched for such mistakes; no grade")
    parser.add_argument("--untrusted", action="store_true", help="load nothing that uses more than a stage may")
    parser.add_argument("--reload", action="store_true", help="the page reloads itself; make watch says so")
    parser.add_argument("--verbose", nargs="?", const="1", default="", help="show everything that tests say")
    options = parser.parse_args()
    options.stages = stages.find_stages(options.stage)
    if options.test:  # said before anything is built, and no other stage is
        options.stages = list(dict.fromkeys(stage for stage, _ in test_lists.chosen(options.test, options.stages)))
    options.impl = stages.choose_impl(options.impl)
    options.device = stages.choose("DEVICE", options.device or "cpu", stages.DEVICES)
    options.seed = stages.choose_seed(options.seed)
    if options.sanitize:
        stages.choose("SANITIZE", options.sanitize, sanitized.CHOICES)
        sanitized.refuse_what_does_not_go_with_it(options)
    others = [options.untrusted, options.sanitize, options.device != "cpu", options.impl != "assignments"]
    if options.file and (len(options.stages) > 1 or any(others)):
        raise BadChoice(
            f"FILE={options.file} goes with one stage, as in STAGE=02, and with TEST=, SEED= and TRACE= alone"
        )
    options.verbose = options.verbose not in ("", "0")
    if options.untrusted and (options.trace or options.device != "cpu"):
        raise BadChoice("UNTRUSTED=1 goes with neither TRACE= nor DEVICE=cuda: a stage gets neither files nor drivers")
    if options.trace and len(options.stages) > 1:
        raise BadChoice(f"TRACE={options.trace} is for one stage; add STAGE=02, for example")
    return options


def grade(options: argparse.Namespace, builder: Builder, folder: Path) -> int:
    statuses = report_page.before(kept_scores.load(folder / kept_scores.FILE)[0])
    files, lists = ResultFiles(folder), TestLists(folder)
    graded = [stage for stage in options.stages if stage.has_tests()]
    choices = (options.impl, options.device, options.seed)
    report = Report(*choices, partial=bool(options.test), sanitize=options.sanitize)
    if Path(options.trace).is_file():
        Path(options.trace).unlink()  # of an earlier run
    terminal = Terminal()
    scorecard, page = Scorecard(terminal, report, options.verbose), folder / report_page.FILE
    # One more than there are cores: ranks wait half of the time.
    at_a_time = len(os.sched_getaffinity(0)) + 1 if len(graded) > 1 and not options.untrusted else 1
    run = RunOptions(
        report.seed,
        report.device,
        environment={"DDP_LAB_TRACE": str(Path(options.trace).absolute())} if options.trace else {},
        partial=stages.in_course("partial", False),
    )
    if options.sanitize:
        run = sanitized.watching(run, folder)
    writing = threading.Lock()
    may_repeat = len(graded) == 1 and report.impl == "assignments" and not (options.untrusted or options.sanitize)

    def show(stage: StageReport, result: TestResult) -> None:
        scorecard.running(stage, result)
        if result.status is not Status.NOT_RUN and not options.untrusted:
            with writing:
                files.write(report)

    def grade_one(stage: StageReport) -> None:
        if run.sandbox and not stage.build_error:
            mark_build_error(stage, run.sandbox.broken_seal(), WAS_NOT_GRADED)
        if not stage.build_error:
            program, library = builder.program(stage.stage), builder.library(stage.stage, report.impl)
            if last := failed_last.known(folder, stage) if may_repeat else None:
                scorecard.again(failed_last.run_again(program, library, stage, run, last))
            run_stage(program, library, stage, run, functools.partial(show, stage))

    try:
        scorecard.heading()
        files.write(report)
        with StageBuilds(builder, graded, options.impl) as builds:
            built = stages_as_built(builds, builder, lists, graded, options.test, report)
            if options.untrusted:
                built = list(built)  # nothing is built once somebody else's code runs
                run = replace(run, sandbox=sandbox_for(built, builder, report, terminal))
            for stage in side_by_side(built, builds.next_build, grade_one, at_a_time, run.stopping):
                with writing:  # with UNTRUSTED=1 only here, where nothing of the stage runs any more
                    files.write(report)
                    with contextlib.suppress(OSError):  # which the line above has noted
                        kept_scores.keep(folder, report, stage)
                        if may_repeat and not options.test:
                            failed_last.keep(folder, stage, report.seed)
                        if options.impl == "solutions" and not (
                            options.test or options.sanitize or options.device != "cpu"
                        ):
                            minimum_activity.keep(stage)
                scorecard.stage(stage)
    except Interrupted:
        terminal.print()
        terminal.print(f"Stopped. {report.sums} until then; what did not run is not counted.")
        raise
    finally:
        files.write(report)
        lists.remember()
        drawn = report_page.write(page, report, statuses, reload=options.reload)
    scorecard.summary(drawn)
    told = any(stage.build_error for stage in report.stages)
    if not told and not report.full_marks() and (note := edited_note()):
        terminal.print(fold(note.rstrip(), terminal.width))
    if options.trace:
        there = Path(options.trace).is_file()
        print(f"Timeline: {options.trace}; open it in https://ui.perfetto.dev" if there else
              f"No timeline was written to {options.trace}; VERBOSE=1 shows why")  # fmt: skip
    if files.problem:
        advice = "The scores above are right; free some space and run again."
        print(fold(f"{files.problem}. {advice}", terminal.width), file=sys.stderr)
        return 3
    if options.sanitize:
        return sanitized.tell(report, options.test, folder)
    return report.exit_code()


def stages_as_built(
    builds: StageBuilds, builder: Builder, lists: TestLists, graded: list[Stage], pattern: str, report: Report
) -> Iterator[StageReport]:
    """Each stage that has tests asked for, as soon as it is built; it is noted in the report."""
    for stage in graded:
        error, specs = builds.wait_for(stage), lists.of(builder.program(stage))
        wanted = stages.match_tests(pattern, [spec.name for spec in specs])
        if wanted:
            found = StageReport(stage, [TestResult(spec) for spec in specs if spec.name in wanted])
            found.sources = builds.sources[stage.name]
            mark_build_error(found, error, builder.problems.get(stage.name, DOES_NOT_COMPILE))
            report.stages.append(found)
            yield found


def side_by_side(
    stages: Iterable[StageReport],
    next_build: Callable[[], Future | None],
    run: Callable[[StageReport], None],
    at_a_time: int,
    stopping: threading.Event,
) -> Iterator[StageReport]:
    """Runs each stage on a thread, and yields it when it has ended, in the order of `stages`. Beside one that runs the
    next begins once it is built. Whoever takes no more, or is interrupted, sets `stopping`, at which `run` has to end.
    """
    stages, running, more = iter(stages), deque(), True
    with ThreadPoolExecutor(at_a_time) as pool:
        try:
            while more or running:
                busy = [ended for _, ended in running if not ended.done()]
                build = next_build() if more and len(busy) < at_a_time else None
                if running and running[0][1].done():
                    stage, ended = running.popleft()
                    ended.result()
                    yield stage
                elif len(busy) == at_a_time or not more or (running and build and not build.done()):
                    wait([*busy, build] if build else busy, return_when=FIRST_COMPLETED)
                else:
                    stage = next(stages, None)
                    more = stage is not None
                    if more:
                        running.append((stage, pool.submit(run, stage)))
        finally:
            stopping.set()


def mark_build_error(stage: StageReport, error: str, what: str = DOES_NOT_COMPILE) -> None:
    stage.build_error, stage.problem = error, what
    for result in stage.results if error else []:
        result.status, result.failures = Status.FAILED, [f"{stage.stage.name} {what}:\n{error}"]


def sandbox_for(built: list[StageReport], builder: Builder, report: Report, terminal: Terminal) -> Sandbox | None:
    """Tried with a program that it is for."""
    runnable = [stage.stage for stage in built if not stage.build_error]
    if not runnable:
        return None
    if report.impl != "solutions":
        minimum_activity.require(runnable)
    programs = [builder.program(stage) for stage in runnable]
    sandbox = make_sandbox(programs[0])
    for gap in sandbox.gaps:
        terminal.print(f"UNTRUSTED=1: {gap}")
    libraries = [builder.library(stage, report.impl) for stage in runnable]
    return sandbox.sealed([*programs, *libraries, *builder.common_libraries()])


if __name__ == "__main__":
    sys.exit(main())
