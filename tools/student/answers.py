"""Which questions of the writeup have no answer yet, without Typst: `make writeup` looks more closely."""

from __future__ import annotations

import re
from pathlib import Path

_ANSWER = re.compile(r'^#answer\("([^"]+)"\)\[(.*?)^\]', re.MULTILINE | re.DOTALL)


def unanswered(root: Path) -> list[str]:
    """The questions whose answer is missing, empty, or has #todo in it."""
    found = []
    for questions in sorted((root / "writeup" / "questions").glob("*.typ")):
        asked = re.findall(r'\bquestion\(\s*"([^"]+)"', questions.read_text(errors="replace"))
        answers = root / "writeup" / "answers" / questions.name
        texts = dict(_ANSWER.findall(answers.read_text(errors="replace"))) if answers.exists() else {}
        found += [name for name in asked if not texts.get(name, "").strip() or "#todo" in texts[name]]
    return found
