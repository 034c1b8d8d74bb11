"""Published numbers and those of a result in one table: for each quantity the value, the published one, and the ratio.

The rows and their names are those of a table in figures/reference, whatever the experiment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from figures.lib import script
from figures.lib.reference_data import load_reference
from figures.lib.result_files import Result
from figures.lib.tables import Table

Key = tuple[str, ...]  # of a row: its cells in the columns that are no quantities


@dataclass(frozen=True)
class Quantity:
    """A column of a published table."""

    name: str
    has_ratio: bool = True  # false where zero means nothing, as of differences in percent


def side_by_side(
    name: str,
    table: Table,
    reference: str,
    keys: Sequence[str],
    quantities: Sequence[Quantity],
    own: Mapping[Key, Sequence[float]],
) -> Iterator[tuple[str, Table]]:
    """What `table` has, beside the published rows of the same: a table, with its name; nothing if there are none. `own`
    has the numbers of `quantities` for each row; `keys` are the reference's columns that say which row it is."""
    published = load_reference(reference)
    rows = []
    for row in published.rows:
        key = tuple(row[column] for column in keys)
        if key in own:
            rows.append([*key, *_cells(quantities, own[key], row)])
    if not rows:
        return
    titles = ((one.name, "published", *(["ratio"] if one.has_ratio else [])) for one in quantities)
    columns = [*keys, *(title for each in titles for title in each)]
    (setup,) = (line for line in published.source if line.startswith("Setup: "))
    note = (
        f"{table.note} Published: {setup.removeprefix('Setup: ')}. Ratio: the value here over the published one. Of "
        f"{len(published.rows)} published rows {len(rows)} were repeated."
    )
    made = simple_table(f"{table.title}: here and published", columns, rows, table.results, note)
    yield script.name_of(f"{name}.beside", table.results[0]), made


def simple_table(title: str, columns: list[str], rows: list[list[str]], results: list[Result], note: str) -> Table:
    """A table whose text has the same cells, and the note below them."""
    text = f"{tabulate(rows, columns, tablefmt='simple', disable_numparse=True)}\n\n{note}"
    return Table(title, columns, rows, text, results, note)


def _cells(quantities: Sequence[Quantity], values: Sequence[float], published: dict[str, str]) -> Iterator[str]:
    for quantity, value in zip(quantities, values, strict=True):
        there = published[quantity.name]
        yield in_digits(value)
        yield there
        if quantity.has_ratio:
            yield f"{value / float(there):.3g}" if float(there) else "-"


def in_digits(value: float) -> str:
    """Four digits, and all of a whole part."""
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value + 0.0:.4g}"  # + 0.0: no -0
