"""Published measurements of several sources beside what the simulated cluster says of them: held_out.csv.

Rows of a source that describe its machine, or to which something was fitted, are calibration; errors are counted over
the others alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean

from figures.lib.reference_data import load_reference

NAME = "held_out"
STEP, AFTER, FORWARD, BOTH, OPTIMIZER, ALL_REDUCE, AB = (
    "step", "after backward", "forward", "forward + backward", "optimizer", "time", "A/B"
)  # fmt: skip
ONE_GPU = "compute only"
SOURCES = {
    "A": "A, 2 GPUs, PCIe",
    "B": "B, 2 H20",
    "C": "C, 2 T4",
    "suite": "PyTorch's suite, 64 V100",
    "D": "D, 2 H100, FP32",
    "D, TF32": "D, 1 H100, TF32",
    "D, BF16": "D, 1 H100, BF16",
    "E": "E, 2 RTX PRO 6000",
    "F": "F, 32 V100",
    "G": "G, 2 A800, PCIe",
}


@dataclass(frozen=True)
class Row:
    """Numbers as text are as in the file; seconds, or points for an A/B."""

    source: str
    gpus: int
    model: str
    batch: str
    seq: str
    method: str
    bucket_mb: str
    metric: str
    fitted: bool
    published: float
    predicted: float

    @property
    def quantity(self) -> str:
        """What errors are counted over together."""
        if self.metric in (FORWARD, BOTH):
            return f"{self.metric}, 1 GPU"
        if self.metric in (OPTIMIZER, ALL_REDUCE, AB):
            return "all-reduce" if self.metric == ALL_REDUCE else self.metric
        kind = "bucketed" if self.method == "Reducer" else self.method
        return f"{kind}: {self.metric}"

    @property
    def error(self) -> float:
        """In percent; of an A/B in points."""
        if self.metric == AB:
            return self.predicted - self.published
        return 100 * (self.predicted / self.published - 1)


def row_of(cells: dict[str, str]) -> Row:
    rest = dict(cells)
    fitted = rest.pop("role") == "calibration"
    numbers = {name: float(rest.pop(name)) for name in ("published", "predicted")}
    return Row(gpus=int(rest.pop("gpus")), fitted=fitted, **numbers, **rest)


def rows() -> list[Row]:
    return [row_of(cells) for cells in load_reference(NAME).rows]


def quantities(all_rows: Iterable[Row]) -> Iterator[tuple[str, str, list[Row]]]:
    """Source, quantity, and its held-out rows; where there are some."""
    held = [row for row in all_rows if not row.fitted]
    for source, quantity in dict.fromkeys((row.source, row.quantity) for row in held):
        yield source, quantity, [row for row in held if (row.source, row.quantity) == (source, quantity)]


def dull_error(row: Row, all_rows: list[Row]) -> float:
    """Of the guess of somebody who knows the mean of the source's numbers of the same kind, and no model."""
    alike = [other.published for other in all_rows if (other.source, other.quantity) == (row.source, row.quantity)]
    guess = fmean(alike)
    return guess - row.published if row.metric == AB else 100 * (guess / row.published - 1)


COLUMNS = ["source", "quantity", "held-out cells", "mean error", "largest", "dull mean", "dull largest"]


def table(all_rows: list[Row]) -> list[list[str]]:
    lines = []
    for source, quantity, held in quantities(all_rows):
        own, dull = ([abs(error) for error in errors] for errors in (
            [row.error for row in held], [dull_error(row, all_rows) for row in held],
        ))  # fmt: skip
        unit = "points" if quantity == AB else "%"
        values = (f"{value:.1f} {unit}" for value in (fmean(own), max(own), fmean(dull), max(dull)))
        lines.append([SOURCES[source], quantity, str(len(held)), *values])
    return lines
