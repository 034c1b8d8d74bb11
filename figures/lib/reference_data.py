"""Published numbers, to be drawn beside your own: figures/reference/<name>.csv.

A file begins with comment lines ("# ...") that say where the numbers come from and what they were measured on. Then
come the names of the columns and the rows, as published.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from figures.lib.result_files import ResultError

FOLDER = Path(__file__).resolve().parents[1] / "reference"


@dataclass(frozen=True)
class Reference:
    """One published table, its cells as they were printed."""

    source: list[str]  # the comment lines, without their "#"
    rows: list[dict[str, str]]

    def numbers(self, column: str) -> list[float]:
        return [float(row[column]) for row in self.rows]


def load_reference(name: str) -> Reference:
    file = FOLDER / f"{name}.csv"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ResultError(f"{file}: cannot be read: {error.strerror}; restore it from the repository") from None
    source = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    return Reference(source, list(csv.DictReader(line for line in lines if not line.startswith("#"))))
