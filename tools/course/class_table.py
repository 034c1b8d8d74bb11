"""The results of a class: a CSV with a line for each student, and a page with a bar for each test and with what
failures have in common.

The page is templates/class.html, filled in. What comes from a student is text there, never markup."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tools.grading.page.report_page import render
from tools.grading.scoring.results import replace_file
from tools.student.course import Course

# In the order in which a bar shows them; grading/scoring/results.py says what each means. A stage that could not be
# built says nothing about single claims.
NOT_BUILT = "not_built"
KINDS = ("passed", "failed", "not_judged", "todo", NOT_BUILT, "not_run", "skipped")
BINS = 10
SHOWN = 30  # diagnoses
LONGEST_LINE = 500  # characters of what a failure says, which a student may have written
# What differs between two students with the same misconception: which run, rank, step, tensor, number.
_PLACE = re.compile(r"^in \"[^\"]*\" \([^)]*\)( and those like it)?: |^world size \d+(, rank [\d, ]+)?: ")
_FILE = re.compile(r"(?<!\S)\S*[\w-]\.(cpp|h)(:\d+)*")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`")
_NUMBERS = re.compile(r"(?<![\w.])[-+]?(\d+(\.\d+)?(e[-+]?\d+)?|inf|nan)(?![\w.]*\d)(\s*,\s*\.\.\.)?", re.IGNORECASE)
_LIST = re.compile(r"#(\s*[,x]\s*#)+|\[[#\s,]*\]")
_DTYPE = re.compile(r"\b(b?float(16|32|64)|bfloat16|half|double|u?int(8|16|32|64))\b")
_DIAGNOSIS = "diagnosis: "


@dataclass(frozen=True)
class Test:
    stage: str
    name: str
    points: float
    extension: bool = False
    title: str = ""

    @property
    def claim(self) -> str:
        return f"{self.stage[:2]} {self.title or self.name.replace('_', ' ')}"


@dataclass
class Row:
    """A student. `problem`: why there are no results; `earned`: the points, by stage; `beyond`: the stages of the
    extension, whose points are a sum of their own."""

    student: str
    verdicts: dict[Test, str] = field(default_factory=dict)
    earned: dict[str, float] = field(default_factory=dict)
    beyond: set[str] = field(default_factory=set)
    problem: str = ""
    failures: dict[Test, str] = field(default_factory=dict)  # what failed tests said
    folder: str = ""  # the student's
    written: dict[str, float] = field(default_factory=dict)  # of the writeup, by stage, as far as it is marked
    changed: list[str] = field(default_factory=list)  # questions whose answer is another than the one that was marked

    @property
    def total(self) -> float:
        return _sum(self.earned, self.beyond, False)

    @property
    def extension(self) -> float:
        return _sum(self.earned, self.beyond, True)

    def writeup(self, beyond: bool) -> str:
        """Its points; empty where nothing is marked."""
        marked = any((stage in self.beyond) is beyond for stage in self.written)
        return f"{_sum(self.written, self.beyond, beyond):g}" if marked else ""


def _sum(by_stage: dict[str, float], of_extension: set[str], beyond: bool) -> float:
    return round(sum(points for stage, points in by_stage.items() if (stage in of_extension) is beyond), 2)


def row_of(student: str, folder: Path) -> Row:
    row = Row(printable_name(student), folder=folder.name)
    try:
        if (folder / "problem").exists():
            row.problem = (folder / "problem").read_text(errors="replace")
        for test in json.loads((folder / "results.json").read_bytes())["tests"]:
            about = test["extra_data"]
            verdict = NOT_BUILT if about.get("problem") else about["status"]
            claim = Test(
                about["stage"], about["test"], test["max_score"], about.get("extension", False), about.get("title", "")
            )
            row.beyond |= {claim.stage} if claim.extension else set()
            row.verdicts[claim] = verdict
            if verdict in ("failed", NOT_BUILT):
                row.failures[claim] = test.get("output", "")
            row.earned[about["stage"]] = row.earned.get(about["stage"], 0) + test["score"]
    except (OSError, ValueError, KeyError, TypeError):
        row.problem = row.problem or "there is no results.json that can be read; log.txt may say why"
    return row


def write(folder: Path, rows: list[Row], course: Course) -> None:
    tests = list(dict.fromkeys(test for row in rows for test in row.verdicts))
    stages = list(dict.fromkeys(test.stage for test in tests))
    beyond = any(test.extension for test in tests)
    with (folder / "scores.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        extension = ["extension", "writeup of the extension"] if beyond else []
        table.writerow(
            ["student", "points", "writeup", *extension, *stages, "problem", *(test.claim for test in tests)]
        )
        for row in rows:
            points = [row.earned.get(stage, 0) for stage in stages]
            verdicts = [row.verdicts.get(test, "") for test in tests]
            sums = [row.total, row.writeup(False), *((row.extension, row.writeup(True)) if beyond else ())]
            table.writerow([as_text(row.student), *sums, *points, as_text(row.problem), *verdicts])
    write_page(
        folder / "class.html",
        "class.html",
        title=", ".join(filter(None, (course.course, course.term, course.name))),
        summary=_summary(rows),
        bins=_histogram(rows, sum(test.points for test in tests if not test.extension)),
        kinds=KINDS,
        bars=[Bar(test, rows) for test in tests],
        diagnoses=_grouped(rows),
        shown=SHOWN,
        stages=stages,
        beyond=beyond,
        rows=rows,
    )


def printable_name(name: str) -> str:
    """Of a folder, which may have any; terminals obey some."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def changes(before: Path, after: Path) -> Iterator[str]:
    """Whose points differ between two scores.csv, and by which tests."""
    old, new = ([*csv.DictReader(path.open(newline="", encoding="utf-8"))] for path in (before, after))
    for row in new:
        was = next((each for each in old if each["student"] == row["student"]), row)
        changed = [name for name in row if was.get(name) != row[name] and name != "problem" and "writeup" not in name]
        said = [f"{name} {was.get(name) or '(none)'} -> {row[name] or '(none)'}" for name in changed]
        tests = [text for name, text in zip(changed, said) if " " in name]
        if sums := [text for text in said if text not in tests]:
            yield "\n    ".join([f"{row['student']}: {', '.join(sums)}; by", *(tests or ["shares of the same tests"])])


