"""Sets time and memory of synchronized batch normalization as the published tables do, one for each implementation.

Reads a result file of the benchmark sync_batch_norm. The published numbers are of forward alone; forward and backward
together have a separate table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from figures.lib import script
from figures.lib.result_files import load
from figures.lib.side_by_side import side_by_side
from figures.lib.tables import Table, markdown
from figures.plots.sync_batch_norm import BOTH, CELL, FORWARD, MEMORY, PROGRAM, PUBLISHED, TIME, summary

COLUMNS = [*CELL, "num_workers", TIME, MEMORY]
# The published titles, in their order, by the variant whose numbers are below them here.
TITLES = {"peer": "Pytorch BN", "stage": "Selfmade BN"}


def texts_of(rows: pd.DataFrame) -> list[list[str]]:
    """The cells of COLUMNS, as published."""
    return [[*map(str, row[:3]), f"{row[3]:.5f}", f"{row[4]:.0f}"] for row in rows.itertuples(index=False, name=None)]


def text_of(tables: dict[str, pd.DataFrame], runs: int, command: str) -> str:
    """The published section, word for word."""
    parts = [f"{title}\n{markdown(COLUMNS, texts_of(tables[variant]), True)}" for variant, title in TITLES.items()]
    return f"{runs} runs for each parameter set\n\n" + "\n\n\n".join(parts) + f"\n\nto reproduce: `{command}`\n"


def takeaway(tables: dict[str, pd.DataFrame]) -> str:
    """The claim about the published numbers, as counts for ours."""
    own, peer = (tables[variant].reset_index(drop=True) for variant in ("stage", "peer"))
    faster, larger = (own[TIME] < peer[TIME]).sum(), (own[MEMORY] > peer[MEMORY]).sum()
    return f"Selfmade is faster in {faster} of {len(own)} cells, and takes more memory in {larger}."


def table(result: pd.DataFrame, direction: str, tables: dict[str, pd.DataFrame]) -> Table:
    runs = result.attrs["parameters"]["repetitions"]
    return Table(
        title=f"Synchronized batch normalization: {direction}",
        columns=["implementation", *COLUMNS],
        rows=[[title, *cells] for variant, title in TITLES.items() for cells in texts_of(tables[variant])],
        text=text_of(tables, runs, result.attrs["provenance"]["command"]),
        results=[result],
        note=f"Pytorch BN: the port of nn.SyncBatchNorm. Selfmade BN: stage 04. Medians of {runs} calls, of the "
        f"slowest rank, in seconds; most bytes of tensors at once, input and output counted in. {takeaway(tables)}",
    )


def tables(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for result in (load(file, PROGRAM) for file in files):
        cells = summary(result).assign(num_workers=result.attrs["provenance"]["world_size"])
        of = {
            direction: {variant: cells.loc[direction, variant].reset_index()[COLUMNS] for variant in TITLES}
            for direction in (FORWARD, BOTH)
        }
        published = table(result, FORWARD, of[FORWARD])
        yield script.name_of(PROGRAM, result), published
        yield script.name_of(f"{PROGRAM}.backward", result), table(result, BOTH, of[BOTH])
        for variant, rows in of[FORWARD].items():
            rows = rows.astype({MEMORY: int})
            yield from side_by_side(f"{PROGRAM}.{variant}", published, PUBLISHED[variant], COLUMNS[:3], rows)


main = script.main(__name__, __doc__, tables)
