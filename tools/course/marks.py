"""The marks of the writeup: marks.csv in the folder of a class, a row for each student and question.

Whoever reads the answers fills in the parts of the rubric and, where there is something to say, a comment. What is
there is kept, also columns of one's own and the rows of students who have left. `answer` is the digest of the answer
that was marked: if the present one has another, `note` says so, until the cell is emptied.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

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
_SECTION = re.compile(r"(<!-- marks -->.*<!-- /marks -->\n?)?(?=</body>)", re.DOTALL)


class Question(NamedTuple):
    stage: str
    rubric: tuple[float, ...]  # the points of its parts


class Mark(NamedTuple):
    """A row: its cells as they were found, also those of the instructor's own columns, and the points that are given
    for the parts of the rubric, None where there are none yet."""

    cells: dict[str, str]
    question: Question
    parts: list[float | None]

    @property
    def given(self) -> bool:
        return any(part is not None for part in self.parts)

    @property
    def points(self) -> float:
        return sum(part or 0 for part in self.parts)


def questions() -> dict[str, Question]:
    """By name, such as Q1.1: a spreadsheet takes 1.1 for a date."""
    found = questions_of(Writeup("assignments", "quick", [*stages.all_stages()]))
    return {f"Q{each['id']}": Question(stage, tuple(each["rubric"])) for stage, some in found.items() for each in some}


class Table:
    """marks.csv: read and checked before anybody is graded, and again before it is written, for it may be open."""

    def __init__(self, path: Path, questions: dict[str, Question]) -> None:
        self.path, self.questions, self.delimiter = path, questions, ","
        self.parts = [f"part {number + 1}" for number in range(max(len(each.rubric) for each in questions.values()))]
        self.columns = ["student", "question", "of", *self.parts, "comment", "answer", "note"]

    def read(self, students: Iterable[str]) -> dict[tuple[str, str], Mark]:
        """The rows; students are also those of whom something is there from earlier runs."""
        if not self.path.exists():
            return {}
        try:
            text = self.path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise LabError(f"{self.path} is not UTF-8: save it as CSV with UTF-8") from None
        names = {as_text(printable_name(name)) for name in students}
        names |= {as_text(printable_name(path.name)) for path in self.path.parent.glob("students/*")}
        self.delimiter = ";" if text.startswith(("student;", '"student";')) else ","
        table, marks, begins = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter), {}, 2
        header = next(table, [])
        if missing := [name for name in self.columns if name not in header]:
            raise LabError(f"{self.path}, line 1: there is no column {missing[0]}. Bring it back, or the whole file")
        for cells in table:
            line, begins = begins, table.line_num + 1  # a comment may have several lines
            if not any(cells):
                continue
            try:
                mark = self._mark({**dict.fromkeys(header, ""), **dict(zip(header, cells))}, names)
                if marks.setdefault((mark.cells["student"], mark.cells["question"]), mark) is not mark:
                    raise ValueError("the student has a row for this question above, too. Keep one")
            except ValueError as wrong:
                raise LabError(printable_name(f"{self.path}, line {line}: {wrong}.")) from None
        return marks

    def _mark(self, cells: dict[str, str], names: set[str]) -> Mark:
        name = cells["question"]
        if cells["student"] not in names:
            raise ValueError(f"there is no student {cells['student']}. Correct the name, or remove the row")
        if name not in self.questions:
            raise ValueError(f"there is no question {name}. There are {', '.join(self.questions)}")
        mark, rubric = Mark(cells, self.questions[name], []), self.questions[name].rubric
        for column, most in itertools.zip_longest(self.parts, rubric, fillvalue=0):
            text = cells[column].strip()
            try:
                points = float(text.replace(",", ".")) if text else None
            except ValueError:
                raise ValueError(f"{column} of {name} is no number: {text}") from None
            if points is not None and not 0 <= points <= most:
                raise ValueError(f"{column} of {name} has 0 to {most:g} points, and here are {text}")
            mark.parts.append(points)
        del mark.parts[len(rubric) :]
        return mark

    def update(self, students: dict[str, Path]) -> list[Mark]:
        """Writes the table of these students, by name the folder of what was taken of each; returns their rows."""
        gone, marks = self.read(students), []
        for name, taken in sorted(students.items()):
            shown, digests = as_text(printable_name(name)), _digests(taken)
            for question, about in self.questions.items():
                of = " + ".join(f"{part:g}" for part in about.rubric)
                fresh = Mark({"student": shown, "question": question, "of": of}, about, [None] * len(about.rubric))
                mark, now = gone.pop((shown, question), fresh), digests.get(question, NO_ANSWER)
                marked = mark.given and mark.cells["answer"] or now
                mark.cells.update(answer=marked, note=CHANGED if marked != now else "")
                marks.append(mark)
        for mark in gone.values():
            mark.cells["note"] = GONE
        rows, file = [mark.cells for mark in [*marks, *gone.values()]], io.StringIO(newline="")
        columns = dict.fromkeys([*self.columns, *(name for row in rows for name in row)])
        table = csv.DictWriter(file, columns, restval="", delimiter=self.delimiter)
        table.writeheader()
        table.writerows(rows)
        replace_file(self.path, file.getvalue().encode("utf-8-sig"))  # by which a spreadsheet knows it
        return marks


def _digests(taken: Path) -> dict[str, str]:
    """Of each answer, up to the next one; what is defined before the first belongs to all."""
    found = {}
    for file in taken.glob("writeup/answers/*.typ"):
        text = re.sub(r"(?m)^[ \t]*//.*\n", "", file.read_bytes().decode(errors="replace"))
        head, *parts = _ANSWER.split(text)
        for name, answer in zip(parts[::2], parts[1::2]):
            if "".join(answer.split()) not in (")[]", ")[#todo]"):
                digest = hashlib.sha256(" ".join(f"{head} {answer}".split()).encode()).hexdigest()
                found[f"Q{name}"] = f"x{digest[:12]}"  # no number
    return found


def enter(marks: list[Mark], rows: list[Row], out: Path) -> Iterator[str]:
    """Puts the points into the rows of the class's tables and onto the students' pages; yields what is to be done."""
    for row in rows:
        own = [mark for mark in marks if mark.cells["student"] == as_text(row.student)]
        given = [mark for mark in own if mark.given or mark.cells.get("comment")]
        for mark in given:
            row.written[mark.question.stage] = row.written.get(mark.question.stage, 0) + mark.points
        row.changed = [mark.cells["question"] for mark in given if mark.cells["note"]]
        if row.changed:
            yield f"{row.student}: changed since it was marked: {', '.join(row.changed)}"
        page, empty = out / "students" / row.folder / report_page.FILE, "<!DOCTYPE html>\n<body>\n</body>\n"
        text = page.read_text(encoding="utf-8") if page.exists() else empty
        section = report_page.render(TEMPLATES / "marks.html", marks=given) if given else ""
        if (changed := _SECTION.sub(lambda _, new=section: new, text, count=1)) != text:
            replace_file(page, changed.encode(errors="replace"))
    waiting = sum(mark.cells["answer"] != NO_ANSWER and None in mark.parts for mark in marks)
    yield f"Answers that wait for a mark in {out}/{FILE}: {waiting}"