def as_text(text: str) -> str:
    """What a spreadsheet would take for a formula is a text here."""
    return f"'{text}" if text.strip("\t\r\n ")[:1] in ("=", "+", "-", "@") else text


def _summary(rows: list[Row]) -> str:
    totals = sorted(row.total for row in rows if row.verdicts)
    if not totals:
        return "Nobody was graded."
    problems = sum(bool(row.problem) for row in rows)
    return (f"{len(rows)} submissions: median {median(totals):g}, from {totals[0]:g} to {totals[-1]:g} points; "
            f"{problems} with a problem.")  # fmt: skip


def _histogram(rows: list[Row], most: float) -> list[tuple[float, float, int, float]]:
    """Of points, in BINS parts of what can be had: from, to, how many students, height in percent of the highest."""
    counts = Counter(min(BINS - 1, int(BINS * row.total / most)) for row in rows if row.verdicts and most)
    highest = max(counts.values(), default=1)
    return [(most * each / BINS, most * (each + 1) / BINS, counts[each], round(100 * counts[each] / highest))
            for each in range(BINS)]  # fmt: skip


class Bar:
    """One test, and who passed it, failed it, ..."""

    def __init__(self, test: Test, rows: list[Row]) -> None:
        self.test = test
        self.students = {kind: [row.student for row in rows if row.verdicts.get(test) == kind] for kind in KINDS}

    def share(self, kind: str) -> float:
        """In percent."""
        return 100 * len(self.students[kind]) / sum(map(len, self.students.values()))


@dataclass
class Diagnosis:
    """Failures whose first lines say the same, but for numbers and names. `example`: one of these lines."""

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
    text = _PLACE.sub("", line[:LONGEST_LINE])
    text = _QUOTED.sub("...", _FILE.sub("file", text))
    text = _DTYPE.sub("dtype", text)
    return re.sub(r"\s+", " ", _LIST.sub("#", _NUMBERS.sub("#", text))).strip()


def _grouped(rows: Iterable[Row]) -> list[Diagnosis]:
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


TEMPLATES = Path(__file__).with_name("templates")


def write_page(path: Path, template: str, **content: object) -> None:
    replace_file(path, render(TEMPLATES / template, **content).encode(errors="replace"))
