"""When a stage was handed in, and what lateness costs."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import unittest
from datetime import datetime, timedelta
from pathlib import Path

from tools.course.late import Lateness, lateness, read_times, times_of
from tools.grading.stages import BadChoice
from tools.student.course import Course, parse


def course(**fields: object) -> Course:
    dates = {"due": {"01": "2026-10-19 12:00", "02": "2026-11-02 12:00"}, "released": "2026-10-05"}
    return parse(json.dumps({"timezone": "UTC", "late_days": 2, "late_percent_a_day": 10, **dates, **fields}))


def after(about: Course, **hours: float) -> dict[str, Lateness]:
    """Stages that were handed in so many hours after they were due."""
    numbers = {"first": "01", "second": "02"}
    times = {numbers[name]: about.due[numbers[name]] + timedelta(hours=late) for name, late in hours.items()}
    return lateness(about, times)


class Policy(unittest.TestCase):
    def test_a_begun_day_counts(self) -> None:
        for hours, days, factor in ((-5, 0, 1), (0, 0, 1), (0.1, 1, 0.9), (24, 1, 0.9), (25, 2, 0.8), (49, 3, 0)):
            with self.subTest(hours=hours):
                self.assertEqual(after(course(), first=hours)["01"], Lateness(days, 0, factor))

    def test_free_days_go_to_the_first_that_need_them(self) -> None:
        found = after(course(free_late_days=2), first=1, second=47)
        self.assertEqual(found, {"01": Lateness(1, 1, 1), "02": Lateness(2, 1, 0.9)})

    def test_a_stage_without_a_date_is_never_late(self) -> None:
        self.assertEqual(lateness(course(due={}), {"01": datetime.now().astimezone()}), {})


class Times(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def git(self, *arguments: str, date: str = "") -> None:
        who = ["-c", "user.name=student", "-c", "user.email=student@localhost"]
        env = {**os.environ, "GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date} if date else None
        subprocess.run(["git", *who, *arguments], cwd=self.folder, env=env, check=True, capture_output=True)

    def commit(self, name: str, date: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(date)
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "work", date=date)

    def test_of_a_folder(self) -> None:
        (self.folder / "naive_ddp.cpp").write_text("")
        os.utime(self.folder / "naive_ddp.cpp", (1e9, 1e9))
        self.assertEqual(times_of(self.folder, course())["01"].timestamp(), 1e9)

    def test_of_the_last_commit_that_changed_the_stage(self) -> None:
        first, second = "assignments/01_naive_ddp/naive_ddp.cpp", "assignments/02_overlapped_ddp/overlapped_ddp.cpp"
        self.git("init", "--quiet")
        self.commit(first, "2026-10-12T12:00:00+00:00")
        self.commit(second, "2026-11-03T12:00:00+02:00")
        found = times_of(self.folder, course())
        self.assertEqual(found["01"], datetime.fromisoformat("2026-10-12T12:00:00+00:00"))
        self.assertEqual(found["02"], datetime.fromisoformat("2026-11-03T10:00:00+00:00"))
        self.git("gc", "--quiet")
        self.assertEqual(times_of(self.folder, course())["01"], found["01"], "with packed references")

    def test_what_was_committed_before_the_release_is_not_the_students(self) -> None:
        self.git("init", "--quiet")
        self.commit("assignments/01_naive_ddp/naive_ddp.cpp", "2026-10-01T12:00:00+00:00")
        self.assertGreater(times_of(self.folder, course())["01"].year, 2026 - 1)
        self.assertNotEqual(times_of(self.folder, course())["01"].isoformat(), "2026-10-01T12:00:00+00:00")

    def test_no_program_of_a_repositorys_own_is_run(self) -> None:
        self.git("init", "--quiet")
        self.commit("assignments/01_naive_ddp/naive_ddp.cpp", "2026-10-12T12:00:00+00:00")
        marker = self.folder.parent / f"{self.folder.name}.ran"
        (self.folder / "evil").write_text(f"#!/bin/sh\ntouch {marker}\n")
        (self.folder / "evil").chmod(0o755)
        for key in ("core.fsmonitor", "gpg.program", "core.pager", "diff.external"):
            self.git("config", key, str(self.folder / "evil"))
        self.git("config", "log.showSignature", "true")
        self.assertEqual(times_of(self.folder, course())["01"].day, 12)
        self.assertFalse(marker.exists())

    def test_a_table_comes_first(self) -> None:
        table = self.folder / "times.csv"
        table.write_text("student,time\nann,2026-10-19T23:59\n")
        given = read_times(table, course(timezone="Europe/Berlin"))
        self.assertEqual(times_of(self.folder, course(), given["ann"])["02"].isoformat(), "2026-10-19T23:59:00+02:00")
        table.write_text("name,time\nann,2026-10-19\n")
        with self.assertRaisesRegex(BadChoice, "the columns should be student,time"):
            read_times(table, course())
