"""Sets the writeup (`make writeup`): questions, answers, figures and tables in one PDF, and says what is still missing.

The answers are those in writeup/answers, with figures and tables of figures/out; with IMPL=solutions the reference
answers in solutions/writeup, with those of figures/gallery, whose numbers they cite. Nothing is measured or drawn
here: what is missing is listed with the command that makes it. Exit code: 0 if the PDF was made, complete or not; 1 for
an error in a Typst file, or figures that the last `make figures` failed to make; 2 for a bad choice; 3 without Typst,
or where the output cannot be written.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.grading import stages
from tools.grading.scoring.results import replace_file
from tools.grading.stages import BadChoice, Stage
from tools.grading.terminal import ending_of
from tools.report import writeup_results
from tools.report.figures import failures_of, parse_arguments
from tools.report.writeup_results import KINDS, Origin, Shown, Unusable
from tools.setup import toolchain
from tools.setup.toolchain import ROOT

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


def questions_of(writeup: Writeup) -> dict[str, list[dict[str, Any]]]:
    """The questions of each stage: id, points and shows (kind and name of figures and tables)."""
    (found,) = run_typst(writeup, {}, ("questions",), QUESTIONS)[1]["questions"]
    wanted = {stage.name for stage in writeup.stages}
    return {stage: questions for stage, questions in found if stage in wanted}


def run_typst(
    writeup: Writeup, inputs: dict[str, str], queries: Sequence[str], file: str = MAIN
) -> tuple[bytes, dict[str, list[Any]]]:
    """The PDF, and what Typst finds under the labels `queries`."""
    import typst  # not before a Python without it has been told so

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


@dataclass
class Summary:
    """What is still missing, in the order of the pages."""

    total: int = 0  # questions
    unanswered: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # figures and tables
    other: list[str] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)


def parse() -> argparse.Namespace:
    options = parse_arguments("make writeup", __doc__)
    if options.impl == "solutions" and options.preset != "quick":
        raise BadChoice(
            f"PRESET={options.preset}: the reference answers speak of the quick results in figures/gallery; "
            "leave it out"
        )
    return options


@dataclass(frozen=True)
class Slot:
    """A place for a figure or a table; `question` is empty if no question asks for it."""

    kind: str
    name: str
    question: str = ""

    def command(self, writeup: Writeup) -> str:
        number = self.question.split(".")[0].zfill(2)
        stage = next(each for each in stages.all_stages() if each.number == number)
        preset = "" if writeup.preset == "quick" else writeup.preset
        return stages.make_command("figures", stage, writeup.impl, preset=preset)

    def remedy(self, writeup: Writeup) -> dict[str, str]:
        in_gallery = writeup.origin.in_gallery
        advice = "It goes into figures/gallery (tools/report/gallery.py) after" if in_gallery else "It is made by"
        return {"advice": advice, "command": self.command(writeup)}


def look_up(writeup: Writeup, slots: list[Slot], summary: Summary) -> dict[str, Any]:
    """What form.typ reads as `results`: the figures and tables that can be shown, and why the others cannot."""
    results: dict[str, Any] = {"figures": {}, "tables": {}, "missing": {}}
    for slot in slots:
        what = f"{slot.kind} {slot.name}"
        try:
            shown = writeup_results.find(slot.kind, slot.name, writeup.origin)
        except Unusable as problem:
            if slot.question:
                remedy = slot.remedy(writeup)
                results["missing"][what] = {"problem": str(problem), "remedy": remedy}
                summary.missing.append(f"{slot.question}: {what}: {problem}. {remedy['advice']}: {remedy['command']}")
            continue
        if slot.question:
            summary.shown.append(shown)
        file = "/" + str(shown.file.relative_to(writeup.root))
        found = {"file": file, "digest": shown.digest, "provenance": shown.lines, **shown.table}
        results[f"{slot.kind}s"][slot.name] = found
    results["head"] = head(writeup, summary)
    return results


def slots_of(writeup: Writeup, questions: dict[str, list[dict[str, Any]]]) -> list[Slot]:
    """The questions' slots, in their order, then the other files, which answers may show or cite."""
    asked = [
        Slot(question=question["id"], **shown)
        for each in questions.values() for question in each for shown in question["shows"]
    ]  # fmt: skip
    known = {(slot.kind, slot.name) for slot in asked}
    there = [Slot(kind, name) for kind, ending in KINDS.items() for name in writeup.origin.names(ending)]
    return asked + [slot for slot in there if (slot.kind, slot.name) not in known]


