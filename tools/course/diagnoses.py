"""What a class's failures have in common: those whose first lines say the same, but for numbers and names."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

SHOWN = 30
# What differs between two students with the same misconception: which run, rank, step, tensor, number.
_PLACE = re.compile(r"^in \"[^\"]*\" \([^)]*\)( and those like it)?: |^world size \d+(, rank [\d, ]+)?: ")
_FILE = re.compile(r"\S*[\w-]+\.(cpp|h)(:\d+)*")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`")
_NUMBERS = re.compile(r"(?<![\w.])[-+]?(\d+(\.\d+)?(e[-+]?\d+)?|inf|nan)(?![\w.]*\d)(\s*,\s*\.\.\.)?", re.IGNORECASE)
_LIST = re.compile(r"#(\s*[,x]\s*#)+|\[[#\s,]*\]")
_DTYPE = re.compile(r"\b(b?float(16|32|64)|bfloat16|half|double|u?int(8|16|32|64))\b")
_DIAGNOSIS = "diagnosis: "


class HasFailures(Protocol):
    student: str
    failures: Mapping[object, str]


@dataclass
class Diagnosis:
    """`example`: the first line of one of them, as it was printed."""

    text: str
    example: str = ""
    students: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)


def first_line(output: str) -> str:
    """The line that says what is wrong; with the diagnosis, where one is given below it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    given = next((line for line in lines[1:8] if line.startswith(_DIAGNOSIS)), "")
    return " ".join(filter(None, (lines[0], given))) if lines else ""


def without_particulars(line: str) -> str:
    """What is said, of whichever run, rank, tensor and number."""
    text = _PLACE.sub("", line)
    text = _QUOTED.sub("...", _FILE.sub("file", text))
    text = _DTYPE.sub("dtype", text)
    return re.sub(r"\s+", " ", _LIST.sub("#", _NUMBERS.sub("#", text))).strip()


def grouped(rows: Iterable[HasFailures]) -> list[Diagnosis]:
    """Those that most students have first. A student counts once, however many tests say the same."""
    found: dict[str, Diagnosis] = {}
    for row in rows:
        for test, output in row.failures.items():
            line = first_line(output)
            if not line:
                continue
            group = found.setdefault(key := without_particulars(line), Diagnosis(key, line))
            if row.student not in group.students:
                group.students.append(row.student)
            if test.claim not in group.tests:
                group.tests.append(test.claim)
    return sorted(found.values(), key=lambda group: (-len(group.students), group.text))


def table(rows: Iterable[HasFailures]) -> str:
    groups = grouped(rows)
    lines = ["<tr><th>students</th><th>what the first line says</th><th>tests</th><th></th></tr>"]
    for group in groups[:SHOWN]:
        details = f"for example: {group.example} ({group.students[0]}). All: {', '.join(group.students)}"
        lines.append(f"<tr><td>{len(group.students)}</td><td>{html.escape(group.text)}</td>"
                     f"<td>{html.escape(', '.join(group.tests))}</td>"
                     f"<td><details><summary>example</summary>{html.escape(details)}</details></td></tr>")  # fmt: skip
    if len(groups) > SHOWN:
        lines.append(f"<tr><td></td><td>and {len(groups) - SHOWN} more</td><td></td><td></td></tr>")
    return "\n".join(lines)
