"""Reads mutants: a stage's solution with a mistake built in, and what its tests are to say.

tests/mutants/<stage>.diff has those of a stage, one after the other:

    ## name
    Mistake: what the student does
    Killed-by: test_name, another_test    these must fail; the first one with the diagnosis below
    Only: yes                             and no other test may fail
    Says: regular expression              must match the first one's failure; a mere crash or time-out is not enough
    Score: 0                              the points that remain, if they matter
    Loses: 2                              the most points that it costs, if not the sum of its tests after Only
    Because: nothing is sent at all       why no fewer, where they are more than the first test's
    Sanitizer: heap-use-after-free        AddressSanitizer must report exactly that; see tools/checking/sanitizers.py

and then the edits, as in tools/checking/edits.py. Only, Score, Loses, Because and Sanitizer are optional; with
Sanitizer so are Killed-by and Says, if no test need fail without AddressSanitizer.

    python3 -m tools.checking.mutant_files 01_naive_ddp averaged_twice FOLDER      writes the solution with that mistake
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.checking import edits
from tools.checking.edits import Edit
from tools.grading.stages import Stage, choose, named
from tools.setup.toolchain import ROOT, LabError

_REQUIRED = ("Mistake", "Killed-by", "Says")
_FOR_SANITIZER_ALONE = ("Mistake", "Sanitizer")
_KNOWN = (*_REQUIRED, "Only", "Score", "Loses", "Because", "Sanitizer")


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
    return edits.entries(file_of(stage))


def parse(name: str, text: str) -> Mutant:
    fields, changes = edits.parse(text, _KNOWN)
    edits.require(fields, _FOR_SANITIZER_ALONE if fields.keys() == set(_FOR_SANITIZER_ALONE) else _REQUIRED)
    if fields.get("Only", "yes") != "yes":
        raise LabError("'Only:' can only be yes; leave the line out otherwise")
    try:
        says = re.compile(fields.get("Says", ""), re.DOTALL)
        score, loses = (float(fields[key]) if key in fields else None for key in ("Score", "Loses"))
    except (re.error, ValueError) as error:
        raise LabError(f"cannot read Says, Score or Loses: {error}") from None
    killed_by = tuple(test.strip() for test in fields["Killed-by"].split(",")) if "Killed-by" in fields else ()
    because, sanitizer, mistake = (fields.get(key, "") for key in ("Because", "Sanitizer", "Mistake"))
    return Mutant(name, mistake, killed_by, "Only" in fields, says, score, loses, because, sanitizer, changes, text)


def run(stage_name: str, name: str, folder: str) -> int:
    try:
        stage = named(stage_name)
        texts = entries(stage)
        edits.write_edited(stage, parse(name, texts[choose("mutant", name, texts)]).edits, Path(folder))
    except LabError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
