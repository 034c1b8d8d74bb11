"""A plugin of pytest's, for test_check.py: nothing is built, and all that is checked ends as PLANTED says."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tools.setup import checkout_lock

checkout_lock.hold = lambda path, doing: contextlib.nullcontext()  # who runs these tests may be building

from tools.checking.context import Context
from tools.grading.running import test_lists
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import StageReport, Status, TestResult, TestSpec
from tools.grading.stages import Stage

PLANTED = os.environ["PLANTED"]
RUN = Context.run
SAYS = {"fails": (1, "planted"), "nothing": (0, "")}


def run(self: Context, command: list[str], log: Path, env: dict[str, str] | None = None) -> tuple[int, str]:
    if PLANTED == "hangs":
        return RUN(self, ["sleep", os.environ["FOR_SECONDS"]], log)
    return SAYS.get(PLANTED, (0, "[  PASSED  ] 3 tests."))


def grade(
    self: Context, stage: Stage, library: Path, tests: list[TestSpec], options: RunOptions | None = None
) -> StageReport:
    if PLANTED == "hangs":
        self.run([], self.folder() / "planted.log")
    status = Status.FAILED if PLANTED == "fails" else Status.PASSED
    results = [TestResult(spec, status, failures=["planted"]) for spec in tests if PLANTED != "nothing"]
    return StageReport(stage, results)


Context.run, Context.grade = run, grade
Context.build = lambda self, targets: "The build: planted" if PLANTED == "does not build" else ""
Context.tests_of = lambda self, stage: test_lists.tests_of(stage)
Context.provide_activity = lambda self, stage: None
