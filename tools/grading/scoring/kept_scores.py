"""scores.json: what the last run found that graded a stage as a whole, for each stage, in the form of results.json.

A run of one stage, or of one test by TEST=, leaves the scores of all others as they were, and so does one that was
stopped; `make submit` packs them, each with its date. What a solution or a GPU got does not count.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.grading.scoring.results import Report, StageReport, Status, gradescope, replace_file, sums_of_tests

FILE = "scores.json"


def keep(folder: Path, report: Report, stage: StageReport) -> None:
    """To be called when the stage has ended by itself. Raises OSError."""
    if report.partial or report.sanitize or (report.impl, report.device) != ("assignments", "cpu"):
        return
    name = stage.stage.name
    one = gradescope(Report(report.impl, report.device, report.seed, [stage], date=report.date))
    tests, stages = load(folder / FILE)
    cut_short = stage.count(Status.NOT_RUN) > 0  # the test program was killed, or the machine without memory
    if cut_short and stages.get(name, {}).get("sources") == stage.sources:
        return
    tests = sorted([*(test for test in tests if test["extra_data"]["stage"] != name), *one["tests"]], key=_place)
    stages[name] = {**one["extra_data"]["stages"][name], "date": report.date, "seed": report.seed}
    found = {
        "score": sums_of_tests(tests).score,
        "tests": tests,
        "extra_data": {"impl": report.impl, "stages": dict(sorted(stages.items()))},
    }
    replace_file(folder / FILE, json.dumps(found, indent=1).encode() + b"\n")


def load(file: Path) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """All tests, and what is known of each stage; nothing where nothing that can be read was kept."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        tests, stages = found["tests"], found["extra_data"]["stages"]
        complete = all({"sources", "compiles", "date"} <= stage.keys() for stage in stages.values())
        known = all(test["extra_data"]["stage"] in stages for test in tests)
        return (tests, stages) if complete and known else ([], {})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [], {}


def _place(test: dict[str, Any]) -> list[int]:
    return [int(part) for part in test["number"].split(".")]
