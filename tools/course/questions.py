"""Two questions for each student about what their own code did, drawn by the seed: a page with answers for whoever
teaches, and one without for each student. tests/support/questions.h has what can be asked."""

from __future__ import annotations

import json
import random
from pathlib import Path

from tools.course import pages

CANDIDATES = "candidates.json"  # has the answers: not for the student
EACH = 2


def write(folder: Path, students: dict[str, Path], seed: int) -> None:
    """`students`: their folders, by name."""
    asked = {name: drawn(_candidates(own), f"{seed} {name}") for name, own in students.items()}
    for name, own in students.items():
        (own / "questions.html").unlink(missing_ok=True)
        if asked[name]:
            _write_page(own, f"Questions about your run, {name}", {name: asked[name]}, answers=False)
    _write_page(folder, "Questions for each student, with answers", asked, answers=True)


def _write_page(folder: Path, title: str, students: dict[str, list[dict[str, object]]], answers: bool) -> None:
    pages.write(folder / "questions.html", "questions.html", title=title, students=students.items(), answers=answers)


def drawn(candidates: list[dict[str, object]], seed: str) -> list[dict[str, object]]:
    """Of two stages if there are so many, and never two of a kind."""
    draw, left, asked = random.Random(seed), list(candidates), []
    while left and len(asked) < EACH:
        stages = {each["stage"] for each in asked}
        fresh = [each for each in left if each["stage"] not in stages] or left
        kind = draw.choice(sorted({(each["stage"], each["about"]) for each in fresh}))
        asked.append(draw.choice([each for each in fresh if (each["stage"], each["about"]) == kind]))
        left = [each for each in left if (each["stage"], each["about"]) != kind]
    return asked


def _candidates(folder: Path) -> list[dict[str, object]]:
    try:
        by_stage = json.loads((folder / CANDIDATES).read_bytes())
        return [{**question, "stage": stage} for stage, found in by_stage.items() for question in found]
    except (OSError, ValueError, AttributeError, TypeError):
        return []
