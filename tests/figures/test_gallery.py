"""The gallery: what is taken over, and which figures are of older code."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from matplotlib import pyplot as plt

from figures.lib import style
from tests.figures.figure_test import OWN_LINK, ScriptTest, result_of, save_table
from tools.report import gallery
from tools.report.writeup_results import Unusable

NAME = "naive_vs_flat"


class TestGallery(ScriptTest):
    """In a repository of its own, with one commit."""

    @pytest.fixture(autouse=True)
    def repository(self) -> Iterator[None]:
        self.root, self.out, self.kept = (self.folder / name for name in ("root", "out", "gallery"))
        self.kept.mkdir()
        self.source = self.root / "benchmarks" / "experiments" / NAME / f"{NAME}.cpp"
        self.source.parent.mkdir(parents=True)
        self.source.write_text("// measures\n")
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "first")
        self.commit = self.git("describe", "--always", "--abbrev=12")
        with (
            mock.patch.object(gallery, "ROOT", self.root),
            mock.patch.object(gallery, "sources", lambda program: [f"benchmarks/experiments/{program}"]),
        ):
            yield

    def git(self, *command: str) -> str:
        done = subprocess.run(["git", *command], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def draw_in(self, folder: Path, commit: str, impl: str = "solutions", preset: str = "quick") -> None:
        figure = plt.figure(figsize=(1, 1))
        result = result_of(OWN_LINK, NAME, impl, preset)
        result.provenance["commit"] = commit
        style.add_provenance(figure, [result])
        style.save(figure, folder, f"{NAME}.{impl}.{preset}")

    def test_takes_the_solutions_quick_and_published_files(self) -> None:
        """Tables that were there before stay."""
        for impl, preset in (("solutions", "quick"), ("solutions", "published"), ("solutions", "full"),
                             ("assignments", "quick")):  # fmt: skip
            self.draw_in(self.out, self.commit, impl, preset)
        save_table(self.out, impl="solutions")
        gallery.keep_tables(self.kept, {"older": {"name": "older"}})
        taken = gallery.refresh(self.out, self.kept)
        assert [file.name for file in taken] == [f"{NAME}.png", f"{NAME}.published.png", "tables.json"]
        for file, preset in zip(taken, ("quick", "published")):
            assert file.read_bytes() == (self.out / f"{NAME}.solutions.{preset}.png").read_bytes()
        table = json.loads((self.out / "sync_batch_norm.solutions.quick.json").read_text())
        assert json.loads(taken[-1].read_text()) == {"older": {"name": "older"}, "sync_batch_norm": table}

    def test_refuses_what_no_commit_has(self) -> None:
        for commit in (f"{self.commit}-dirty", "unknown"):
            self.draw_in(self.out, commit)
            with pytest.raises(Unusable, match=f"was made from commit {commit}: commit first"):
                gallery.refresh(self.out, self.kept)
        assert list(self.kept.iterdir()) == []

    def test_says_what_is_of_older_code(self) -> None:
        self.draw_in(self.out, self.commit)
        gallery.refresh(self.out, self.kept)
        assert gallery.changes(self.kept) == []
        self.source.write_text("// measures something else\n")
        program = self.source.parent.relative_to(self.root)
        assert gallery.changes(self.kept) == [f"{NAME}.png: made from {self.commit}, since then changed: {program}"]

    def test_says_that_a_commit_is_not_known(self) -> None:
        self.draw_in(self.out, "0123456789ab")
        gallery.refresh(self.out, self.kept)
        (line,) = gallery.changes(self.kept)
        assert "git does not know that commit" in line


def test_sources_are_files_of_the_repository() -> None:
    paths = gallery.sources("bucketed_ddp")
    assert "solutions/03_bucketed_ddp/bucketed_ddp.cpp" in paths
    assert [path for path in paths if not (gallery.ROOT / path).exists()] == []
