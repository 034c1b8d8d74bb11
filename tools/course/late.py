"""When each stage was handed in, and what that costs: the dates and the policy of course.json.

The time is the one in a table that the instructor gives (--times), else that of the archive or of the newest file. In a
folder with git history it is, for each stage, the last commit since the release that changed its file: who hands in
everything at the end has still handed in stage 01 early. A commit's date is the student's to set, so where it matters
give a table.
"""

from __future__ import annotations

import csv
import math
import re
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tools.course.submission import wanted_files
from tools.grading.stages import BadChoice, all_stages
from tools.student.course import Course

_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True)
class Lateness:
    days: int  # begun ones
    free: int  # of them: cost nothing
    factor: float  # of the points that were earned


def lateness(course: Course, times: dict[str, datetime]) -> dict[str, Lateness]:
    """By the stage's number, for those that are due. Free days go to the earliest stages that need them."""
    found, free_left = {}, int(course.free_late_days)
    for number, due in sorted(course.due.items()):
        if number not in times:
            continue
        days = max(0, math.ceil((times[number] - due) / timedelta(days=1)))
        free = min(days, free_left)
        free_left -= free
        counted = days - free
        too_late = counted > course.late_days
        factor = 0.0 if too_late else max(0.0, 1 - counted * course.late_percent_a_day / 100)
        found[number] = Lateness(days, free, factor)
    return found


def read_times(table: Path, course: Course) -> dict[str, datetime]:
    """A CSV with the columns `student` and `time`, in the course's time zone where a time names none."""
    with table.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    try:
        return {row["student"]: _in_zone(datetime.fromisoformat(row["time"]), course) for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise BadChoice(
            f"{table}: the columns should be student,time with times like 2026-10-19T23:59 ({error})"
        ) from None


def _in_zone(time: datetime, course: Course) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=course.timezone)


def times_of(place: Path, course: Course, given: datetime | None = None) -> dict[str, datetime]:
    """By the stage's number."""
    fallback = given or _newest(place, course)
    times = {stage.number: fallback for stage in all_stages()}
    if not given and (head := _head_of(place / ".git")):
        for name, (stage, _) in wanted_files().items():
            if name.endswith(".cpp") and (last := _last_commit(place / ".git", head, name, course)):
                times[stage.number] = last
    return times


def _newest(place: Path, course: Course) -> datetime:
    files = (
        [place]
        if place.is_file()
        else [path for path in place.rglob("*") if path.is_file() and ".git" not in path.parts]
    )
    newest = max((path.lstat().st_mtime for path in files), default=place.stat().st_mtime)
    return datetime.fromtimestamp(newest, course.timezone)


def _head_of(git: Path) -> str:
    """The commit that is checked out, read without git: a repository's own configuration can make git run programs."""
    try:
        text = (git / "HEAD").read_text().strip()
        if reference := re.fullmatch(r"ref: (refs/heads/[\w./-]+)", text):
            loose = git / reference[1]
            packed = (git / "packed-refs").read_text() if (git / "packed-refs").exists() else ""
            listed = re.search(rf"^(\w+) {re.escape(reference[1])}$", packed, re.MULTILINE)
            text = loose.read_text().strip() if loose.exists() else listed[1] if listed else ""
    except (OSError, UnicodeDecodeError):
        return ""
    return text if _HASH.fullmatch(text) else ""


def _last_commit(git: Path, head: str, name: str, course: Course) -> datetime | None:
    """In an empty repository of our own that only borrows the student's objects."""
    with tempfile.TemporaryDirectory() as own:
        alone = {"PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "HOME": own}
        subprocess.run(["git", "init", "--quiet", "--bare", own], env=alone, check=False)
        (Path(own) / "objects/info/alternates").write_text(f"{(git / 'objects').resolve()}\n")
        since = [f"--since={course.released.isoformat()}"] if course.released else []
        command = ["git", f"--git-dir={own}", "log", "-1", "--format=%cI", *since, head, "--", f"**/{name}", name]
        done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout.strip()
    return datetime.fromisoformat(said) if said else None
