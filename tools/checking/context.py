"""What the lab's own checks share: its build, commands with a log, and graded runs of stages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.grading.compiling import building
from tools.grading.compiling.building import Builder
from tools.grading.compiling.compile_errors import condense
from tools.grading.running import minimum_activity
from tools.grading.running.processes import BoundedText, GuardedProcess
from tools.grading.running.records import printable
from tools.grading.running.runner import RunOptions, run_stage
from tools.grading.running.test_lists import TestLists
from tools.grading.scoring.results import StageReport, Status, TestResult, TestSpec
from tools.grading.stages import Stage, all_stages, short_paths
from tools.setup.toolchain import Toolchain

LOG_LIMIT = 8 << 20
CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Context:
    toolchain: Toolchain
    seed: int

    @property
    def builder(self) -> Builder:
        return Builder(self.toolchain)

    @property
    def build_dir(self) -> Path:
        return Path(self.toolchain.build_dir)

    def folder(self, *parts: str) -> Path:
        """A folder for files that checks make."""
        folder = self.build_dir.joinpath("check", *parts)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def run(self, command: list[str], log: Path, env: dict[str, str] | None = None) -> tuple[int, str]:
        """Runs a command; returns its exit code (-n: killed by signal n) and what it printed, which goes to `log`."""
        output = BoundedText(LOG_LIMIT)
        with GuardedProcess(command, env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})}) as process:
            for channel, data in process.events():
                if channel == "output":
                    output.add(data)
        text = printable(str(output), LOG_LIMIT)
        log.write_text(text, encoding="utf-8")
        return process.exit_code, text

    def build(self, targets: Iterable[str]) -> str:
        """Builds as much of `targets` as compiles. Returns what does not; empty if all of it does."""
        log = self.folder() / "build.log"
        command = [self.toolchain.cmake, "--build", str(self.build_dir), "--parallel", str(CORES)]
        command += ["--target", *targets, "--", "-k0"]
        code, text = self.run(command, log)
        if code and building.forget_precompiled(self.build_dir, text):
            code, text = self.run(command, log)
        return describe("The build", condense(text), log) if code else ""

    def tests_of(self, stage: Stage) -> list[TestSpec]:
        lists = TestLists(self.folder("lists"))
        found = lists.of(self.builder.program(stage))
        lists.remember()
        return found

    def provide_activity(self, stage: Stage) -> None:
        """What its tests need to tell that they ran: of a run of the solution, which is built."""
        with minimum_activity.renewing(stage):
            if not minimum_activity.known(stage):
                report = self.grade(stage, self.builder.library(stage, "solutions"), self.tests_of(stage))
                minimum_activity.keep(report)

    def grade(
        self, stage: Stage, library: Path, tests: list[TestSpec], options: RunOptions | None = None
    ) -> StageReport:
        """Runs these tests of a stage on a library."""
        report = StageReport(stage, [TestResult(spec) for spec in tests])
        run_stage(self.builder.program(stage), library, report, options or RunOptions(self.seed), lambda result: None)
        return report


def graded_stages() -> list[Stage]:
    return [stage for stage in all_stages() if stage.has_tests()]


def describe(title: str, text: str, log: Path | None = None) -> str:
    """A failure's text, indented under its title."""
    lines = [title, *(f"    {line}".rstrip() for line in text.strip().splitlines())]
    return "\n".join(lines + ([f"    The whole log: {short_paths(str(log))}"] if log else []))


def describe_tests(results: Iterable[TestResult]) -> str:
    """The tests with their status and all their messages."""
    return "\n".join(
        "\n  ".join([f"{result.spec.name}: {result.status.value}", *"\n\n".join(result.failures).splitlines()])
        for result in results
    )


def not_passed(report: StageReport) -> list[TestResult]:
    """What keeps a correct stage from full marks; tests that this machine cannot run do not."""
    return [result for result in report.results if result.status not in (Status.PASSED, Status.SKIPPED)]
