"""Published numbers, to be drawn beside your own: figures/reference/<name>.csv.

A file begins with comment lines ("# ...") that say where the numbers come from and what they were measured on. Then
come the names of the columns and the rows, as published.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).resolve().parents[1] / "reference"


def load_reference(name: str, as_printed: bool = False) -> pd.DataFrame:
    """The table <name>.csv, with its cells as numbers, or as they were printed; attrs["source"] has the comments."""
    file = FOLDER / f"{name}.csv"
    lines = file.read_text(encoding="utf-8").splitlines()
    source = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    kind = {"dtype": str, "keep_default_na": False} if as_printed else {}
    table = pd.read_csv(file, skiprows=len(source), **kind)
    table.attrs = {"source": source}
    return table


def setup_of(table: pd.DataFrame) -> str:
    (setup,) = (line for line in table.attrs["source"] if line.startswith("Setup: "))
    return setup.removeprefix("Setup: ")
