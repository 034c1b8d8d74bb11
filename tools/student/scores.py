"""The scores of the last `make test`, from build/grade/results.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.grading import stale
from tools.grading.stages import Stage, all_stages

_MARKS = {"passed": "+", "todo": "o", "skipped": "-"}


@dataclass(frozen=True)
class Scores:
    date: str
    points: float
    max_points: float
    tests: list[dict[str, Any]]
    stages: dict[str, dict[str, Any]]
    partial: bool

    def gap(self, stage: Stage) -> str:
        """What these scores lack for a stage that was begun; empty: nothing."""
        found = self.stages.get(stage.name)
        if not found or self.partial:
            return f"stage {stage.number}: not graded as a whole in the last run; make test grades all"
        if found["sources"] != stale.digest(stage, "assignments"):
            return f"stage {stage.number}: edited since it was graded; make test grades it again"
        return "" if found["compiles"] else f"stage {stage.number} does not compile: make test STAGE={stage.number}"

    def line(self) -> str:
        graded = [stage.number for stage in all_stages() if stage.name in self.stages]
        some = "" if len(graded) == len(all_stages()) else f", of stage {', '.join(graded)} alone"
        return f"{self.points:g} of {self.max_points:g} points{some}, graded {self.date}"

    def card(self) -> str:
        """As text, with a line for each test."""
        lines = [self.line()]
        for stage in all_stages():
            own = [test for test in self.tests if test["extra_data"]["stage"] == stage.name]
            score, most = (sum(test[field] for test in own) for field in ("score", "max_score"))
            lines += ["", f"{stage.title:<60}{score:>4g} / {most:g}"] if own else []
            lines += [f"  {_line(test)}" for test in own]
        return "\n".join(lines) + "\n"


def _line(test: dict[str, Any]) -> str:
    mark, worth = _MARKS.get(test["extra_data"]["status"], "x"), f"{test['score']:g}/{test['max_score']:g}"
    return f"{mark} {test['name'].partition(' ')[2]:<58}{worth if test['max_score'] else 'report'}"


def read_scores(path: Path) -> Scores | None:
    """None if nothing was graded, or by an older grader. What a solution or a GPU got does not count."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        more, most = found["extra_data"], sum(test["max_score"] for test in found["tests"])
        scores = Scores(more["date"], found["score"], most, found["tests"], more["stages"], more["partial"])
        return scores if more["impl"] == "assignments" and scores.tests else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
