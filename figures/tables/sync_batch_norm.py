"""Sets time and memory of synchronized batch normalization as the published tables do, one for each implementation.

Reads a result file of the benchmark sync_batch_norm. The published numbers are of forward alone; forward and backward
together have a separate table.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from figures.lib import script
from figures.lib.result_files import Result, load
from figures.lib.side_by_side import Quantity, side_by_side
from figures.lib.tables import Table, markdown
from figures.plots.sync_batch_norm import DIRECTIONS, PARAMETERS, PROGRAM, PUBLISHED, Cell, Grid

COLUMNS = ["batch_size", "hidden_dim", "num_workers", "median time", "max memory allocated"]
# The published titles, in their order, by the variant whose numbers are below them here.
TITLES = {"peer": "Pytorch BN", "stage": "Selfmade BN"}
SUFFIXES = {DIRECTIONS[0]: "", DIRECTIONS[1]: ".backward"}


@dataclass(frozen=True)
class Row:
    cell: Cell
    workers: int
    seconds: float
    allocated: int  # bytes

    def texts(self) -> list[str]:
        numbers = (self.cell.batch, self.cell.hidden, self.workers)
        return [*map(str, numbers), f"{self.seconds:.5f}", str(self.allocated)]


Rows = dict[str, list[Row]]  # by TITLES


def rows_of(result: Result, direction: str) -> Rows:
    grid = Grid(result)
    return {
        variant: [
            Row(
                cell,
                result.provenance["world_size"],
                statistics.median(grid.values("s", cell, variant, direction, "time")),
                round(statistics.median(grid.values("bytes", cell, variant, direction, "peak memory"))),
            )
            for batch in grid.batches
            for cell in grid.cells(batch)
        ]
        for variant in TITLES
    }


def text_of(rows: Rows, runs: int, command: str) -> str:
    """The published section, word for word."""
    parts = [f"{title}\n{markdown(COLUMNS, [row.texts() for row in rows[key]], True)}" for key, title in TITLES.items()]
    return f"{runs} runs for each parameter set\n\n" + "\n\n\n".join(parts) + f"\n\nto reproduce: `{command}`\n"


def takeaway(rows: Rows) -> str:
    """The claim about the published numbers, as counts for ours."""
    pairs = list(zip(rows["stage"], rows["peer"]))
    faster = sum(own.seconds < other.seconds for own, other in pairs)
    larger = sum(own.allocated > other.allocated for own, other in pairs)
    return f"Selfmade is faster in {faster} of {len(pairs)} cells, and takes more memory in {larger}."


def table(result: Result, direction: str) -> Table:
    rows, runs = rows_of(result, direction), result.parameters["repetitions"]
    return Table(
        title=f"Synchronized batch normalization: {direction}",
        columns=["implementation", *COLUMNS],
        rows=[[title, *row.texts()] for variant, title in TITLES.items() for row in rows[variant]],
        text=text_of(rows, runs, result.provenance["command"]),
        results=[result],
        note=f"Pytorch BN: the port of nn.SyncBatchNorm. Selfmade BN: stage 04. Medians of {runs} calls, of the "
        f"slowest rank, in seconds; most bytes of tensors at once, input and output counted in. {takeaway(rows)}",
    )


def tables(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for file in files:
        result = load(file, PROGRAM, PARAMETERS)
        for direction, suffix in SUFFIXES.items():
            yield script.name_of(PROGRAM + suffix, result), table(result, direction)
        published = table(result, DIRECTIONS[0])
        for variant, rows in rows_of(result, DIRECTIONS[0]).items():
            own = {tuple(row.texts()[:3]): (row.seconds, row.allocated) for row in rows}
            quantities = [Quantity(name) for name in COLUMNS[3:]]
            yield from side_by_side(f"{PROGRAM}.{variant}", published, PUBLISHED[variant], COLUMNS[:3], quantities, own)


main = script.main(__name__, __doc__, tables)
