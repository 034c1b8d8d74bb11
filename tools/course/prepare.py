"""Builds all that grading needs and that is not a student's, once: what setup.sh of an autograder runs in its image.

It ends by grading the stubs, which are worth nothing: an image that cannot grade fails here, and not on the first
submission.
"""

from __future__ import annotations

import sys
import tempfile

from tools.course.grade_submission import parse_arguments, run
from tools.grading.building import Builder
from tools.grading.exit_codes import ending_of
from tools.grading.results import Status
from tools.grading.stages import all_stages
from tools.grading.test_lists import TestLists
from tools.setup import toolchain
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError


def prepare() -> int:
    builder, lists = Builder(toolchain.load()), TestLists(BUILD_DIR / "grade")
    stages = [stage for stage in all_stages() if stage.has_tests()]
    if errors := builder.build(stages, "assignments"):
        raise LabError("\n".join(["The stubs do not compile:", *errors.values()]))
    for stage in stages:
        lists.of(builder.program(stage))
    lists.remember()
    with tempfile.TemporaryDirectory() as folder:
        report = run(parse_arguments([str(ROOT / "assignments"), f"--out={folder}/results.json"]))
    wrong = [result.spec.name for result in report.results if result.status is not Status.TODO]
    if wrong:
        raise LabError(f"The stubs were graded, and these tests do not say that they are to be written: {wrong}")
    print(f"Ready to grade {len(stages)} stages.")
    return 0


if __name__ == "__main__":
    sys.exit(ending_of("prepare", prepare))
