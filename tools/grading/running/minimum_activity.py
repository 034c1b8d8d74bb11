"""How much each rank of each scenario of a stage's tests does at least, from a run of the solution.

Whoever did less has not run the scenario, whatever it says (tests/grader/minimum_activity.h). The solutions' own run
writes it into the build folder (make test IMPL=solutions, which found_out() runs where it is needed); `make release`
packs it beside the tests, and a grader finds it out when it is prepared.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from subprocess import run
from typing import Any

from tools.grading.scoring.results import StageReport, Status, replace_file
from tools.grading.stages import Stage, all_stages
from tools.setup.checkout_lock import hold
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError, how_to_restore

MISSING = """\
What the tests of {stages} do at least is not known here, so code that nobody trusts could say that it had run them.
A run of the solutions finds out: make test IMPL=solutions. Without solutions restore tests/*/minimum_activity.json: \
{restore}"""
GRADE = ("sh", "tools/setup/python3.sh", "-m", "tools.setup.setup", "tools.grading.grade", "--impl=solutions")


class NotKnown(LabError):
    """Without it nobody is graded who is not trusted."""


def packed(stage: Stage) -> Path:
    """Where a release and an autograder have it."""
    return ROOT / "tests" / stage.name / "minimum_activity.json"


def written(stage: Stage) -> Path:
    return BUILD_DIR / "minimum_activity" / f"{stage.name}.json"


def known(stage: Stage) -> Path | None:
    """The file; None if there is none, or the tests were edited or built after it was written."""
    if packed(stage).exists():
        return packed(stage)
    try:
        code = BUILD_DIR / "lib" / f"libtests_{stage.name}_code.so"
        newest = max(path.stat().st_mtime_ns for path in (code, *(ROOT / "tests" / stage.name).iterdir()))
        return written(stage) if written(stage).stat().st_mtime_ns > newest else None
    except OSError:
        return None


def require(stages: Iterable[Stage]) -> None:
    """For grading what nobody trusts."""
    if missing := [stage.number for stage in stages if not known(stage)]:
        named = f"stage{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise NotKnown(MISSING.format(stages=named, restore=how_to_restore("tests")))


def found_out(work: Callable[[], Any]) -> Any:
    """Does what needs it; where it is not known, once more after a run of the solutions, if they are here."""
    try:
        return work()
    except NotKnown:
        if not any(stage.sources("solutions") for stage in all_stages()):
            raise
        print("Grading the solutions once (2 min; on a new clone after its set-up) ...", flush=True)
        if run(GRADE, cwd=ROOT, check=False).returncode:
            raise LabError("The solutions did not get full marks, so nothing else was done; see above.") from None
    return work()


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
