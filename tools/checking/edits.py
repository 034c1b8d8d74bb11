"""Solutions with some lines changed: mutants (mutant_files.py) and variants (variants.py), many to a file.

    ## name
    Key: value                            lines about it
    @@ layers.h                           an edit, here of another file than the one that students write
     a line that stays
    -one that goes
    +one that comes

The lines that stay or go must be found exactly once; those that stay are there for this alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.checking.in_place import code_of, solution_of
from tools.grading.stages import Stage, short_paths
from tools.setup.toolchain import LabError


@dataclass(frozen=True)
class Edit:
    file: str  # empty: the stage's main source
    find: str
    replace: str


def entries(file: Path) -> dict[str, str]:
    """The texts of a file's entries, by their names."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    found = re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    names = [name for name, _ in found]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise LabError(f"{short_paths(str(file))} has {min(repeated)} twice")
    return dict(found)


def parse(text: str, known: Sequence[str]) -> tuple[dict[str, str], tuple[Edit, ...]]:
    """An entry's lines by their keys, each of which is `known`, and its edits."""
    head, *parts = re.split(r"^@@", text, flags=re.MULTILINE)
    if not parts:
        raise LabError("there is no edit, which begins with @@, under its lines")
    fields: dict[str, str] = {}
    for line in head.strip().splitlines():
        key, colon, value = line.partition(":")
        if not colon or key not in known or key in fields or not value.strip():
            raise LabError(f"cannot read the line '{line}'; known are, once each: {', '.join(known)}")
        fields[key] = value.strip()
    return fields, tuple(map(_edit, parts))


def require(fields: dict[str, str], keys: Iterable[str]) -> None:
    if missing := [key for key in keys if key not in fields]:
        raise LabError(f"lacks the line '{missing[0]}: ...' above the edits")


def _edit(part: str) -> Edit:
    file, *lines = part.rstrip("\n").split("\n")
    if wrong := [line for line in lines if line and line[0] not in " +-"]:
        raise LabError(f"an edit's line begins with a space, + or -, and not as '{wrong[0]}'")
    kept = [(line[:1], line[1:] + "\n") for line in lines]  # an empty line stays
    find, replace = ("".join(text for sign, text in kept if sign != gone) for gone in "+-")
    return Edit(file.strip(), find, replace)


def write_edited(stage: Stage, edits: Iterable[Edit], folder: Path) -> Path:
    """Writes a copy of the solution's folder with these edits; returns its main source."""
    main = solution_of(stage).name
    files = {path.name: path.read_text(encoding="utf-8") for path in code_of(stage)}
    for edit in edits:
        name = edit.file or main
        times = files.get(name, "").count(edit.find)
        if times != 1:
            raise LabError(
                f"no longer fits solutions/{stage.name}: it finds these lines {times} times in {name}, "
                f"and must find them once:\n{edit.find}"
            )
        files[name] = files[name].replace(edit.find, edit.replace)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / main
