"""The marks of the writeup: marks.csv in the folder of a class, a row for each student and question.

Whoever reads the answers fills in the parts of the rubric and, where there is something to say, a comment. What is
there is kept, also columns of one's own and the rows of students who have left. `answer` is the digest of the answer
that was marked: if the present one has another, `note` says so, until the cell is emptied.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tools.course.class_table import TEMPLATES, Row, as_text, printable_name
from tools.grading import stages
from tools.grading.page import report_page
from tools.grading.scoring.results import replace_file
from tools.report.writeup import Writeup, questions_of
from tools.setup.toolchain import LabError

FILE = "marks.csv"
CHANGED = "the answer has changed since it was marked; when you have read it, empty the cell `answer`"
GONE = "this student has no submission any more"
NO_ANSWER = "none"  # the digest of a question that is not answered
_ANSWER = re.compile(r'^[ \t]*#answer\(\s*"([^"]+)"', re.MULTILINE)
_SECTION = re.compile(r"(<!-- marks -->.*<!-- /marks -->\n)?(?=</body>)", re.DOTALL)


@dataclass(frozen=True)
class Question:
    name: str  # Q1.1, since a spreadsheet takes 1.1 for a date
    stage: str
    rubric: tuple[float, ...]

    @property
    def points(self) -> float:
        return sum(self.rubric)


@dataclass
class Mark:
    """A row. `parts`: of the rubric, None where nothing is filled in."""

    student: str  # as the table has it
    question: Question
    parts: list[float | None]
    comment: str = ""
    digest: str = ""
    note: str = ""
    more: dict[str, str] = field(default_factory=dict)  # columns of the instructor's own

    @property
    def given(self) -> bool:
        return any(part is not None for part in self.parts)

    @property
    def points(self) -> float:
        return sum(part or 0 for part in self.parts)

    @property
    def is_open(self) -> bool:
        return self.digest != NO_ANSWER and None in self.parts


def questions() -> dict[str, Question]:
    found = questions_of(Writeup("assignments", "quick", [*stages.all_stages()]))
    every = [(stage, each) for stage, some in found.items() for each in some]
    return {f"Q{each['id']}": Question(f"Q{each['id']}", stage, tuple(each["rubric"])) for stage, each in every}


class Table:
    """marks.csv: read and checked before anybody is graded, and again before it is written, for it may be open."""

    def __init__(self, path: Path, questions: dict[str, Question]) -> None:
        self.path, self.questions, self.delimiter = path, questions, ","
        self.parts = [f"part {number + 1}" for number in range(max(len(each.rubric) for each in questions.values()))]
        self.columns = ["student", "question", "of", *self.parts, "comment", "answer", "note"]

    def read(self, students: Iterable[str]) -> dict[tuple[str, str], Mark]:
        if not self.path.exists():
            return {}
        try:
            text = self.path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise LabError(f"{self.path} is not UTF-8: save it as CSV with UTF-8") from None
        names = {as_text(printable_name(name)) for name in students}
        self.delimiter = ";" if text.startswith(("student;", '"student";')) else ","  # with decimal commas
        table, marks, line = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter), {}, 1
        header = next(table, [])
        if missing := [name for name in self.columns if name not in header]:
            raise LabError(f"{self.path}, line 1: there is no column {missing[0]}. Bring it back, or the whole file")
        for cells in table:
            line, last = table.line_num, line  # a comment may have several lines
            if any(cells):
                mark = self._mark(dict(zip(header, [*cells, *[""] * len(header)])), names, last + 1)
                if (key := (mark.student, mark.question.name)) in marks:
                    raise self._wrong(last + 1, f"{' and '.join(key)} have a row above, too. Keep one")
                marks[key] = mark
        return marks

    def _mark(self, row: dict[str, str], names: set[str], line: int) -> Mark:
        if row["student"] not in names:
            raise self._wrong(line, f"there is no student {row['student']}. Correct the name, or remove the row")
        question = self.questions.get(row["question"].strip())
        if not question:
            raise self._wrong(line, f"there is no question {row['question']}. There are {', '.join(self.questions)}")
        parts = [self._part(row[name], question, index, line) for index, name in enumerate(self.parts)]
        more = {name: text for name, text in row.items() if name not in self.columns}
        return Mark(row["student"], question, parts[: len(question.rubric)], row["comment"], row["answer"], more=more)

    def _part(self, text: str, question: Question, index: int, line: int) -> float | None:
        if not text.strip():
            return None
        most, name = question.rubric[index] if index < len(question.rubric) else 0, f"part {index + 1}"
        try:
            points = float(text.replace(",", "."))
        except ValueError:
            raise self._wrong(line, f"{name} of {question.name} is no number: {text}") from None
        if not 0 <= points <= most:
            has = f"has 0 to {most:g} points" if index < len(question.rubric) else "does not exist"
            raise self._wrong(line, f"{name} of {question.name} {has}, and here are {text}")
        return points

    def _wrong(self, line: int, what: str) -> LabError:
        return LabError(printable_name(f"{self.path}, line {line}: {what}."))

    def update(self, students: dict[str, Path]) -> list[Mark]:
        """Writes the table of these students, by name the folder of what was taken of each; returns its rows."""
        before = self.read([*students, *(path.name for path in self.path.parent.glob("students/*"))])
        marks = []
        for name, taken in sorted(students.items()):
            shown, digests = as_text(printable_name(name)), _digests(taken)
            for question in self.questions.values():
                mark = before.pop((shown, question.name), None) or Mark(shown, question, [None] * len(question.rubric))
                now = digests.get(question.name, NO_ANSWER)
                mark.digest = mark.digest if mark.digest and mark.given else now
                mark.note = CHANGED if mark.digest != now else ""
                marks.append(mark)
        for mark in before.values():
            mark.note = GONE
        own = {name: "" for mark in [*marks, *before.values()] for name in mark.more}
        file = io.StringIO(newline="")
        table = csv.DictWriter(file, [*self.columns, *own], restval="", delimiter=self.delimiter)
        table.writeheader()
        for mark in [*marks, *before.values()]:
            point = "," if self.delimiter == ";" else "."
            parts = ["" if part is None else f"{part:g}".replace(".", point) for part in mark.parts]
            about = [mark.student, mark.question.name, " + ".join(f"{part:g}" for part in mark.question.rubric)]
            parts += [""] * (len(self.parts) - len(parts))
            table.writerow(mark.more | dict(zip(self.columns, [*about, *parts, mark.comment, mark.digest, mark.note])))
        replace_file(self.path, file.getvalue().encode("utf-8-sig"))  # by which a spreadsheet knows it
        return marks


def _digests(taken: Path) -> dict[str, str]:
    """Of each answer, up to the next one; what is defined before the first belongs to all."""
    found = {}
    for file in taken.glob("writeup/answers/*.typ"):
        text = re.sub(r"(?m)^\s*//.*\n", "", file.read_bytes().decode(errors="replace"))
        head, *parts = _ANSWER.split(text)
        for name, answer in zip(parts[::2], parts[1::2]):
            if not re.fullmatch(r"\)\[\s*(#todo)?\s*\]\s*", answer):
                content = " ".join(f"{head}\n{answer}".split())
                found[f"Q{name}"] = f"x{hashlib.sha256(content.encode()).hexdigest()[:12]}"  # no number
    return found


def enter(marks: list[Mark], rows: list[Row], out: Path) -> Iterator[str]:
    """Puts the points into the rows of the class's tables and onto the students' pages; yields what is to be done."""
    own: dict[str, list[Mark]] = {}
    for mark in marks:
        own.setdefault(mark.student, []).append(mark)
    for row in rows:
        given = [mark for mark in own.get(as_text(row.student), ()) if mark.given or mark.comment]
        for mark in given:
            row.written[mark.question.stage] = row.written.get(mark.question.stage, 0) + mark.points
        row.changed = [mark.question.name for mark in given if mark.note]
        _show(row, given, out / "students" / row.folder / report_page.FILE)
    for row in rows:
        if row.changed:
            yield f"{row.student}: changed since it was marked: {', '.join(row.changed)}"
    left = sum(mark.is_open for mark in marks)
    yield f"Marks: {out}/{FILE}, where {left or 'no'} answer{'' if left == 1 else 's'} wait{'s' * (left == 1)} for one"


def _show(row: Row, given: list[Mark], page: Path) -> None:
    text = page.read_text(encoding="utf-8") if page.exists() else "<!DOCTYPE html>\n<body>\n</body>\n"
    section = report_page.render(TEMPLATES / "marks.html", marks=given, row=row) if given else ""
    changed = _SECTION.sub(lambda _: section, text, count=1)
    if changed != text and page.parent.is_dir():
        replace_file(page, changed.encode(errors="replace"))
