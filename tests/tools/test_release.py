"""Tests of `make release`: what students get, and what they don't."""

from __future__ import annotations

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools.course import release
from tools.grading import stages
from tools.setup.toolchain import ROOT

# Whoever is told of these looks for what is not there.
INSTRUCTORS = re.compile(
    r"solutions/|IMPL=solutions|--impl solutions|tests/(mutants|variants|harness|benchmarks|figures|tools)"
    r"|(contract\.json|NOTES\.md|CLAIMS\.md|INSTRUCTOR\.md|instructor\.mk)|make (check|release|format)\b"
    r"|tools[/.](checking|course)"
)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")


def working_tree() -> str:
    """A commit of what the working tree has, whether or not it is committed."""
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    done = subprocess.run(["git", *who, "stash", "create"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip() or "HEAD"


class ReleasedTree(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(prefix="ddp-lab-release-")
        cls.addClassCleanup(folder.cleanup)
        cls.top, cls.tree = Path(folder.name), Path(folder.name) / "ddp-lab"
        cls.release = release.write_tree(cls.tree, working_tree())
        cls.texts = sorted(cls.tree.rglob("*.md"))

    def test_has_what_a_student_needs(self) -> None:
        for stage in stages.all_stages():
            for name in ("README.md", "stage.json", *(path.name for path in stage.sources("assignments"))):
                self.assertIn(f"assignments/{stage.name}/{name}", self.release.files)
            self.assertIn(f"tests/{stage.name}/signs_of_life.json", self.release.files)
            self.assertIn(f"writeup/answers/{stage.name}.typ", self.release.files)
        self.assertEqual(
            sorted(path.name for path in (self.tree / "tests").iterdir()),
            sorted([*(stage.name for stage in stages.all_stages()), "README.md", "support"]),
        )

    def test_no_text_speaks_of_what_is_not_there(self) -> None:
        for path in [*self.texts, self.tree / "Makefile", *self.tree.rglob("*.typ"), *self.tree.rglob("*.json")]:
            found = INSTRUCTORS.search(path.read_text())
            self.assertIsNone(found, f"{path.relative_to(self.tree)} speaks of {found and found[0]}")

    def test_no_link_is_dead(self) -> None:
        links = [(path, link) for path in self.texts for link in LINK.findall(path.read_text())]
        self.assertGreater(len(links), 10)
        for path, link in links:
            self.assertTrue((path.parent / link).exists(), f"{path.relative_to(self.tree)}: {link} is not handed out")


if __name__ == "__main__":
    unittest.main()
