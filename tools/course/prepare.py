"""Builds all that grading needs and that is not a student's, once: what setup.sh of an autograder runs in its image.

It ends by grading the solutions, which have full marks and show what each scenario does at least, and the stubs, which
are worth nothing: an image that cannot grade fails here, and not on the first submission. The solutions are removed
then, whatever came of it.

    python3 -m tools.course.prepare [SOLUTIONS]     a folder
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tools.course.grade_submission import parse_arguments, run
from tools.grading.compiling.building import Builder
from tools.grading.running import minimum_activity
from tools.grading.running.test_lists import TestLists
from tools.grading.scoring.results import Report, Status
from tools.grading.stages import all_stages
from tools.grading.terminal import ending_of
from tools.setup import toolchain
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError

GOOD = (Status.PASSED, Status.SKIPPED)


def main() -> int:
    solutions = next((folder for folder in map(Path, sys.argv[1:]) if folder.is_dir()), None)  # gone the second time
    try:
        return prepare(solutions)
    finally:
        if solutions:
            shutil.rmtree(solutions, ignore_errors=True)


def prepare(solutions: Path | None) -> int:
    builder, lists = Builder(toolchain.load()), TestLists(BUILD_DIR / "grade")
    stages = [stage for stage in all_stages() if stage.has_tests()]
    if errors := builder.build(stages, "assignments"):
        raise LabError("\n".join(["The stubs do not compile:", *errors.values()]))
    for stage in stages:
        lists.of(builder.program(stage))
    lists.remember()
    if solutions:
        report = graded(solutions, alive=False)
        if wrong := [result.spec.name for result in report.results if result.status not in GOOD]:
            raise LabError(f"The solutions were graded on this system, and these tests took points from them: {wrong}")
        for stage_report in report.stages:
            minimum_activity.write(stage_report, minimum_activity.packed(stage_report.stage))
    else:
        print("There are no solutions here: whether a perfect submission gets full marks was not tried.")
    stubs = graded(ROOT / "assignments").results
    if wrong := [result.spec.name for result in stubs if result.status is not Status.TODO]:
        raise LabError(f"The stubs were graded, and these tests do not say that they are to be written: {wrong}")
    print(f"Ready to grade {len(stages)} stages.")
    return 0


def graded(submission: Path, alive: bool = True) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        return run(parse_arguments([str(submission), f"--out={folder}/results.json"]), alive)


if __name__ == "__main__":
    sys.exit(ending_of("prepare", main))
