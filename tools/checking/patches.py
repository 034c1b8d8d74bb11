"""Applies unified diffs, so that no `patch` program is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.setup.toolchain import LabError

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")


@dataclass
class Hunk:
    line: int  # where the patch expects it, from 0
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


def split_preamble(patch: str) -> tuple[str, str]:
    """The free text before the diff of a single file, and the diff."""
    preamble, found, diff = patch.partition("\n--- ")
    if not found or "\n--- " in diff:
        raise LabError("this is not a unified diff of one file")
    return preamble, f"--- {diff}"


def apply(diff: str, text: str) -> str:
    """Applies the diff of one file to `text`; a hunk may have moved, but its context must be there."""
    lines, shift = text.splitlines(keepends=True), 0
    for hunk in _hunks(diff):
        at = _find(hunk.old, lines, hunk.line + shift)
        if at is None:
            context = "".join(hunk.old)
            raise LabError(f"no longer fits; make it anew from the file as it is. What it looks for:\n{context}")
        lines[at : at + len(hunk.old)] = hunk.new
        shift = at - hunk.line + len(hunk.new) - len(hunk.old)
    return "".join(lines)


def _hunks(diff: str) -> Iterator[Hunk]:
    hunk = None
    for line in diff.splitlines(keepends=True)[2:]:
        if found := _HUNK.match(line):
            if hunk:
                yield hunk
            hunk = Hunk(int(found[1]) - 1)
        elif hunk and not line.startswith("\\"):  # "\ No newline at end of file"
            if line[0] in " -\n":
                hunk.old.append(line[1:] or "\n")
            if line[0] in " +\n":
                hunk.new.append(line[1:] or "\n")
    if hunk:
        yield hunk


def _find(wanted: list[str], lines: list[str], near: int) -> int | None:
    """The index of `wanted` in `lines` that is closest to `near`; None if it does not occur."""
    places = range(len(lines) - len(wanted) + 1)
    fitting = (place for place in places if lines[place : place + len(wanted)] == wanted)
    return min(fitting, key=lambda place: abs(place - near), default=None)
