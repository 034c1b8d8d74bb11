"""Sets the ring beside the butterfly and the backend's own all-reduce, in the form of the two published tables.

Reads result files of the benchmark ring_all_reduce: first calls, as published, or warm ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from figures.lib import script
from figures.lib.all_reduces import RING, title_of
from figures.lib.result_files import load
from figures.lib.side_by_side import side_by_side
from figures.lib.tables import Table, markdown
from figures.plots.ring_all_reduce import CELL, PROGRAM, REFERENCES, column_of, is_warm, means, name_of

# As published, with its spelling.
TITLES = {"butterfly": "Comprasion with given butterfly all reduce", "all_reduce": "Comprasion with pytorch all reduce"}


def columns_of(peer: str) -> list[str]:
    return [column_of(quantity, variant) for quantity in ("time", "maxrss", "diff") for variant in (RING, peer)]


def seconds_text(seconds: float) -> str:
    """Three decimals, as published, or enough to show two digits: warm calls take less than a millisecond here."""
    digits = 1 - math.floor(math.log10(seconds)) if seconds > 0 else 0
    return f"{seconds:.{max(3, digits)}f}"


def texts_of(numbers: pd.DataFrame) -> list[list[str]]:
    """The cells of the published columns, by CELL."""

    def text(column: str, value: float) -> str:
        if "time" in column:
            return seconds_text(value)
        return f"{value:.1f}" if "memory" in column else f"{value:.4e}" if value else "0.0000"

    return [
        [*map(str, cell), *(text(column, value) for column, value in row.items())] for cell, row in numbers.iterrows()
    ]


def text_of(peer: str, numbers: pd.DataFrame, command: str) -> str:
    body = markdown([*CELL, *numbers.columns], texts_of(numbers), aligned=False)
    return f"{TITLES[peer]}\n\n{body}\n\nto reproduce: `{command}`\n"


def make_table(result: pd.DataFrame, peer: str, numbers: pd.DataFrame) -> Table:
    name, warm, provenance = title_of(peer, result), is_warm(result), result.attrs["provenance"]
    first = "the first call of new processes, ru_maxrss in KiB, squared errors of rank 0 against the mean in float32. "
    return Table(
        title=f"Ring all-reduce beside {'the given butterfly' if peer == 'butterfly' else name}: "
        + ("warm calls" if warm else "first calls, as published"),
        columns=[*CELL, *numbers.columns],
        rows=texts_of(numbers),
        text=text_of(peer, numbers, provenance["command"]),
        results=[result],
        note=f"Means of {result.attrs['parameters']['repetitions']} repeats of the largest value of all ranks: seconds "
        "of " + ("a warm call alone, ru_maxrss in KiB, squared errors against the mean in float64. " if warm else first)
        + ("" if peer == "butterfly" else f"torch: {name}. ")
        + f"The machine has {provenance['cores']} cores.",
    )  # fmt: skip


def tables(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for result in (load(file, PROGRAM) for file in files):
        for peer, reference in REFERENCES.items():
            numbers = means(result, peer)
            if len(numbers):
                numbers = numbers[columns_of(peer)]
                made = make_table(result, peer, numbers)
                yield name_of(reference, result), made
                if not is_warm(result):
                    yield from side_by_side(reference, made, reference, CELL, numbers.reset_index())


main = script.main(__name__, __doc__, tables)
