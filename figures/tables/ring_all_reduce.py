"""Sets the ring beside the butterfly and the backend's own all-reduce, in the form of the two published tables.

Reads result files of the benchmark ring_all_reduce: first calls, as published, or warm ones.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from pathlib import Path

from figures.lib import script
from figures.lib.all_reduces import RING, title_of
from figures.lib.result_files import Result
from figures.lib.side_by_side import Quantity, side_by_side
from figures.lib.tables import Table, markdown
from figures.plots.ring_all_reduce import TABLES, Published, cells_of, is_warm, load_ring, name_of

# As published, with its spelling.
TITLES = {"butterfly": "Comprasion with given butterfly all reduce", "all_reduce": "Comprasion with pytorch all reduce"}


def columns_of(table: Published) -> list[str]:
    pairs = [name.format(variant) for name in ("{}_max_time_consumed", "{}_max_memory", "diff_{}")
             for variant in (RING, table.column)]  # fmt: skip
    return ["world_size", "tensor_size", *pairs]


def seconds_text(seconds: float) -> str:
    """Three decimals, as published, or enough to show two digits: warm calls take less than a millisecond here."""
    digits = 1 - math.floor(math.log10(seconds)) if seconds > 0 else 0
    return f"{seconds:.{max(3, digits)}f}"


def diff_text(diff: float) -> str:
    return f"{diff:.4e}" if diff else "0.0000"


def row_texts(numbers: list[float]) -> list[str]:
    """The texts of one row's numbers, in the order of the columns."""
    world, size, ring_time, peer_time, ring_memory, peer_memory, ring_diff, peer_diff = numbers
    return [
        f"{world:.0f}", f"{size:.0f}", seconds_text(ring_time), seconds_text(peer_time), f"{ring_memory:.1f}",
        f"{peer_memory:.1f}", diff_text(ring_diff), diff_text(peer_diff),
    ]  # fmt: skip


def rows_of(result: Result, table: Published) -> list[list[float]]:
    def mean(unit: str, quantity: str, variant: str, world: int, size: int) -> float:
        labels = {"peer": table.peer, "world_size": world, "tensor_size": size, "variant": variant}
        return statistics.fmean(result.values(unit, **labels, quantity=quantity))

    return [
        [world, size]
        + [
            mean(unit, quantity, variant, world, size)
            for quantity, unit in (("time", "s"), ("maxrss", "KiB"), ("diff", "1"))
            for variant in (RING, table.peer)
        ]
        for world, size in cells_of(result, table.peer)
    ]


def text_of(table: Published, rows: list[list[float]], command: str) -> str:
    body = markdown(columns_of(table), [row_texts(row) for row in rows], aligned=False)
    return f"{TITLES[table.peer]}\n\n{body}\n\nto reproduce: `{command}`\n"


def make_table(result: Result, table: Published) -> Table:
    rows = rows_of(result, table)
    peer = title_of(table.peer, result)
    return Table(
        title=f"Ring all-reduce beside {'the given butterfly' if table.peer == 'butterfly' else peer}: "
        + ("warm calls" if is_warm(result) else "first calls, as published"),
        columns=columns_of(table),
        rows=[row_texts(row) for row in rows],
        text=text_of(table, rows, result.provenance["command"]),
        results=[result],
        note=f"Means of {result.parameters['repetitions']} repeats of the largest value of all ranks: seconds of "
        + (
            "a warm call alone, ru_maxrss in KiB, squared errors against the mean in float64. "
            if is_warm(result)
            else "the first call of new processes, ru_maxrss in KiB, squared errors of rank 0 against the mean in "
            "float32. "
        )
        + ("" if table.peer == "butterfly" else f"torch: {peer}. ")
        + f"The machine has {result.provenance['cores']} cores.",
    )


def tables(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for result in map(load_ring, files):
        for table in TABLES:
            if cells_of(result, table.peer):
                made = make_table(result, table)
                yield name_of(table.reference, result), made
                if not is_warm(result):
                    own = {(f"{row[0]:.0f}", f"{row[1]:.0f}"): row[2:] for row in rows_of(result, table)}
                    keys, quantities = columns_of(table)[:2], [Quantity(name) for name in columns_of(table)[2:]]
                    yield from side_by_side(table.reference, made, table.reference, keys, quantities, own)


main = script.main(__name__, __doc__, tables)
