"""What tests of releases share: a small repository of a course, and a student who has got a release of it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

import pytest

from tools.course import release
from tools.grading import stages
from tools.grading.compiling import building
from tools.grading.released import Release
from tools.grading.running import minimum_activity
from tools.grading.scoring import kept_scores
from tools.grading.scoring.results import Report, StageReport, Status, TestResult, TestSpec
from tools.setup.toolchain import ROOT
from tools.student import reset, submit

DATE = "2026-10-05T12:00:00+00:00"
STAGE, HEADER = "assignments/01_sums/sums.cpp", "assignments/01_sums/sums.h"
SECOND, GIVEN = "assignments/02_products/products.cpp", "common/ddp/given.h"
ANSWERS, QUESTIONS = "writeup/answers/01_sums.typ", "writeup/questions/01_sums.typ"
STUB, MINE = "// TODO(student)\n", "int sum() { return 4; }\n"
FIRST_DAY, NEXT_DAY = "2026-10-07T10:00:00Z", "2026-10-08T10:00:00Z"


def git(root: Path, *arguments: str, date: str = DATE) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "init.defaultBranch=main"]
    dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    done = subprocess.run(
        ["git", *who, *arguments], cwd=root, env={**os.environ, **dates}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def working_tree() -> str:
    """A commit of what the checkout has, whether or not it is committed."""
    return git(ROOT, "stash", "create") or "HEAD"


def write(root: Path, files: Mapping[str, str | None]) -> None:
    """Writes, or removes, these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True) if text is None else path.write_text(text)


@contextlib.contextmanager
def known_activity(file: Path) -> Iterator[None]:
    """As after a run of the solutions, of which nothing is kept but this file."""
    file.write_text("{}\n")
    with mock.patch.object(minimum_activity, "known", return_value=file):
        yield


class Repository:
    """An instructor's repository with one stage."""

    def __init__(self, top: Path) -> None:
        self.top, self.root = top, top / "course"
        self.root.mkdir()
        git(self.root, "init", "-q")
        self.commit(
            {
                ".gitattributes": "/solutions export-ignore\n/.gitattributes export-ignore\n",
                ".gitignore": "/build/\n/handin/\n/writeup/out/\n__pycache__/\n",
                "README.md": "# Lab\n",
                "course.json": json.dumps({"name": "little-lab"}),
                STAGE: STUB,
                HEADER: "int sum();\n",
                "assignments/01_sums/stage.json": json.dumps({"number": "01", "title": "sums", "points": 3}),
                GIVEN: "int given();\n",
                "solutions/01_sums/sums.cpp": "int sum() { return 3; }\n",
                ANSWERS: '#answer("1.1")[\n  #todo\n]\n',
            }
        )

    def commit(self, files: Mapping[str, str | None], date: str = DATE) -> None:
        write(self.root, files)
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "-m", "a course", date=date)

    def released(self, name: str) -> Release:
        """Writes the students' tree of the last commit into the folder `name`."""
        return release.write_tree(self.top / name, root=self.root)


class Student:
    """Who has got the first release of a course with two stages, and has written the first."""

    def __init__(self, top: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.course, self.root, self.capsys = Repository(top), top / "mine", capsys
        self.archive, self.results = self.root / "handin/little-lab.zip", self.root / "build/grade/scores.json"
        self.course.commit(
            {
                SECOND: STUB,
                "assignments/02_products/stage.json": json.dumps({"number": "02", "title": "products", "points": 4}),
                "course.json": json.dumps({"name": "little-lab", "links": {"Hand in": "https://example.edu/in"}}),
                QUESTIONS: '#let questions = (\n  question(\n    "1.1", points: 2)[Why?],\n  question("1.2")[How?])\n',
                ANSWERS: '#answer("1.1")[\n  #todo\n]\n\n#answer("1.2")[\n  Because.\n]\n',
                "writeup/answers/about.typ": '#let name = ""\n',
            }
        )
        self.pull()
        self.edit({STAGE: MINE})

    def pull(self) -> None:
        """Takes the release of the course's last commit: a clone, or what is new."""
        release.release(self.course.root, self.course.top / "handed_out")
        if self.root.exists():
            git(self.root, "pull", "-q", "--no-rebase", "--no-edit")
        else:
            git(self.course.top, "clone", "-q", "-b", release.BRANCH, str(self.course.root), str(self.root))
        self.capsys.readouterr()

    def edit(self, files: dict[str, str | None]) -> None:
        write(self.root, files)

    def text(self, name: str) -> str | None:
        return (self.root / name).read_text() if (self.root / name).exists() else None

    def commit_all(self) -> None:
        for command in ("init -q", "add -A", "commit -q -m work"):
            git(self.root, *command.split())

    def graded(self, stage: str = "01_sums", impl: str = "assignments", date: str = FIRST_DAY, error: str = "",
               partial: bool = False) -> None:  # fmt: skip
        """What `make test STAGE=` leaves, or with partial=True `make test TEST=`."""
        tests = [TestResult(TestSpec("sums_are_right", 2), Status.PASSED)]
        tests += [TestResult(TestSpec("others_too", 1), Status.FAILED)]
        found = StageReport(stages.named(stage), tests, sources=building.digest(stages.named(stage), impl))
        found.build_error = error
        self.results.parent.mkdir(parents=True, exist_ok=True)
        kept_scores.keep(self.results.parent, Report(impl, "cpu", 7, [found], partial=partial, date=date), found)

    def submit(self) -> str:
        assert submit.submit(self.root, self.results) == 0
        return self.capsys.readouterr().out

    def packed(self) -> dict[str, bytes]:
        with zipfile.ZipFile(self.archive) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    def reset(self) -> str:
        assert reset.reset(stages.named("01_sums"), self.root) == 0
        return self.capsys.readouterr().out
