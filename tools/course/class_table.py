"""The results of a class: a CSV with a line for each student, and a page with a bar for each test."""

from __future__ import annotations

import csv
import html
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from string import Template

from tools.course import diagnoses
from tools.student.course import Course

PAGE = Path(__file__).with_name("files") / "class.html"
# In the order in which a bar shows them; grading/scoring/results.py says what each means. A stage that could not be
# built says nothing about single claims.
NOT_BUILT = "not_built"
KINDS = ("passed", "failed", "not_judged", "todo", NOT_BUILT, "not_run", "skipped")
BINS = 10


@dataclass(frozen=True)
class Test:
    stage: str
    name: str
    points: float
    extension: bool = False

    @property
    def claim(self) -> str:
        return f"{self.stage[:2]} {self.name.replace('_', ' ')}"


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

    @property
    def total(self) -> float:
        return round(sum(points for stage, points in self.earned.items() if stage not in self.beyond), 2)

    @property
    def extension(self) -> float:
        return round(sum(points for stage, points in self.earned.items() if stage in self.beyond), 2)


def row_of(student: str, folder: Path) -> Row:
    row = Row(student)
    try:
        if (folder / "problem").exists():
            row.problem = (folder / "problem").read_text(errors="replace")
        for test in json.loads((folder / "results.json").read_bytes())["tests"]:
            about = test["extra_data"]
            verdict = NOT_BUILT if about.get("problem") else about["status"]
            claim = Test(about["stage"], about["test"], test["max_score"], about.get("extension", False))
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
        extension = ["extension"] if beyond else []
        table.writerow(["student", "points", *extension, *stages, "problem", *(test.claim for test in tests)])
        for row in rows:
            points = [row.earned.get(stage, 0) for stage in stages]
            verdicts = [row.verdicts.get(test, "") for test in tests]
            sums = [row.total, row.extension] if beyond else [row.total]
            table.writerow([_text(row.student), *sums, *points, _text(row.problem), *verdicts])
    page = Template(PAGE.read_text(encoding="utf-8")).substitute(
        title=html.escape(", ".join(filter(None, (course.course, course.term, course.name)))),
        summary=_summary(rows),
        totals=_histogram(rows, sum(test.points for test in tests if not test.extension)),
        tests="\n".join(_bar(test, rows) for test in tests),
        diagnoses=diagnoses.table(rows),
        legend=" ".join(f'<span class="{kind}">{kind.replace("_", " ")}</span>' for kind in KINDS),
        students=_students(rows, stages, beyond),
    )
    (folder / "class.html").write_text(page, encoding="utf-8")


def _text(text: str) -> str:
    """What a spreadsheet would take for a formula is a text here."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _summary(rows: list[Row]) -> str:
    totals = sorted(row.total for row in rows if row.verdicts)
    if not totals:
        return "Nobody was graded."
    problems = sum(bool(row.problem) for row in rows)
    return (f"{len(rows)} submissions: median {median(totals):g}, from {totals[0]:g} to {totals[-1]:g} points; "
            f"{problems} with a problem.")  # fmt: skip


def _histogram(rows: list[Row], most: float) -> str:
    """Of points, in BINS parts of what can be had."""
    counts = Counter(min(BINS - 1, int(BINS * row.total / most)) for row in rows if row.verdicts and most)
    highest = max(counts.values(), default=1)
    bars = []
    for each in range(BINS):
        low, high = most * each / BINS, most * (each + 1) / BINS
        height = 100 * counts[each] / highest
        bars.append(f'<div class="bin"><b>{counts[each] or ""}</b><i style="height:{height:.0f}px"></i>'
                    f"<small>{low:g}-{high:g}</small></div>")  # fmt: skip
    return "".join(bars)


def _bar(test: Test, rows: list[Row]) -> str:
    """One test: how many passed, failed, ..., and who did not pass."""
    of_kind = {kind: [row.student for row in rows if row.verdicts.get(test) == kind] for kind in KINDS}
    everybody = sum(map(len, of_kind.values()))
    parts = "".join(
        f'<i class="{kind}" style="width:{100 * len(names) / everybody:.2f}%">{len(names)}</i>'
        for kind, names in of_kind.items()
        if names
    )
    others = "; ".join(f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in of_kind.items()
                       if names and kind != "passed")  # fmt: skip
    passed = 100 * len(of_kind["passed"]) / everybody
    details = f"<details><summary>who</summary>{html.escape(others)}</details>" if others else ""
    return (f'<tr><td>{html.escape(test.claim)}</td><td>{test.points:g}</td><td>{passed:.0f} %</td>'
            f'<td class="bar">{parts}</td><td>{details}</td></tr>')  # fmt: skip


def _students(rows: list[Row], stages: list[str], beyond: bool) -> str:
    head = "".join(f"<th>{html.escape(stage[:2])}</th>" for stage in stages)
    extension = "<th>extension</th>" if beyond else ""
    lines = [f"<tr><th>student</th><th>points</th>{extension}{head}<th></th></tr>"]
    for row in rows:
        points = "".join(f"<td>{row.earned.get(stage, 0):g}</td>" for stage in stages)
        extension = f"<td>{row.extension:g}</td>" if beyond else ""
        lines.append(f"<tr><td>{html.escape(row.student)}</td><td>{row.total:g}</td>{extension}{points}"
                     f"<td>{html.escape(row.problem)}</td></tr>")  # fmt: skip
    return "\n".join(lines)
