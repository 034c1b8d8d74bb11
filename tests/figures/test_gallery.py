"""The gallery: what is taken over, and which figures are of older code."""

from __future__ import annotations

import subprocess
from pathlib import Path
from unittest import mock

from matplotlib import pyplot as plt

from figures.lib import style
from tests.figures.drawn_test import OWN_LINK, result_of, save_table
from tests.figures.figure_test import FigureTest  # first: it finds the scripts
from tools.report import gallery
from tools.report.writeup_results import Unusable

NAME = "naive_vs_flat"


class Gallery(FigureTest):
    """In a repository of its own, with one commit."""

    def setUp(self) -> None:
        super().setUp()
        self.root, self.out, self.kept = (self.folder / name for name in ("root", "out", "gallery"))
        self.kept.mkdir()
        self.source = self.root / "benchmarks" / "experiments" / NAME / f"{NAME}.cpp"
        self.source.parent.mkdir(parents=True)
        self.source.write_text("// measures\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first")
        self.commit = self.git("describe", "--always", "--abbrev=12")
        self.enterContext(mock.patch.object(gallery, "ROOT", self.root))
        self.enterContext(mock.patch.object(gallery, "sources", lambda program: [f"benchmarks/experiments/{program}"]))

    def git(self, *command: str) -> str:
        return subprocess.run(
            ["git", *command], cwd=self.root, capture_output=True, text=True, check=True
        ).stdout.strip()

    def draw_in(self, folder: Path, commit: str, impl: str = "solutions", preset: str = "quick") -> None:
        figure = plt.figure(figsize=(1, 1))
        result = result_of(OWN_LINK, NAME, impl, preset)
        result.provenance["commit"] = commit
        style.add_provenance(figure, [result])
        style.save(figure, folder, f"{NAME}.{impl}.{preset}")

    def test_takes_the_solutions_quick_and_published_files(self) -> None:
        for impl, preset in (("solutions", "quick"), ("solutions", "published"), ("solutions", "full"),
                             ("assignments", "quick")):  # fmt: skip
            self.draw_in(self.out, self.commit, impl, preset)
        save_table(self.out, impl="solutions")
        taken = gallery.refresh(self.out, self.kept)
        self.assertEqual([file.name for file in taken], [f"{NAME}.png", f"{NAME}.published.png", "tables.json"])
        for file, preset in zip(taken, ("quick", "published")):
            self.assertEqual(file.read_bytes(), (self.out / f"{NAME}.solutions.{preset}.png").read_bytes())

    def test_refuses_what_no_commit_has(self) -> None:
        for commit in (f"{self.commit}-dirty", "unknown"):
            self.draw_in(self.out, commit)
            with self.assertRaisesRegex(Unusable, f"was made from commit {commit}: commit first"):
                gallery.refresh(self.out, self.kept)
        self.assertEqual(list(self.kept.iterdir()), [])

    def test_says_what_is_of_older_code(self) -> None:
        self.draw_in(self.out, self.commit)
        gallery.refresh(self.out, self.kept)
        self.assertEqual(gallery.changes(self.kept), [])
        self.source.write_text("// measures something else\n")
        (line,) = gallery.changes(self.kept)
        source = self.source.relative_to(self.root)
        self.assertEqual(line, f"{NAME}.png: made from {self.commit}, since then changed: {source}")

    def test_says_that_a_commit_is_not_known(self) -> None:
        self.draw_in(self.out, "0123456789ab")
        gallery.refresh(self.out, self.kept)
        (line,) = gallery.changes(self.kept)
        self.assertIn("git does not know that commit", line)


class Sources(FigureTest):
    def test_are_files_of_the_repository(self) -> None:
        paths = gallery.sources("bucketed_ddp")
        self.assertIn("solutions/03_bucketed_ddp/bucketed_ddp.cpp", paths)
        self.assertEqual([path for path in paths if not (gallery.ROOT / path).exists()], [])
