"""build/grade/report.html: the last run's scorecard, and each failed test with a picture of the run that breaks it.

One file, for any browser, without the network. What comes from a student is text there, never markup. `make report`
runs this module, which opens the page.
"""

from __future__ import annotations

import re
import sys
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.grading.causes import blocks
from tools.grading.page import pictures
from tools.grading.running.records import printable
from tools.grading.scorecard import again
from tools.grading.scoring.results import Report, StageReport, Status, TestResult, replace_file
from tools.grading.stages import make_command, short_paths
from tools.grading.terminal import ending_of
from tools.setup.toolchain import BUILD_DIR, VENV, LabError

FILE = "report.html"
TEMPLATE = Path(__file__).with_name(FILE)
LARGEST = 900_000  # characters of all pictures together, of a page of at most a megabyte
_NUMBERS = re.compile(r"\n *(?:\[[\d, ]*\]: got .*|\(\d+ of \d+ elements differ\))")
WITHOUT_JINJA = "There is no page with pictures: jinja2 is missing (python3 -m pip install jinja2)."


@dataclass
class Picture:
    """Finished SVG. `values`: of a tensor, where the first elements differ."""

    title: str
    charts: list[tuple[str, str]]
    marks: list[tuple[int, str]]  # number and kind
    memory: str
    values: dict[str, Any] | None
    rank: int  # the first that is marked

    def __len__(self) -> int:
        return len(self.memory) + sum(len(svg) for _, svg in self.charts)


def picture_of(record: dict[str, Any]) -> Picture | None:
    """None where a record cannot be drawn: a picture is no reason for a run to end without its scores."""
    try:
        marks = [mark for chart in record["charts"] for mark in chart.get("marks", ())]
        numbered = [(number, str(mark["kind"])) for number, mark in enumerate(marks, start=1)]
        memory = pictures.memory(record["memory"]) if record.get("memory") else ""
        rank = next((int(mark["lane"]) for mark in marks), 0)
        return Picture(str(record["title"]), pictures.charts(record), numbered, memory, record.get("values"), rank)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError):
        return None


@dataclass
class Test:
    """What the page says of one test."""

    stage: StageReport
    result: TestResult
    picture: Picture | None
    left_out: bool  # the page has no room for its picture
    commands: list[tuple[str, str]]  # what for, and what to type
    hint: str
    change: str  # since the last complete run
    block: list[TestResult]  # those that fail for the same reason, if it fails: the first one says it

    @property
    def failures(self) -> list[str]:
        """What is said of it, without the numbers that the picture's table has."""
        tabled = self.picture and self.picture.values
        return [_NUMBERS.sub("", failure) if tabled else failure for failure in self.result.failures]


Before = dict[tuple[str, str], str]  # the statuses of the last complete run, by stage and test


def before(tests: list[dict[str, Any]]) -> Before:
    return {(test["extra_data"]["stage"], test["extra_data"]["test"]): test["extra_data"]["status"] for test in tests}


def write(path: Path, report: Report, before: Before, edit: Callable[[str], str] = str, reload: bool = False) -> str:
    """Where the page is, for whoever reads the scorecard; or why there is none, which changes no score. `edit`: what
    is done to its text at last."""
    try:
        text = render(TEMPLATE, report=report, tests=list(_tests(report, before)), reload=reload)
        replace_file(path, printable(edit(short_paths(text)), len(text)).encode())
        opens = " (make report opens it)" if path == BUILD_DIR / "grade" / FILE else ""
        return f"Page with pictures: {short_paths(str(path))}{opens}"
    except ImportError:
        path.unlink(missing_ok=True)
        return WITHOUT_JINJA
    except OSError as error:
        return f"There is no page with pictures: {path} could not be written: {error.strerror}"


def render(template: Path, **content: object) -> str:
    """A page, in which all that is filled in is text. Jinja2 came with the set-up, maybe for another Python than this
    one; it is the same for all."""
    try:
        import jinja2
    except ImportError:
        sys.path.extend(map(str, VENV.glob("lib/python3*/site-packages")))
        import jinja2
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, TEMPLATE.parent]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template.name).render(content)


def _tests(report: Report, before: Before) -> Iterator[Test]:
    room = LARGEST
    for stage in report.stages:
        together = blocks(result for result in stage.results if result.status is Status.FAILED)
        for result in stage.results:
            picture = picture_of(result.picture) if result.picture else None
            hints = "\n".join(filter(None, (result.spec.hint, result.spec.more)))
            commands = _commands(report, stage, result, picture.rank if picture else 0)
            left_out = picture is not None and len(picture) > room
            picture = None if left_out else picture
            room -= len(picture) if picture else 0
            was = before.get((stage.stage.name, result.spec.name), result.status.value)
            change = "" if was == result.status.value else f"was {was.replace('_', ' ')}"
            block = next((block for block in together if result in block), [])
            yield Test(stage, result, picture, left_out, commands, hints, change, block)


def _commands(report: Report, stage: StageReport, result: TestResult, rank: int) -> list[tuple[str, str]]:
    about = {"test": result.spec.name, "seed": report.seed, "device": report.device}
    repeat = again(report, stage.stage, result)
    return [
        ("repeat", repeat),
        ("debug", make_command("debug", stage.stage, report.impl, rank=rank, **about)),
        ("trace for Perfetto", f"{repeat} TRACE=step.json"),
    ]


def _open() -> int:
    page = BUILD_DIR / "grade" / FILE
    if not page.exists():
        raise LabError("There is no report yet: make test writes it")
    print(page)
    webbrowser.open(page.absolute().as_uri())
    return 0


if __name__ == "__main__":
    sys.exit(ending_of("make report", _open))
