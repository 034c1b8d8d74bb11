"""What differs from one course to the next: course.json. All of it may be left out.

name                of the folder and the archive that are handed out: "ddp-lab"
course, term        as the README says them: "PAR 101, Parallel Programs", "autumn 2026"
timezone            of all times below: "Europe/Berlin"
due                 by stage: {"01": "2026-10-19 18:00"}; a day without a time ends at 23:59:59
links               by what they lead to: {"Questions": "https://forum.example.edu/ddp"}
partial             true: a test that fails gets the share of its points for the runs in which its claim holds
assistants          the course's own rule for language models, a sentence or more: AGENTS.md has it first
extension           false leaves out the stages beyond the 100 points: nothing that is handed out speaks of them
visibility          of "tests", of "hidden" tests and of "stdout" on Gradescope: visible, hidden, after_due_date or
                    after_published
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, time, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tools.setup.toolchain import ROOT, LabError

FILE = "course.json"
END_OF_DAY = time(23, 59, 59)
_KINDS = {str: "a text", bool: "true or false", dict: 'an object such as {"01": "2026-10-19 23:59"}'}
KINDS, WHENS = ("tests", "hidden", "stdout"), ("visible", "hidden", "after_due_date", "after_published")


@dataclass(frozen=True)
class Course:
    name: str = "ddp-lab"
    course: str = ""
    term: str = ""
    timezone: tzinfo = UTC
    due: dict[str, datetime] = field(default_factory=dict)
    partial: bool = False
    links: dict[str, str] = field(default_factory=dict)
    assistants: str = ""
    extension: bool = True
    visibility: dict[str, str] = field(default_factory=dict)


def load(root: Path = ROOT) -> Course:
    """The course of this checkout; one with nothing but defaults where there is no course.json."""
    try:
        text = (root / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return Course()
    return parse(text)


def parse(text: str) -> Course:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise LabError(f"{FILE} is not JSON: {error}") from None
    known = [each.name for each in fields(Course)]
    if not isinstance(given, dict) or (unknown := sorted({*given} - {*known})):
        what = f"has an unknown field, {unknown[0]}" if isinstance(given, dict) else "is not an object, {...}"
        raise LabError(f"{FILE} {what}. Its fields are: {', '.join(known)}")
    for name, value in given.items():
        kind = type(getattr(Course(), name))
        if kind in _KINDS and not isinstance(value, kind):
            raise _wrong(name, _KINDS[kind], value)
    about = Course(**given)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", about.name):
        raise _wrong("name", 'a name for a folder, such as "ddp-lab"', about.name)
    if not ({*about.visibility} <= {*KINDS} and all(when in WHENS for when in about.visibility.values())):
        raise _wrong("visibility", f"an object of {', '.join(KINDS)}, each one of {', '.join(WHENS)}", about.visibility)
    zone = _zone(given.get("timezone", "UTC"))
    due = {stage: _end_of(f"due, {stage}", when, zone) for stage, when in given.get("due", {}).items()}
    return replace(about, timezone=zone, due=due)


def _wrong(name: str, wanted: str, value: Any) -> LabError:
    return LabError(f"{FILE}: {name} should be {wanted}, not {json.dumps(value)}")


def _zone(value: Any) -> tzinfo:
    try:
        return UTC if value == "UTC" else ZoneInfo(value)  # UTC is known without tzdata
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise _wrong("timezone", 'a name such as "Europe/Berlin", which the package tzdata has', value) from None


def _end_of(name: str, value: Any, zone: tzinfo) -> datetime:
    """A time, or the end of a day."""
    try:
        found = datetime.fromisoformat(value)
    except (ValueError, TypeError):
        raise _wrong(name, 'a day or a time, such as "2026-10-19 23:59"', value) from None
    if len(value) == len("2026-10-19"):
        found = datetime.combine(found.date(), END_OF_DAY)
    return found if found.tzinfo else found.replace(tzinfo=zone)
