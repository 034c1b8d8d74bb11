"""What the steps of `make check` share: their outcome, and commands with a log, several at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tools.grading.compiling.building import Builder
from tools.grading.running.processes import BoundedText, GuardedProcess
from tools.grading.running.records import printable
from tools.grading.running.runner import RunOptions, run_stage
from tools.grading.running.test_lists import TestLists
from tools.grading.scoring.results import StageReport, TestResult, TestSpec
from tools.grading.stages import Stage, all_stages, short_paths
from tools.setup.system_packages import is_clang
from tools.setup.toolchain import Toolchain

LOG_LIMIT = 8 << 20
CORES = len(os.sched_getaffinity(0))
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class Outcome:
    """What a step found. Each failure is its full text; what is skipped is neither passed nor failed."""

    passed: int = 0
    failures: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, failure: str) -> None:
        """Counts one more check, which passed if `failure` is empty."""
        if failure:
            self.failures.append(failure)
        else:
            self.passed += 1

    @staticmethod
    def of(failure: str) -> Outcome:
        """Of a single check."""
        outcome = Outcome()
        outcome.add(failure)
        return outcome

    def take(self, parts: Iterable[Outcome]) -> Outcome:
        """Adds what others found."""
        for part in parts:
            self.passed += part.passed
            self.failures += part.failures
            self.skipped += part.skipped
        return self


@dataclass(frozen=True)
class Context:
    toolchain: Toolchain
    seed: int
    everything: bool = False  # ALL=1: no samples, and also what takes long
    show: Callable[[str], None] = lambda line: None  # each line that a command prints

    @property
    def builder(self) -> Builder:
        return Builder(self.toolchain)

    @property
    def build_dir(self) -> Path:
        return Path(self.toolchain.build_dir)

    @property
    def uses_clang(self) -> bool:
        return is_clang(self.toolchain.cxx)

    def folder(self, *parts: str) -> Path:
        """A folder for files that `make check` makes."""
        folder = self.build_dir.joinpath("check", *parts)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def run(self, command: list[str], log: Path, env: dict[str, str] | None = None) -> tuple[int, str]:
        """Runs a command; returns its exit code (-n: killed by signal n) and what it printed, which goes to `log`."""
        output, pending = BoundedText(LOG_LIMIT), ""
        with GuardedProcess(command, env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})}) as process:
            for channel, data in process.events():
                if channel != "output":
                    continue
                output.add(data)
                *lines, pending = (pending + data.decode(errors="replace")).split("\n")
                for line in lines:
                    self.show(line.strip()[:70])
        text = printable(str(output), LOG_LIMIT)
        log.write_text(text, encoding="utf-8")
        return process.exit_code, text

    def each(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results for all items, in their order; as many run at a time as there are cores."""
        pool = ThreadPoolExecutor(CORES)
        try:
            return [*pool.map(function, items)]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def tests_of(self, stage: Stage) -> list[TestSpec]:
        lists = TestLists(self.folder("lists"))
        found = lists.of(self.builder.program(stage))
        lists.remember()
        return found

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
