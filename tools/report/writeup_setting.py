"""How the writeup is set: its files, the Python that has Typst, and how errors in the files are reported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.grading import stages
from tools.grading.stages import Stage
from tools.report.writeup_results import Origin
from tools.setup import toolchain
from tools.setup.toolchain import ROOT, LabError

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
    python: str = sys.executable  # has typst

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


def require_typst(python: str) -> None:
    check = subprocess.run([python, "-c", "import typst"], capture_output=True, check=False)
    if check.returncode:
        raise LabError(
            f"{python} has no typst, which sets the writeup. "
            f"Install it: {python} -m pip install typst=={toolchain.pinned('typst')}"
        )


def questions_of(writeup: Writeup) -> dict[str, list[dict[str, Any]]]:
    """The questions of each stage: id, points and shows (kind and name of figures and tables)."""
    (found,) = run_typst(writeup, {}, input=QUESTIONS, queries=["questions"])["questions"]
    wanted = {stage.name for stage in writeup.stages}
    return {stage: questions for stage, questions in found if stage in wanted}


def run_typst(writeup: Writeup, inputs: dict[str, str], **request: Any) -> dict[str, list[Any]]:
    """Returns what Typst finds under the labels `queries`; writes the PDF if there is an `output`."""
    inputs = {
        "answers": f"/{writeup.answers}",
        "stages": " ".join(stage.name for stage in writeup.stages),
        "all-stages": " ".join(
            stage.name
            for stage in stages.all_stages()
            if (writeup.root / f"writeup/questions/{stage.name}.typ").exists()
        ),
        **inputs,
    }
    document = {"root": str(writeup.root), "input": MAIN, "inputs": inputs, **request}
    script = Path(__file__).resolve().with_name("writeup_typst.py")
    # In `root`, so that Typst's file names are relative to it.
    done = subprocess.run(
        [writeup.python, str(script)], cwd=writeup.root, input=json.dumps(document), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise TypstFailure(f"{MAIN}: Typst ended with: {last}")
    answer = json.loads(done.stdout)
    if "diagnostic" in answer:
        raise TypstFailure("\n".join(error_lines(answer["diagnostic"], writeup.answers)))
    return answer["found"]


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
