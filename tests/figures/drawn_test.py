"""What tests of the writeup draw: small figures and tables of whatever implementation."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from matplotlib import pyplot as plt

from figures.lib import result_files, style, tables
from tests.figures.figure_test import TEST_DATA  # first: it finds the scripts

OWN_LINK = TEST_DATA / "naive_vs_flat.own_link.json"
BATCH_NORM = TEST_DATA / "sync_batch_norm.json"


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
    result = result_of(BATCH_NORM, "sync_batch_norm", impl, preset)
    table = tables.Table("A table", ["implementation", "time"], [["own", "1.50 ms"], ["peer", "3.0"]], "text", [result])
    return next(file for file in tables.save(table, folder, f"{name}.{impl}.{preset}") if file.suffix == ".json")
