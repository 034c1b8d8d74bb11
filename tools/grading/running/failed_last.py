"""What failed last, first: before a whole stage is graded again, the scenario in which its first test failed, alone.

So whoever mends one mistake learns within a second after the compiler whether it is mended. Nothing is graded by it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from tools.grading.causes import blocks
from tools.grading.running.runner import RunOptions, run_stage
from tools.grading.scoring.results import StageReport, Status, TestResult, replace_file


@dataclass(frozen=True)
class FailedLast:
    test: str
    scenario: str
    seed: int


def keep(folder: Path, report: StageReport, seed: int) -> None:
    """The failure that is shown first; of a stage without one nothing is kept. Raises OSError."""
    file = folder / f"failed_last.{report.stage.name}.json"
    file.unlink(missing_ok=True)
    failed = blocks(result for result in report.results if result.status is Status.FAILED and result.broken)
    if failed:
        first = failed[0][0]
        kept = {"test": first.spec.name, "scenario": first.broken[0].scenario, "seed": seed}
        replace_file(file, json.dumps(kept).encode())


def known(folder: Path, report: StageReport) -> FailedLast | None:
    try:
        found = FailedLast(**json.loads((folder / f"failed_last.{report.stage.name}.json").read_bytes()))
        return found if any(result.spec.name == found.test for result in report.results) else None
    except (OSError, ValueError, TypeError):
        return None


def run_again(program: Path, library: Path, report: StageReport, options: RunOptions, last: FailedLast) -> str:
    """What to say of it; empty if nothing can be said."""
    spec = next(result.spec for result in report.results if result.spec.name == last.test)
    alone = StageReport(report.stage, [TestResult(spec)])
    run_stage(program, library, alone, replace(options, seed=last.seed, scenario=last.scenario), lambda result: None)
    result = alone.results[0]
    if result.status is Status.FAILED and result.failures:
        return f"still fails: {spec.title}\n{result.failures[0].strip()}"
    if result.status is Status.PASSED and result.runs[1]:
        return f'"{spec.title}" now passes in the scenario in which it failed; running the rest'
    return ""
