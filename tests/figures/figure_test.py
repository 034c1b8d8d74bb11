"""Helpers shared by the tests of the figure scripts."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]

from matplotlib import pyplot as plt
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

TEST_DATA = ROOT / "figures" / "testdata"
Boxes = dict[tuple[RendererBase, Text], Bbox]
OWN_LINK = TEST_DATA / "naive_vs_flat.own_link.json"


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text)]


@contextlib.contextmanager
def texts_drawn() -> Iterator[Boxes]:
    """Notes where texts are drawn meanwhile."""
    boxes: Boxes = {}
    draw = Text.draw

    def note(text: Text, renderer: RendererBase, *others: Any) -> None:
        draw(text, renderer, *others)
        if text.get_visible() and text.get_text().strip():
            boxes[renderer, text] = text.get_window_extent(renderer)

    with mock.patch.object(Text, "draw", note):
        yield boxes


def overlapping(boxes: Boxes) -> list[str]:
    """The texts of a drawing that share more than a rim of their boxes."""
    inner = {key: box.expanded(0.98, 0.8) for key, box in boxes.items()}
    return [
        f"'{one.get_text()}' and '{other.get_text()}' overlap"
        for ((renderer, one), first), ((others, other), second) in itertools.combinations(inner.items(), 2)
        if renderer is others and first.overlaps(second)
    ]


class FigureTest(unittest.TestCase):
    """Helpers for the tests of one figure's script."""

    script: ModuleType
    sample: Path  # a good result file

    def setUp(self) -> None:
        self.addCleanup(plt.close, "all")

    def draw(self, *files: Path, out: Path | None = None) -> tuple[int, str]:
        """The exit code and stderr."""
        errors = io.StringIO()
        arguments = ["--data", *map(str, files), "--out", str(out or self.folder / "out")]
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            code = self.script.main(arguments)
        return code, errors.getvalue()

    def changed(self, change: Callable[[dict[str, Any]], None], name: str = "changed.json") -> Path:
        document = json.loads(self.sample.read_text())
        change(document)
        file = self.folder / name
        file.write_text(json.dumps(document))
        return file

    def kept(self, keep: Callable[[dict[str, Any]], bool]) -> Path:
        """The sample, with the series alone whose labels `keep` likes."""
        return self.changed(
            lambda document: document.update(series=[one for one in document["series"] if keep(one["labels"])])
        )

    def assert_refused(self, files: list[Path], message: str) -> None:
        code, errors = self.draw(*files)
        self.assertEqual(code, 1)
        self.assertIn(message, errors)
        self.assertEqual(errors.count("\n"), 1, errors)
        self.assertFalse((self.folder / "out").exists())

    def assert_drawn(self, files: list[Path], *names: str) -> None:
        """Draws a PNG and a PDF of each name, in which no text lies on another."""
        with texts_drawn() as texts:
            self.assertEqual(self.draw(*files), (0, ""))
        self.assertEqual("\n".join(overlapping(texts)), "")
        drawn = sorted((self.folder / "out").iterdir())
        self.assertEqual(
            [file.name for file in drawn], sorted(f"{name}.{kind}" for name in names for kind in ("pdf", "png"))
        )
        self.assertGreater(min(file.stat().st_size for file in drawn if file.suffix == ".png"), 10_000)
