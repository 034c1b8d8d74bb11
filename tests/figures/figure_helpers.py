"""What the tests of figures and tables share: results for the scripts, small figures and tables of any provenance."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt

from figures.lib import result_files, style, tables

ROOT = Path(__file__).resolve().parents[2]
TEST_DATA = ROOT / "figures" / "testdata"
Document = dict[str, Any]


def keep(condition: Callable[[Document], bool]) -> Callable[[Document], object]:
    """A change: the series alone whose labels fulfil the condition."""
    return lambda document: document.update(series=[one for one in document["series"] if condition(one["labels"])])


def changed(sample: str, change: Callable[[Document], object], folder: Path) -> Path:
    """The sample of the test data with a change, as a file in `folder`."""
    document = json.loads((TEST_DATA / f"{sample}.json").read_text())
    change(document)
    file = folder / f"{sample}.json"
    file.write_text(json.dumps(document))
    return file


def sample_of(name: str) -> pd.DataFrame:
    return result_files.load(TEST_DATA / f"{name}.json", name.partition(".")[0])


def result_of(sample: str, impl: str, preset: str) -> pd.DataFrame:
    result = sample_of(sample)
    result.attrs["provenance"].update(implementation=impl, preset=preset)
    return result


def draw_figure(folder: Path, file: str, impl: str = "assignments", preset: str = "quick", drawn_as: str = "") -> Path:
    """A small figure that shows impl and preset, whatever `file` is called."""
    figure = plt.figure(figsize=(1, 1))
    style.add_provenance(figure, [result_of("step_time.own_link", impl, preset)])
    drawn_as = drawn_as or f"naive_vs_flat.{impl}.{preset}"
    with tempfile.TemporaryDirectory() as drawn:
        style.save(figure, Path(drawn), drawn_as)
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(Path(drawn) / f"{drawn_as}.png", folder / file))


def save_table(folder: Path, name: str = "sync_batch_norm", impl: str = "assignments", preset: str = "quick") -> Path:
    result = result_of("sync_batch_norm", impl, preset)
    table = tables.Table("A table", ["implementation", "time"], [["own", "1.50 ms"], ["baseline", "3.0"]], [result])
    return next(file for file in tables.save(table, folder, f"{name}.{impl}.{preset}") if file.suffix == ".json")
