"""The results of a class: a CSV with a line for each student, and a page with a bar for each test."""

from __future__ import annotations

import csv
import html
import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from string import Template

from tools.course import diagnoses, late
from tools.course.late import Lateness
from tools.student.course import Course

PAGE = Path(__file__).with_name("files") / "class.html"
# In the order in which a bar shows them; grading/results.py says what each means. A stage that could not be built says
# nothing about single claims.
NOT_BUILT = "not_built"
KINDS = ("passed", "failed", "not_judged", "todo", NOT_BUILT, "not_run", "skipped")
BINS = 10


@dataclass(frozen=True)
class Test:
    stage: str
    name: str
    points: float

    @property
    def claim(self) -> str:
        return f"{self.stage[:2]} {self.name.replace('_', ' ')}"


@dataclass
class Row:
    """A student. `problem`: why there are no results; `after_policy`: the points that are left, by stage."""

    student: str
    times: dict[str, datetime] = field(default_factory=dict)
    verdicts: dict[Test, str] = field(default_factory=dict)
    earned: dict[str, float] = field(default_factory=dict)
    lateness: dict[str, Lateness] = field(default_factory=dict)
    problem: str = ""
    failures: dict[Test, str] = field(default_factory=dict)  # what failed tests said

    @property
    def total(self) -> float:
        return sum(self.earned.values())

    @property
    def after_policy(self) -> dict[str, float]:
        factors = {stage: self.lateness[stage[:2]].factor for stage in self.earned if stage[:2] in self.lateness}
        return {stage: round(points * factors.get(stage, 1), 2) for stage, points in self.earned.items()}

    @property
    def final(self) -> float:
        return round(sum(self.after_policy.values()), 2)


def row_of(student: str, folder: Path, times: dict[str, datetime], course: Course) -> Row:
    row = Row(student, times, lateness=late.lateness(course, times))
    try:
        if (folder / "problem").exists():
            row.problem = (folder / "problem").read_text(errors="replace")
        for test in json.loads((folder / "results.json").read_bytes())["tests"]:
            about = test["extra_data"]
            verdict = NOT_BUILT if about.get("problem") else about["status"]
            claim = Test(about["stage"], about["test"], test["max_score"])
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
    with (folder / "scores.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["student", "final", "earned", *stages, *(f"{stage} late days" for stage in stages),
                        "problem", *(test.claim for test in tests)])  # fmt: skip
        for row in rows:
            days = [row.lateness[stage[:2]].days if stage[:2] in row.lateness else "" for stage in stages]
            points = [row.after_policy.get(stage, 0) for stage in stages]
            verdicts = [row.verdicts.get(test, "") for test in tests]
            table.writerow([_text(row.student), row.final, row.total, *points, *days, _text(row.problem), *verdicts])
    page = Template(PAGE.read_text(encoding="utf-8")).substitute(
        title=html.escape(", ".join(filter(None, (course.course, course.term, course.name)))),
        summary=_summary(rows),
        totals=_histogram(rows, sum(test.points for test in tests)),
        tests="\n".join(_bar(test, rows) for test in tests),
        diagnoses=diagnoses.table(rows),
        legend=" ".join(f'<span class="{kind}">{kind.replace("_", " ")}</span>' for kind in KINDS),
        students=_students(rows, stages),
    )
    (folder / "class.html").write_text(page, encoding="utf-8")


def _text(text: str) -> str:
    """What a spreadsheet would take for a formula is a text here."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _summary(rows: list[Row]) -> str:
    finals = sorted(row.final for row in rows if row.verdicts)
    if not finals:
        return "Nobody was graded."
    middle = (finals[(len(finals) - 1) // 2] + finals[len(finals) // 2]) / 2
    late_ones = sum(any(each.days for each in row.lateness.values()) for row in rows)
    problems = sum(bool(row.problem) for row in rows)
    return (f"{len(rows)} submissions: median {middle:g}, from {finals[0]:g} to {finals[-1]:g} points; "
            f"{late_ones} late in some stage, {problems} with a problem.")  # fmt: skip


def _histogram(rows: list[Row], most: float) -> str:
    """Of final points, in BINS parts of what can be had."""
    counts = Counter(min(BINS - 1, int(BINS * row.final / most)) for row in rows if row.verdicts and most)
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


def _students(rows: list[Row], stages: list[str]) -> str:
    head = "".join(f"<th>{html.escape(stage[:2])}</th>" for stage in stages)
    lines = [f"<tr><th>student</th><th>final</th><th>earned</th>{head}<th>late days</th><th></th></tr>"]
    for row in rows:
        points = "".join(f"<td>{row.after_policy.get(stage, 0):g}</td>" for stage in stages)
        days = ", ".join(f"{number}: {each.days}" for number, each in row.lateness.items() if each.days)
        lines.append(f"<tr><td>{html.escape(row.student)}</td><td>{row.final:g}</td><td>{row.total:g}</td>{points}"
                     f"<td>{days}</td><td>{html.escape(row.problem)}</td></tr>")  # fmt: skip
    return "\n".join(lines)
