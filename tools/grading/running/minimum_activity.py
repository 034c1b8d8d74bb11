"""How much each rank of each scenario of a stage's tests does at least, from a run of the solution.

Whoever did less has not run the scenario, whatever it says (tests/grader/minimum_activity.h). The solutions' own run
writes it into the build folder (make test IMPL=solutions); `make release` packs it beside the tests, and a grader finds
it out when it is prepared.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.grading.scoring.results import StageReport, Status, replace_file
from tools.grading.stages import Stage
from tools.setup.checkout_lock import hold
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError

MISSING = """\
What the tests of {stages} do at least is not known here, so code that nobody trusts could say that it had run them.
A run of the solutions finds out: make test IMPL=solutions"""


def packed(stage: Stage) -> Path:
    """Where a release and an autograder have it."""
    return ROOT / "tests" / stage.name / "minimum_activity.json"


def written(stage: Stage) -> Path:
    return BUILD_DIR / "minimum_activity" / f"{stage.name}.json"


def known(stage: Stage) -> Path | None:
    """The file; None if there is none, or the tests were built after it was written."""
    if packed(stage).exists():
        return packed(stage)
    try:
        code = BUILD_DIR / "lib" / f"libtests_{stage.name}_code.so"
        return written(stage) if written(stage).stat().st_mtime_ns > code.stat().st_mtime_ns else None
    except OSError:
        return None


def require(stages: Iterable[Stage]) -> None:
    """For grading what nobody trusts."""
    if missing := [stage.number for stage in stages if not known(stage)]:
        raise LabError(MISSING.format(stages=f"stage{'s' if len(missing) > 1 else ''} {', '.join(missing)}"))


def counts(stage: Stage) -> dict[str, list[object]]:
    """By scenario, of each of its ranks."""
    path = known(stage)
    return json.loads(path.read_text()) if path else {}


def keep(report: StageReport) -> None:
    """Called with a run of all of a solution's tests on the CPU; of one that fails nothing is kept."""
    if not packed(report.stage).exists():
        write(report, written(report.stage))


def write(report: StageReport, path: Path) -> None:
    passed = all(result.status in (Status.PASSED, Status.SKIPPED) for result in report.results)
    if passed and report.activity:
        activity = sorted(report.activity.items())
        lines = ",\n".join(f" {json.dumps(scenario)}: {json.dumps(ranks)}" for scenario, ranks in activity)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, f"{{\n{lines}\n}}\n".encode())


@contextlib.contextmanager
def renewing(stage: Stage) -> Iterator[None]:
    """One process at a time."""
    with hold(written(stage).with_suffix(".lock"), "a run of the solution"):
        yield
