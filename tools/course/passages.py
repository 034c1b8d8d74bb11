"""Marks in a Markdown text that are filled in when it is handed out. Each is a line of its own:

<!-- extension -->        from here ...
<!-- /extension -->       ... to here is not handed out by a course without the extension;

<!-- repository -->       ... to <!-- /repository --> is not handed out at all;

<!-- course -->           is replaced by the course's name, dates and links;

<!-- rule -->             by the course's own rule for assistants, if it has one.
"""

from __future__ import annotations

import re

from tools.setup.toolchain import LabError
from tools.student.course import Course

_EXTENSION = re.compile(r"^<!-- extension -->\n(.*?)^<!-- /extension -->\n", re.MULTILINE | re.DOTALL)
_REPOSITORY = re.compile(r"^<!-- repository -->\n.*?^<!-- /repository -->\n", re.MULTILINE | re.DOTALL)
_COURSE = re.compile(r"^<!-- course -->\n", re.MULTILINE)
_RULE = re.compile(r"^<!-- rule -->\n", re.MULTILINE)
_LEFT = re.compile(r"<!-- /?(extension|repository)\b.*")
_EMPTY_LINES = re.compile(r"\n{3,}")


def for_students(text: str, name: str, course: Course) -> str:
    """The text as it is handed out; `name` is its file's, for messages."""
    text = _REPOSITORY.sub("", text)
    text = _COURSE.sub(lambda _: course_passage(course), text)
    text = _EXTENSION.sub(r"\1" if course.extension else "", text)
    text = _RULE.sub(lambda _: rule_passage(course), text)
    if left := _LEFT.search(text):
        line = text.count("\n", 0, left.start()) + 1
        raise LabError(f"{name}: the mark {left[0]} (about line {line}) has no other end; tools/course/passages.py")
    return _EMPTY_LINES.sub("\n\n", text)


def rule_passage(course: Course) -> str:
    rule = course.assistants.strip()
    return f"**This course's own rule, which goes before all below:** {rule}\n\n" if rule else ""


def course_passage(course: Course) -> str:
    """Name, dates and links; empty if course.json has none."""
    title = ", ".join(filter(None, (course.course, course.term)))
    dates = [f"| {stage} | {when:%A, %d %B %Y, %H:%M %Z} |" for stage, when in sorted(course.due.items())]
    table = ["| Stage | Due |", "|---|---|", *dates] if dates else []
    links = [f"- [{what}]({where})" for what, where in course.links.items()]
    blocks = [[f"**{title}**"] if title else [], table, links]
    return "\n\n".join("\n".join(block) for block in blocks if any(block)) + "\n" if any(map(any, blocks)) else ""