def head(writeup: Writeup, summary: Summary) -> list[str]:
    """The first page: the origin of all numbers."""
    whose = "the student's code (assignments)" if writeup.impl == "assignments" else "the solutions"
    lines = [f"Figures and tables of {whose}, {writeup.preset} preset: {len(summary.shown)} shown, "
             f"{len(summary.missing)} missing."]  # fmt: skip
    machines = of_all(summary, "machines")
    return lines + ([f"Measured on {' and on '.join(machines)}."] if machines else [])


def of_all(summary: Summary, what: str) -> list[str]:
    return sorted({each for shown in summary.shown for each in getattr(shown, what)})


def look_at_answers(
    writeup: Writeup, questions: dict[str, list[dict[str, Any]]], found: dict[str, list[Any]], summary: Summary
) -> None:
    """Notes in `summary` which questions are unanswered or answered twice, and what else is open."""
    points = {question["id"]: question["points"] for each in questions.values() for question in each}
    answers = [answer["id"] for answer in found["answer"]]
    answered = {answer["id"] for answer in found["answer"] if answer["answered"]}
    summary.total = len(points)
    for question, worth in points.items():
        why = "" if question in answers else f', {writeup.answers} has no #answer("{question}")[...]'
        if question not in answered:
            summary.unanswered.append(f"{question} ({worth} point{'' if worth == 1 else 's'}){why}")
        if answers.count(question) > 1:
            summary.other.append(f"{question} is answered {answers.count(question)} times")
    summary.other += [f"numbers to fill in: {' '.join(text.split())}" for text in found["open-number"]]
    if not found["about"][0]["name"].strip():
        summary.other.append(f"your name, in {writeup.answers}/about.typ")


def make(writeup: Writeup) -> Summary:
    """Writes the PDF, whole or not at all. Raises TypstFailure, OSError."""
    summary = Summary()
    questions = questions_of(writeup)
    results = look_up(writeup, slots_of(writeup, questions), summary)
    labels = ("answer", "about", "open-number", "slot")
    pdf, found = run_typst(writeup, {"results": json.dumps(results)}, labels)
    look_at_answers(writeup, questions, found, summary)
    for kind, name in ((slot["kind"], slot["name"]) for slot in found["slot"]):
        if name not in results[f"{kind}s"] and f"{kind} {name}" not in results["missing"]:
            summary.other.append(f"an answer shows the {kind} {name}, which is not there")
    writeup.output.parent.mkdir(parents=True, exist_ok=True)
    replace_file(writeup.output, pdf)
    return summary


def print_summary(writeup: Writeup, summary: Summary) -> None:
    for title, lines in (
        ("Unanswered", summary.unanswered), ("Missing", summary.missing), ("To do", summary.other)
    ):  # fmt: skip
        for line in lines:
            print(f"{title}: {line}")
    machines, commits = (len(of_all(summary, what)) for what in ("machines", "commits"))
    several = [f"{count} {what}" for count, what in ((machines, "machines"), (commits, "commits")) if count > 1]
    answered = summary.total - len(summary.unanswered)
    print(
        f"{writeup.output.relative_to(writeup.root)}: {answered} of {summary.total} questions answered, "
        f"{len(summary.shown)} figures and tables shown"
        + (f" (of {' and '.join(several)}, each says its own)" if several else "")
        + f", {len(summary.missing)} missing"
        + (f", {len(summary.other)} more to do" if summary.other else "")
    )


def set_as_asked() -> int:
    options = parse()
    toolchain.require_packages(sys.executable, ["typst"])
    writeup = Writeup(options.impl, options.preset, options.stages)
    try:
        summary = make(writeup)
    except TypstFailure as error:
        print(f"{error}\nNo PDF was made; an older one is as it was.", file=sys.stderr)
        return 1
    print_summary(writeup, summary)
    failed = [] if writeup.origin.in_gallery else failures_of(writeup.impl, writeup.preset, writeup.stages)
    for line in failed:
        print(f"make figures has failed: {line}", file=sys.stderr)
    return 1 if failed else 0


def main() -> int:
    return ending_of("make writeup", set_as_asked)


if __name__ == "__main__":
    sys.exit(main())
