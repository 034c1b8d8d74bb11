"""Two questions for each student about what their own code did, drawn by the seed: a page with answers for whoever
teaches, and one without for each student. tests/support/questions.h has what can be asked."""

from __future__ import annotations

import html
import json
import random
from pathlib import Path

from tools.course.class_table import write_page

CANDIDATES = "candidates.json"  # has the answers: not for the student
EACH = 2
_TITLE = "Questions about your run"


def write(folder: Path, students: dict[str, Path], seed: int) -> None:
    """`students`: their folders, by name."""
    parts = []
    for name, own in students.items():
        asked = drawn(_candidates(own), f"{seed} {name}")
        (own / "questions.html").unlink(missing_ok=True)
        if asked:
            write_page(own / "questions.html", f"{_TITLE}, {name}", _text(asked, answers=False))
        parts.append(f"<h2>{html.escape(name)}</h2>" + (_text(asked, answers=True) or "<p>Nothing can be asked.</p>"))
    write_page(folder / "questions.html", "Questions for each student, with answers", *parts)


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


def _text(asked: list[dict[str, object]], answers: bool) -> str:
    parts = []
    for number, each in enumerate(asked, start=1):
        events = "\n".join(f"<li>{html.escape(str(line))}</li>" for line in each["evidence"])
        title = f"Stage {str(each['stage'])[:2]}, {each['about']}"
        parts.append(f"<h3>{number}. {html.escape(title)}</h3>"
                     f"<p>{html.escape(str(each['asked']))}</p>")  # fmt: skip
        if answers:
            parts.append(f"<p><b>Answer.</b> {html.escape(str(each['answer']))}</p>")
        parts.append(f"<details><summary>what happened there, in the run &quot;{html.escape(str(each['body']))}&quot;"
                     f"</summary><ol>{events}</ol></details>")  # fmt: skip
    return "\n".join(parts)
