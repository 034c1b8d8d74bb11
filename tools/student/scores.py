"""The scores that `make test` has kept: of each stage those of the last run that graded it as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.grading.compiling import stale
from tools.grading.scoring import kept_scores, sums
from tools.grading.stages import Stage, all_stages

_MARKS = {"passed": "+", "todo": "o", "skipped": "-"}


@dataclass(frozen=True)
class Scores:
    tests: list[dict[str, Any]]
    stages: dict[str, dict[str, Any]]

    def gap(self, stage: Stage) -> str:
        """What these scores lack for a stage that was begun; empty: nothing."""
        found = self.stages.get(stage.name)
        if not found:
            return f"stage {stage.number}: never graded as a whole; make test grades all"
        if found["sources"] != stale.digest(stage, "assignments"):
            return f"stage {stage.number}: edited since it was graded; make test grades it again"
        return "" if found["compiles"] else f"stage {stage.number} does not compile: make test STAGE={stage.number}"

    def dates(self) -> dict[str, str]:
        """When each stage was graded, by its name."""
        return {name: about["date"] for name, about in self.stages.items()}

    def line(self) -> str:
        graded = [stage for stage in all_stages() if stage.name in self.stages]
        some = "" if len(graded) == len(all_stages()) else f", of stage {_numbers(graded)} alone"
        at = {date: [stage for stage in graded if self.stages[stage.name]["date"] == date]
              for date in sorted(self.dates().values())}  # fmt: skip
        when = " and ".join(date if len(at) == 1 else f"{date} ({_numbers(own)})" for date, own in at.items())
        return f"{sums.of_tests(self.tests)}{some}, graded {when}"

    def card(self) -> str:
        """As text, with a line for each test."""
        lines = [self.line()]
        for stage in all_stages():
            own = [test for test in self.tests if test["extra_data"]["stage"] == stage.name]
            score, most = (sum(test[field] for test in own) for field in ("score", "max_score"))
            lines += ["", f"{stage.title:<60}{score:>4g} / {most:g}"] if own else []
            lines += [f"  {_line(test)}" for test in own]
        return "\n".join(lines) + "\n"


def _numbers(stages: list[Stage]) -> str:
    return ", ".join(stage.number for stage in stages)


def _line(test: dict[str, Any]) -> str:
    mark, worth = _MARKS.get(test["extra_data"]["status"], "x"), f"{test['score']:g}/{test['max_score']:g}"
    return f"{mark} {test['name'].partition(' ')[2]:<58}{worth if test['max_score'] else 'report'}"


def read_scores(path: Path) -> Scores | None:
    """None if no stage was graded as a whole, or by an older grader."""
    tests, stages = kept_scores.load(path)
    return Scores(tests, stages) if tests else None
