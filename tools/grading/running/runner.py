"""Runs one stage's test program and fills in a StageReport.

What a test program build/bin/tests_<stage> understands:

  --list    prints its tests as one JSON array: [{"name", "points", "hint", "more", "file", "line"}, ...]
  --stage-library=PATH --records-fd=N [--test=NAME ...] [--seed=S] [--device=cpu|cuda]
  [--minimum-activity=PATH] [--untrusted] [--withhold] [--brief] [--scenario=NAME]
            runs its tests (--seed=-: that of a line of its standard input), and writes a JSON object per line to file
            descriptor N:
              {"event": "test_started", "name": ...}
              {"event": "test_finished", "name": ..., "seconds": 0.12,
               "status": "passed|failed|not_judged|todo|skipped",
               "failures": ["full text", ...], "notes": [...],
               "runs": [24, 26], the claim holds in 24 of 26 runs
               "broken": [{"scenario": ..., "edge_cases": [...], "charged_to": ...}, ...],  for deductions.py
               "scenarios": [names, ...], "picture": ...}  for make debug and the page: tests/grader/picture.h
              {"event": "scenario_ended"}  at any time, so that a silent program is noticed
              {"event": "run_finished", "activity": ..., "unpaid": [scenarios that may break off for free, ...]}
            todo: a stub was called, which failures[0] names. skipped: notes[0] says why. Exit code 0: all
            tests ran, whatever the verdicts. Its output is for people.
"""

from __future__ import annotations

import functools
import hashlib
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.grading.running import minimum_activity
from tools.grading.running.processes import BoundedText, GuardedProcess
from tools.grading.running.records import Records, printable
from tools.grading.running.waiting_clock import Silence
from tools.grading.sandbox.sandbox import Sandbox
from tools.grading.scoring import deductions
from tools.grading.scoring.results import StageReport, TestResult
from tools.grading.stages import Stage

# A last resort: the program has its own deadlines for everything a rank does.
SILENCE_S = 120.0
SLOW = 50_000  # rounds: 20 ms, and half a year to try all seeds of nine digits
TICK_S = 0.2  # how soon a Ctrl-C is noticed
MAX_OUTPUT = 1 << 20
# glibc: fills freed memory with the byte 01 and fresh memory with FE, and keeps no freed blocks unfilled (tcache). So a
# use of freed or uninitialized memory gets a wild pointer or a huge number, and never works by luck. It costs no
# measurable time. Huge pages: a fork copies one entry for 2 MiB rather than 512, and each scenario forks its ranks.
MEMORY = {"GLIBC_TUNABLES": "glibc.malloc.perturb=1:glibc.malloc.tcache_count=0:glibc.malloc.hugetlb=1"}


@dataclass(frozen=True)
class RunOptions:
    seed: int
    device: str = "cpu"
    silence_s: float = SILENCE_S
    deadline_s: float = 0.0  # for a group of ranks; 0: the program's default
    environment: Mapping[str, str] = field(default_factory=dict)  # for the test program alone
    alive: bool = True  # ranks have to show what their scenarios are known to do
    scenario: str = ""  # the only one that is run; empty: all
    brief: bool = False  # a claim is judged no further than to the first scenario that breaks it
    withhold: bool = False  # what ranks print and throw is said to nobody: tests or seed are secret
    partial: bool = False  # course.json: points for the share of runs in which a claim holds
    stopping: threading.Event = field(default_factory=threading.Event)  # set: to end now, as by Ctrl-C
    sandbox: Sandbox | None = None  # for a stage that is not trusted


def run_stage(
    program: Path,
    library: Path,
    report: StageReport,
    options: RunOptions,
    on_change: Callable[[TestResult], None],
) -> None:
    """Runs the tests in `report`, which holds the results so far if they are stopped."""
    for result in report.results:
        result.partial = options.partial
    records = Records(report.results, on_change)
    output = BoundedText(MAX_OUTPUT)
    given = f"{inputs_seed(options.seed, report.stage)}\n".encode()
    process = GuardedProcess(_command(program, library, report, options), records=True, given=given)
    process.append(f"--records-fd={process.records_fd}", *_arguments(report, options))
    hung = False
    try:
        with process:
            silence, count = Silence(), 0
            for channel, data in process.events(tick_s=min(TICK_S, options.silence_s)):
                if channel == "records":
                    records.feed(data)
                elif channel == "output":
                    output.add(data)
                if records.count > count:
                    count = records.count
                    silence.broken()
                hung = hung or silence.went_on() > options.silence_s
                if hung or options.stopping.is_set():
                    process.stop()
        exit_code = process.exit_code
    finally:
        report.output = printable(str(output), 2 * MAX_OUTPUT)
    reason = "interrupted" if options.stopping.is_set() else _reason(exit_code, hung, options, output)
    if exit_code and records.run_finished:
        records.distrust(reason)
    records.close(reason)
    deductions.settle(report.results)
    report.activity, report.unpaid = records.activity, records.unpaid


@functools.cache
def inputs_seed(seed: int, stage: Stage) -> int:
    """What a stage's inputs are drawn from: who reads it in a rank's memory learns neither the seed nor another
    stage's."""
    digest = hashlib.pbkdf2_hmac("sha256", str(seed).encode(), stage.name.encode(), SLOW)
    return int.from_bytes(digest[:8]) >> 2


def _command(program: Path, library: Path, report: StageReport, options: RunOptions) -> list[str]:
    environment = {**MEMORY, **options.environment}
    if not options.sandbox:
        given = [f"{name}={value}" for name, value in environment.items()]
        return ["/usr/bin/env", *given, str(program), f"--stage-library={library}"]
    activity = minimum_activity.known(report.stage)
    command = options.sandbox.program(program, library, *([activity] if activity else []), environment=environment)
    return [*command, f"--stage-library={library}"]


def _arguments(report: StageReport, options: RunOptions) -> list[str]:
    tests = [f"--test={result.spec.name}" for result in report.results]
    deadline = [f"--deadline={options.deadline_s:g}"] if options.deadline_s else []
    known = minimum_activity.known(report.stage) if options.alive else None
    activity = [f"--minimum-activity={known}"] if known else []
    untrusted = ["--untrusted"] if options.sandbox else []
    scenario = [f"--scenario={options.scenario}"] if options.scenario else []
    brief = [*scenario, *["--brief"] * options.brief, *["--withhold"] * options.withhold]
    always = [*tests, "--seed=-", f"--device={options.device}"]
    return [*always, *deadline, *activity, *untrusted, *brief]


def _reason(exit_code: int, hung: bool, options: RunOptions, output: BoundedText) -> str:
    """Why tests have no verdict."""
    if hung:
        return f"the test program itself hung: no record for {options.silence_s:g} s"
    if exit_code < 0:
        ending = f"was killed by {signal.Signals(-exit_code).name}"
    elif exit_code:
        ending = f"exited with code {exit_code}"
    else:
        return "the test program ended without a verdict on this test"
    lines = printable(output.last_lines(20))
    return f"the test program itself {ending}" + (f"; the last that it printed:\n{lines}" if lines else "")
