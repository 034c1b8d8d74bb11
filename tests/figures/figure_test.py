"""What the tests of figures and tables share: scripts run on small data, good and bad, and figures of whatever
implementation."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from matplotlib import pyplot as plt
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from figures.lib import result_files, style, tables

ROOT = Path(__file__).resolve().parents[2]
TEST_DATA = ROOT / "figures" / "testdata"
OWN_LINK = TEST_DATA / "naive_vs_flat.own_link.json"
Document = dict[str, Any]
Boxes = dict[tuple[RendererBase, Text], Bbox]


def script_of(module: str) -> ModuleType:
    return importlib.import_module(f"figures.{module}")


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text)]


def words_of(figure: Figure) -> str:
    """All text, wherever its lines are broken."""
    return " ".join(" ".join(texts_of(figure)).split())


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


class ScriptTest:
    """Runs scripts in a folder of its own."""

    folder: Path

    @pytest.fixture(autouse=True)
    def closed(self) -> Iterator[None]:
        yield
        plt.close("all")

    def run(self, script: ModuleType, *files: Path, out: Path | None = None) -> tuple[int, str]:
        """The exit code and stderr."""
        errors = io.StringIO()
        arguments = ["--data", *map(str, files), "--out", str(out or self.folder / "out")]
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            code = script.main(arguments)
        return code, errors.getvalue()

    def made(self, script: ModuleType, *files: Path) -> dict[str, Document]:
        """The tables that a script sets, by their names without implementation and preset."""
        assert self.run(script, *files) == (0, "")
        files = (self.folder / "out").glob("*.json")
        return {file.name.partition(".solutions.")[0]: json.loads(file.read_text()) for file in files}

    def drawn(self, script: ModuleType, *files: Path) -> list[Figure]:
        figures: list[Figure] = []
        with mock.patch.object(style, "save", lambda figure, folder, name: figures.append(figure) or []):
            assert self.run(script, *files) == (0, "")
        return figures

    def changed(self, sample: str, change: Callable[[Document], object], name: str = "changed.json") -> Path:
        document = json.loads((TEST_DATA / f"{sample}.json").read_text())
        change(document)
        file = self.folder / name
        file.write_text(json.dumps(document))
        return file

    def refuse(self, script: ModuleType, files: list[Path], message: str) -> None:
        code, errors = self.run(script, *files)
        assert code == 1
        assert message in errors
        assert errors.count("\n") == 1
        assert not (self.folder / "out").exists()


def unchanged(document: Document) -> None:
    pass


def keep(condition: Callable[[Document], bool]) -> Callable[[Document], object]:
    """A change: the series alone whose labels fulfil the condition."""
    return lambda document: document.update(series=[one for one in document["series"] if condition(one["labels"])])


def drop(index: int) -> Callable[[Document], object]:
    return lambda document: document["series"].pop(index)


def first(**fields: Any) -> Callable[[Document], object]:
    """A change of the first series."""
    return lambda document: document["series"][0].update(fields)


def with_parameters(**parameters: Any) -> Callable[[Document], object]:
    return lambda document: document["parameters"].update(parameters)


def warm(document: Document) -> None:
    """Makes warm calls of first calls of ring_all_reduce."""
    document["parameters"]["procedure"] = "warm"
    document["series"] += [
        {**one, "unit": "bytes", "labels": {**one["labels"], "quantity": "allocated"}}
        for one in document["series"] if one["labels"]["quantity"] == "maxrss"
    ]  # fmt: skip


def result_of(sample: Path, program: str, impl: str, preset: str) -> result_files.Result:
    result = result_files.load(sample, program)
    result.provenance.update(implementation=impl, preset=preset)
    return result


def draw_figure(folder: Path, file: str, impl: str = "assignments", preset: str = "quick", drawn_as: str = "") -> Path:
    """A small figure that shows impl and preset, whatever `file` is called."""
    figure = plt.figure(figsize=(1, 1))
    style.add_provenance(figure, [result_of(OWN_LINK, "naive_vs_flat", impl, preset)])
    drawn_as = drawn_as or f"naive_vs_flat.{impl}.{preset}"
    with tempfile.TemporaryDirectory() as drawn:
        style.save(figure, Path(drawn), drawn_as)
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(Path(drawn) / f"{drawn_as}.png", folder / file))


def save_table(folder: Path, name: str = "sync_batch_norm", impl: str = "assignments", preset: str = "quick") -> Path:
    result = result_of(TEST_DATA / "sync_batch_norm.json", "sync_batch_norm", impl, preset)
    table = tables.Table("A table", ["implementation", "time"], [["own", "1.50 ms"], ["peer", "3.0"]], "text", [result])
    return next(file for file in tables.save(table, folder, f"{name}.{impl}.{preset}") if file.suffix == ".json")
