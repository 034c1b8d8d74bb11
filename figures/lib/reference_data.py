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

    file: Path
    source: list[str]  # the comment lines, without their "#"
    rows: list[dict[str, str]]

    def numbers(self, column: str) -> list[float]:
        """A column's numbers, row by row."""
        if column not in self.rows[0]:
            raise ResultError(f"{self.file}: lacks the column {column!r}; it has {', '.join(self.rows[0])}")
        try:
            return [float(row[column]) for row in self.rows]
        except ValueError as error:
            raise ResultError(f"{self.file}: the column {column!r} is not all numbers: {error}") from None


def load_reference(name: str, folder: Path = FOLDER) -> Reference:
    """The table in <folder>/<name>.csv."""
    file = folder / f"{name}.csv"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ResultError(f"{file}: cannot be read ({error}); restore it from the repository") from None
    source = [line.removeprefix("#").strip() for line in lines if line.startswith("#")]
    header, *rows = list(csv.reader(line for line in lines if not line.startswith("#"))) or [[]]
    if not source or not rows:
        raise ResultError(f"{file}: has no source or no rows; restore it from the repository")
    uneven = [row for row in rows if len(row) != len(header)]
    if uneven or len(set(header)) != len(header):
        problem = f"the row {','.join(uneven[0])} does not fit" if uneven else "names of columns are repeated in"
        raise ResultError(f"{file}: {problem} the header {','.join(header)}; restore it from the repository")
    return Reference(file, source, [dict(zip(header, row)) for row in rows])
