"""Reads mutants: a stage's solution with a mistake built in, and what its tests are to say.

tests/mutants/<stage>.diff has those of a stage, one after the other:

    ## name
    Mistake: what the student does
    Killed-by: test_name, another_test    these must fail; the first one with the diagnosis below
    Only: yes                             and no other test may fail
    Says: regular expression              must match the first one's failure; a mere crash or time-out is not enough
    Score: 0                              the points that remain, if they matter
    Loses: 2                              the points that it costs; needless after Only or Score, which say it
    Because: nothing is sent at all       why no fewer, where they are more than the first test's
    Sanitizer: heap-use-after-free        AddressSanitizer must report exactly that; see tools/checking/sanitizers.py
    @@ layers.h                           an edit, here of another file than the one that students write
     a line that stays
    -one that goes
    +one that comes

The lines that stay or go must be found exactly once; those that stay are there for this alone. Only, Score,
Loses, Because and Sanitizer are optional; with Sanitizer so are Killed-by and Says, if no test need fail without
AddressSanitizer.

    python3 -m tools.checking.mutant_files 01_naive_ddp averaged_twice FOLDER      writes the solution with that mistake
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.checking.in_place import code_of, solution_of
from tools.grading.stages import Stage, choose, named
from tools.setup.toolchain import ROOT, LabError

_REQUIRED = ("Mistake", "Killed-by", "Says")
_FOR_SANITIZER_ALONE = ("Mistake", "Sanitizer")
_KNOWN = (*_REQUIRED, "Only", "Score", "Loses", "Because", "Sanitizer")


@dataclass(frozen=True)
class Edit:
    file: str  # empty: the stage's main source
    find: str
    replace: str


@dataclass(frozen=True)
class Mutant:
    name: str
    mistake: str
    killed_by: tuple[str, ...]  # empty: left to AddressSanitizer
    only: bool
    says: re.Pattern[str]
    score: float | None
    loses: float | None
    because: str  # they are more than the first test's points
    sanitizer: str  # the kind of AddressSanitizer's report; empty: none is expected
    edits: tuple[Edit, ...]
    text: str  # all of it

    def title(self, stage: Stage) -> str:
        return f"tests/mutants/{stage.name}.diff, {self.name} ({self.mistake})"

    @property
    def exclusive(self) -> str:
        """The only test that kills this mutant, and so is needed; empty if several kill it."""
        return self.killed_by[0] if self.only and len(self.killed_by) == 1 else ""


def file_of(stage: Stage) -> Path:
    return ROOT / "tests" / "mutants" / f"{stage.name}.diff"


def entries(stage: Stage) -> dict[str, str]:
    """The texts of the stage's mutants, by their names."""
    file = file_of(stage)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    found = re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    names = [name for name, _ in found]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise LabError(f"tests/mutants/{file.name} has {min(repeated)} twice")
    return dict(found)


def parse(name: str, text: str) -> Mutant:
    head, *parts = re.split(r"^@@", text, flags=re.MULTILINE)
    if not parts:
        raise LabError("there is no edit, which begins with @@, under its lines")
    fields = {}
    for line in head.strip().splitlines():
        key, colon, value = line.partition(":")
        if not colon or key not in _KNOWN or key in fields or not value.strip():
            raise LabError(f"cannot read the line '{line}'; known are, once each: {', '.join(_KNOWN)}")
        fields[key] = value.strip()
    required = _FOR_SANITIZER_ALONE if fields.keys() == set(_FOR_SANITIZER_ALONE) else _REQUIRED
    if missing := [key for key in required if key not in fields]:
        raise LabError(f"lacks the line '{missing[0]}: ...' above the edits")
    if fields.get("Only", "yes") != "yes":
        raise LabError("'Only:' can only be yes; leave the line out otherwise")
    try:
        says = re.compile(fields.get("Says", ""), re.DOTALL)
        score, loses = (float(fields[key]) if key in fields else None for key in ("Score", "Loses"))
    except (re.error, ValueError) as error:
        raise LabError(f"cannot read Says, Score or Loses: {error}") from None
    killed_by = tuple(test.strip() for test in fields["Killed-by"].split(",")) if "Killed-by" in fields else ()
    because, sanitizer, mistake = (fields.get(key, "") for key in ("Because", "Sanitizer", "Mistake"))
    edits = tuple(map(_edit, parts))
    return Mutant(name, mistake, killed_by, "Only" in fields, says, score, loses, because, sanitizer, edits, text)


def _edit(part: str) -> Edit:
    file, *lines = part.rstrip("\n").split("\n")
    if wrong := [line for line in lines if line and line[0] not in " +-"]:
        raise LabError(f"an edit's line begins with a space, + or -, and not as '{wrong[0]}'")
    kept = [(line[:1], line[1:] + "\n") for line in lines]  # an empty line stays
    find, replace = ("".join(text for sign, text in kept if sign != gone) for gone in "+-")
    return Edit(file.strip(), find, replace)


def mutated(mutant: Mutant, files: dict[str, str], main: str) -> dict[str, str]:
    """The solution's `files`, by name, with the mistake built in. `main` is the name of the one that students write."""
    files = dict(files)
    for edit in mutant.edits:
        name = edit.file or main
        times = files.get(name, "").count(edit.find)
        if times != 1:
            raise LabError(f"finds these lines {times} times in {name}, and must find them once:\n{edit.find}")
        files[name] = files[name].replace(edit.find, edit.replace)
    return files


def write_mutated(stage: Stage, mutant: Mutant, folder: Path) -> Path:
    """Writes a copy of the solution's folder with the mistake built in; returns its main source."""
    main = solution_of(stage).name
    try:
        files = mutated(mutant, {path.name: path.read_text(encoding="utf-8") for path in code_of(stage)}, main)
    except LabError as error:
        raise LabError(f"no longer fits solutions/{stage.name}: it {error}") from None
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / main


def run(stage_name: str, name: str, folder: str) -> int:
    try:
        stage = named(stage_name)
        texts = entries(stage)
        write_mutated(stage, parse(name, texts[choose("mutant", name, texts)]), Path(folder))
    except LabError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
