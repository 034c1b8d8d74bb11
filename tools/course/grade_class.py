"""Grades a folder of submissions: one folder or .zip for each student, named as the student.

The grader is the one that Gradescope would have, made of what is committed, with the hidden tests and without the
solutions (tools/course/autograder.py). Each is graded by a process of its own (grade_submission), several at a time,
and what goes wrong with one harms no other. In the folder that --out names each student has a folder with results.json,
log.txt and what was taken. Whoever is graded already is not graded again unless the submission or the grader changes,
so that a run that was stopped goes on; --again grades all, keeps the table before it as scores.before.csv, and says
whose points have changed. In the end there are two tables, scores.csv and class.html, and marks.csv, whose marks of
the writeup go into both (tools/course/marks.py).

Exit code: 0 all were graded; 1 some could not be; 2, 3 and more as grade_submission.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tools.course import autograder, class_table, hidden, marks
from tools.course.class_table import as_text, printable_name, row_of
from tools.course.submission import ARCHIVE, MOST_ENTRIES
from tools.grading.grade import end_by_exception_on_signals
from tools.grading.running.processes import BoundedText, GuardedProcess
from tools.grading.running.records import printable
from tools.grading.scoring.results import replace_file, sums_of_tests
from tools.grading.stages import BadChoice
from tools.grading.terminal import ending_of
from tools.setup.checkout_lock import hold
from tools.setup.columns import columns, fold
from tools.setup.progress import elapsed
from tools.setup.toolchain import BUILD_DIR, require_packages
from tools.student import course

PATIENCE_S = 900  # for one submission: grade_submission has limits of its own, which a busy machine stretches
GRADED = (0, 1)  # exit codes
ENDINGS = {4: "a stage was not graded"}
LOG_LIMIT = 1 << 20


@dataclass(frozen=True)
class Student:
    name: str
    place: Path
    folder: Path  # of what is known

    def fingerprint(self, grader: Path) -> str:
        """Of the submission: times and sizes, since the content may be anything; and of what grades it."""
        files = [self.place] if self.place.is_file() else sorted(islice(self.place.rglob("*"), MOST_ENTRIES))
        facts = [(str(path), path.lstat().st_ctime_ns, path.lstat().st_size) for path in files]
        return hashlib.sha256(repr([facts, autograder.version(grader)]).encode()).hexdigest()

    def is_graded(self, grader: Path) -> bool:
        try:
            return (self.folder / "graded").read_text() == self.fingerprint(grader)
        except (OSError, RecursionError):
            return False


def main() -> int:
    end_by_exception_on_signals()
    return ending_of("grade_class", _grade_as_asked)


def _grade_as_asked() -> int:
    options = parse_arguments()
    require_packages(sys.executable, ["jinja2", "typst"])  # which write the pages and know the questions, hours later
    students, about = students_in(options.folder, options.out), course.load()
    with hold(options.out / "lock", "grading a class"):
        table = marks.Table(options.out / marks.FILE, marks.questions())
        table.read(each.name for each in students)  # what is wrong in it is said at once
        grader = options.grader or autograder.prepared()
        todo = [student for student in students if options.again or not student.is_graded(grader)]
        print(f"{len(students)} submissions, {len(students) - len(todo)} of them graded already.", flush=True)
        grade_all(todo, options.jobs, functools.partial(_grade_one, grader, options.limit, common_seed(options.out)))
        rows = [row_of(each.name, each.folder) for each in students]
        given = table.update({each.name: each.folder / "taken" for each in students})
        said = [*marks.enter(given, rows, options.out)]
        scores, before = options.out / "scores.csv", options.out / "scores.before.csv"
        if compare := options.again and scores.exists():
            scores.replace(before)
        class_table.write(options.out, rows, about)
        said += [*class_table.changes(before, scores)] or ["No points have changed."] if compare else []
    failed = [row for row in rows if row.problem]
    for row in failed:
        print(fold(printable(f"{row.student} was not graded: {row.problem}"), columns()))
    print("\n".join(fold(printable(line), columns()) for line in said))
    print(f"Tables: {options.out}/scores.csv, {options.out}/class.html")
    return 1 if failed else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tools.course.grade_class", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("folder", type=Path, help="of submissions")
    parser.add_argument("--out", type=Path, default=BUILD_DIR / "class", help="for results (build/class)")
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0)) // 2),
                        help="how many at a time; each keeps two cores busy (%(default)s here)")  # fmt: skip
    parser.add_argument("--limit", default="", help="seconds for all tests of one (grade_submission's)")
    parser.add_argument("--grader", type=Path, help="a lab that is prepared already; else it is made")
    parser.add_argument("--again", action="store_true", help="also those that are graded already")
    options = parser.parse_args()
    if options.jobs < 1:
        raise BadChoice(f"--jobs {options.jobs}: one at a time is the least")
    return options


def students_in(folder: Path, out: Path) -> list[Student]:
    if not folder.name:  # an empty one, by make class without FROM=
        raise BadChoice("Say where the submissions are: make class FROM=<folder>")
    if not folder.is_dir():
        raise BadChoice(f"{folder} is not a folder of submissions")
    found: dict[str, tuple[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        suffix = ARCHIVE if path.name.lower().endswith(ARCHIVE) else ""
        if path.name.startswith(".") or path.is_symlink():
            continue
        if not (path.is_dir() or suffix):
            print(f"{printable_name(path.name)} is left out: it is neither a folder nor a .zip")
            continue
        name = path.name[: len(path.name) - len(suffix)]
        shown = as_text(printable_name(name))  # as the tables have it, by which marks are found
        if shown in found:
            both = f"{found[shown][1].name} and {path.name} are both {shown}'s: keep the one that counts, or rename one"
            raise BadChoice(printable_name(both))
        found[shown] = name, path
    if not found:
        raise BadChoice(f"{folder} has no submissions: a folder or a .zip for each student")
    return [Student(name, path, out / "students" / name) for name, path in found.values()]


def common_seed(out: Path) -> int:
    """The same for all of a class, also if it is graded on two days."""
    secret, kept = hidden.seed(), out / "seed"
    if secret is None and not kept.exists():
        out.mkdir(parents=True, exist_ok=True)
        kept.write_text(f"{secrets.randbelow(10**9)}\n")
    return int(kept.read_text()) if secret is None else secret


def grade_all(
    students: list[Student], jobs: int, work: Callable[[Student, threading.Event], tuple[str, float]]
) -> None:
    stopping = threading.Event()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            done = pool.map(functools.partial(work, stopping=stopping), students)
            for student, (line, seconds) in zip(students, done):
                print(f"  {printable_name(student.name):<30} {printable(line)}  [{elapsed(seconds)}]", flush=True)
        finally:
            stopping.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _grade_one(grader: Path, limit: str, seed: int, student: Student, stopping: threading.Event) -> tuple[str, float]:
    """What to say of it, and how long it took. Whatever happens is this student's alone."""
    began = time.monotonic()
    try:
        return _graded(grader, student, limit, seed, stopping), time.monotonic() - began
    except Exception as error:
        student.folder.mkdir(parents=True, exist_ok=True)
        replace_file(student.folder / "problem", f"{type(error).__name__}: {error}".encode(errors="replace"))
        return f"not graded: {error}", time.monotonic() - began


