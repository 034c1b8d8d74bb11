"""A graded submission as Gradescope's results.json."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tools.course.hidden import is_hidden
from tools.course.submission import Submission
from tools.grading.scoring.results import Report, gradescope
from tools.student.course import Course

LONGEST_OUTPUT = 20_000  # characters of one test's
SECRET = "(kept secret)"


@dataclass(frozen=True)
class Shown:
    """What of a run is shown to whom. `secret`: the seed is to be read nowhere."""

    course: Course
    submission: Submission
    secret: bool

    def without_seed(self, text: str, seed: int) -> str:
        return re.sub(rf"(?<!\d){seed}(?!\d)", SECRET, text) if self.secret else text

    def clean(self, text: str, seed: int) -> str:
        text = self.without_seed(text, seed)
        left_out = len(text) - LONGEST_OUTPUT
        return text if left_out <= 0 else f"{text[:LONGEST_OUTPUT]}\n[... {left_out} characters left out ...]"


def results(report: Report, shown: Shown) -> dict[str, object]:
    found = gradescope(report)
    visibility = shown.course.visibility
    found["stdout_visibility"] = visibility.get("stdout", "hidden")
    found["output"] = shown.clean(_summary(report, shown), report.seed)
    problems = {stage.stage.name: stage.problem for stage in report.stages if stage.build_error}
    for test, result in zip(found["tests"], report.results):
        test["extra_data"]["problem"] = problems.get(test["extra_data"]["stage"], "")
        kind = "hidden" if is_hidden(result.spec) else "tests"
        test["visibility"] = visibility.get(kind, "visible" if kind == "tests" else "after_published")
        test["output"] = shown.clean(test["output"], report.seed)
        test["extra_data"]["measured"] = [shown.clean(line, report.seed) for line in result.measured]
    if shown.secret:
        del found["extra_data"]["seed"]
    return found


def _summary(report: Report, shown: Shown) -> str:
    """What a student reads first."""
    seed = "" if shown.secret else f", seed {report.seed}"
    stages = [f"{stage.stage.title}: {stage.score:g} / {stage.max_score:g}" for stage in report.stages]
    lines = [f"{report.sums}{seed}", *stages]
    answers = ", ".join(name.partition("_")[0] for name in sorted(shown.submission.answers))
    lines += [f"Answers for the writeup, which a person reads: {answers or 'none'}"]
    return "\n".join([*lines, *(f"Note: {note}" for note in shown.submission.notes)])
