"""How the writeup is set: its files, Typst, and how errors in the files are reported."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.grading import stages
from tools.grading.stages import Stage
from tools.report.writeup_results import Origin
from tools.setup import toolchain
from tools.setup.toolchain import ROOT, LabError

try:
    import typst
except ImportError:  # require_typst() says so
    typst = None

MAIN = "writeup/main.typ"
QUESTIONS = "writeup/questions.typ"


class TypstFailure(Exception):
    """Errors in Typst files, one line each: file:line:column, what is wrong, what may help."""


@dataclass
class Writeup:
    """What to set, from the checkout in `root`."""

    impl: str
    preset: str
    stages: list[Stage]
    root: Path = ROOT

    @property
    def answers(self) -> str:
        return "writeup/answers" if self.impl == "assignments" else "solutions/writeup"

    @property
    def output(self) -> Path:
        part = self.stages[0].name if len(self.stages) < len(stages.all_stages()) else ""
        return self.root / "writeup/out" / ".".join(filter(None, ("writeup", part, self.impl, self.preset, "pdf")))

    @property
    def origin(self) -> Origin:
        in_gallery = self.impl == "solutions"
        return Origin(self.root / "figures" / ("gallery" if in_gallery else "out"), self.impl, self.preset, in_gallery)


def require_typst() -> None:
    if not typst:
        raise LabError(
            f"{sys.executable} has no typst, which sets the writeup. "
            f"Install it: {sys.executable} -m pip install typst=={toolchain.pinned('typst')}"
        )


def questions_of(writeup: Writeup) -> dict[str, list[dict[str, Any]]]:
    """The questions of each stage: id, points and shows (kind and name of figures and tables)."""
    (found,) = run_typst(writeup, {}, ("questions",), QUESTIONS)[1]["questions"]
    wanted = {stage.name for stage in writeup.stages}
    return {stage: questions for stage, questions in found if stage in wanted}


def run_typst(
    writeup: Writeup, inputs: dict[str, str], queries: Sequence[str], file: str = MAIN
) -> tuple[bytes, dict[str, list[Any]]]:
    """The PDF, and what Typst finds under the labels `queries`."""
    names = [stage.name for stage in stages.all_stages()]
    there = [name for name in names if (writeup.root / f"writeup/questions/{name}.typ").exists()]
    given = {
        "answers": f"/{writeup.answers}",
        "stages": " ".join(stage.name for stage in writeup.stages),
        "all-stages": " ".join(there),
    }
    # Only Typst's own fonts, so that the same sources give the same pages everywhere.
    settings = {"root": str(writeup.root), "sys_inputs": given | inputs, "ignore_system_fonts": True}
    with contextlib.chdir(writeup.root):  # so that Typst's file names are relative to it
        try:  # first, because a query does not say where an error is
            pdf = typst.compile(file, format="pdf", **settings)
        except typst.TypstError as error:
            diagnostic = error.diagnostic or str(error)
            raise TypstFailure("\n".join(error_lines(diagnostic, writeup.answers))) from None
        found = {label: json.loads(typst.query(file, f"<{label}>", field="value", **settings)) for label in queries}
    return pdf, found


def error_lines(diagnostic: str, answers: str) -> list[str]:
    """Typst's errors, one line each, with a place in the answers if there is one: the error may be found elsewhere, in
    something that was called there."""
    lines: list[str] = []
    for block in re.split(r"^(?=error: )", diagnostic, flags=re.MULTILINE):
        if not block.startswith("error: "):
            continue
        message = block.splitlines()[0].removeprefix("error: ").removeprefix("panicked with: ")
        message = message.removeprefix("assertion failed: ")
        places = [place.lstrip("/") for place in re.findall(r"┌─ (\S+:\d+:\d+)", block)]
        place = next((each for each in places if each.startswith(answers)), places[0] if places else MAIN)
        hints = re.findall(r"^ *= hint: (.*)", block, re.MULTILINE)
        lines.append("; ".join([f"{place}: {message}", *hints[:1]]))
    return list(dict.fromkeys(lines)) or [f"{MAIN}: {diagnostic.strip().splitlines()[0]}"]


def check_files(writeup: Writeup) -> None:
    answers = ["about", *(stage.name for stage in writeup.stages)]
    for name in (MAIN, QUESTIONS, *(f"{writeup.answers}/{each}.typ" for each in answers)):
        try:
            (writeup.root / name).read_bytes().decode()
        except FileNotFoundError:
            raise TypstFailure(f"{name}: there is no such file; restore it: {toolchain.how_to_restore(name)}") from None
        except OSError as error:
            raise TypstFailure(f"{name}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise TypstFailure(f"{name}:{line}: is not UTF-8; save it in that encoding") from None