def _graded(grader: Path, student: Student, limit: str, seed: int, stopping: threading.Event) -> str:
    fingerprint = student.fingerprint(grader)
    shutil.rmtree(student.folder, ignore_errors=True)
    student.folder.mkdir(parents=True)
    results = student.folder.absolute() / "results.json"
    command = [sys.executable, "-m", "tools.course.grade_submission", str(student.place.absolute())]
    command += [f"--out={results}", f"--keep={results.with_name('taken')}"]
    command += [f"--seed={seed}"] if hidden.seed() is None else []
    command += [f"--limit={limit}"] if limit else []
    output, began = BoundedText(LOG_LIMIT), time.monotonic()
    with GuardedProcess(command, env={**os.environ, "COLUMNS": "80"}, folder=grader) as process:
        for _, data in process.events(tick_s=0.2):
            output.add(data)
            if stopping.is_set() or time.monotonic() - began > PATIENCE_S:
                process.stop()
    (student.folder / "log.txt").write_text(str(output), encoding="utf-8")
    if process.exit_code not in GRADED:
        ending = ENDINGS.get(process.exit_code, f"ended with status {process.exit_code}")
        ending = "stopped" if stopping.is_set() else ending
        replace_file(student.folder / "problem", f"{ending}: {output.last_lines(3)}".encode())
        return f"not graded, {ending}"
    found = json.loads(results.read_bytes())
    replace_file(student.folder / "graded", fingerprint.encode())
    return str(sums_of_tests(found["tests"]))


if __name__ == "__main__":
    sys.exit(main())
