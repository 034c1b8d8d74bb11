"""What tests of releases share: a small repository of a course, and the whole lab's released tree."""

from __future__ import annotations

import json
import subprocess
import unittest
from collections.abc import Mapping
from pathlib import Path

from tools.course import release
from tools.grading.released import Release
from tools.setup.toolchain import ROOT


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def working_tree() -> str:
    """A commit of what the checkout has, whether or not it is committed."""
    return git(ROOT, "stash", "create") or "HEAD"


class Repository(unittest.TestCase):
    """An instructor's repository with one stage."""

    def setUp(self) -> None:
        self.top = self.folder
        self.root = self.top / "course"
        self.root.mkdir()
        git(self.root, "init", "-q")
        self.commit(
            {
                ".gitattributes": "/solutions export-ignore\n/.gitattributes export-ignore\n",
                ".gitignore": "/build/\n__pycache__/\n",
                "README.md": "# Lab\n",
                "course.json": json.dumps({"name": "little-lab"}),
                "assignments/01_sums/sums.cpp": "// TODO(student)\n",
                "assignments/01_sums/sums.h": "int sum();\n",
                "assignments/01_sums/stage.json": json.dumps({"number": "01", "title": "sums", "points": 3}),
                "common/ddp/given.h": "int given();\n",
                "solutions/01_sums/sums.cpp": "int sum() { return 3; }\n",
                "writeup/answers/01_sums.typ": '#answer("1.1")[\n  #todo\n]\n',
            }
        )

    def commit(self, files: Mapping[str, str | None], date: str = "2026-10-05T12:00:00+00:00") -> None:
        """Writes, or removes, these files and commits them."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True) if text is None else path.write_text(text)
        git(self.root, "add", "-A")
        tree = git(self.root, "write-tree")
        environment = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        made = subprocess.run(
            ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit-tree", tree, "-m", "a course"],
            cwd=self.root, capture_output=True, text=True, check=True, env=environment,
        )  # fmt: skip
        git(self.root, "reset", "-q", "--hard", made.stdout.strip())

    def released(self, name: str) -> Release:
        """Writes the students' tree of the last commit into the folder `name`."""
        return release.write_tree(self.top / name, root=self.root)
