"""Published numbers and those of a result in one table: for each quantity the value, the published one, and the ratio.

The rows and their names are those of a table in figures/reference, whatever the experiment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
from tabulate import tabulate

from figures.lib import script
from figures.lib.reference_data import load_reference, setup_of
from figures.lib.tables import Table

NO_RATIO = "diff"  # in percent: zero means nothing


def side_by_side(
    name: str, table: Table, reference: str, keys: Sequence[str], own: pd.DataFrame
) -> Iterator[tuple[str, Table]]:
    """What `table` has, beside the published rows of the same: a table, with its name; nothing if there are none. `own`
    has the columns `keys`, which say what a published row is of, and others of the same names as published ones."""
    keys, quantities = list(keys), [column for column in own.columns if column not in keys]
    published = load_reference(reference, as_printed=True)
    both = published.merge(own.astype(dict.fromkeys(keys, str)), on=keys, suffixes=("", " here"))
    if both.empty:
        return
    columns, cells = list(keys), [both[key] for key in keys]
    for quantity in quantities:
        columns += [quantity, "published"]
        cells += [both[f"{quantity} here"].map(in_digits), both[quantity]]
        if quantity != NO_RATIO:
            columns.append("ratio")
            cells.append(pd.Series(map(ratio, both[f"{quantity} here"], both[quantity].astype(float))))
    note = (
        f"{table.note} Published: {setup_of(published)}. Ratio: the value here over the published one. Of "
        f"{len(published)} published rows {len(both)} were repeated."
    )
    rows = [list(row) for row in zip(*cells)]
    made = simple_table(f"{table.title}: here and published", columns, rows, table.results, note)
    yield script.name_of(f"{name}.beside", table.results[0]), made


def simple_table(
    title: str, columns: list[str], rows: list[list[str]], results: list[pd.DataFrame], note: str
) -> Table:
    """A table whose text has the same cells, and the note below them."""
    text = f"{tabulate(rows, columns, tablefmt='simple', disable_numparse=True)}\n\n{note}"
    return Table(title, columns, rows, text, results, note)


def ratio(value: float, published: float) -> str:
    return f"{value / published:.3g}" if published else "-"


def in_digits(value: float) -> str:
    """Four digits, and all of a whole part."""
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value + 0.0:.4g}"  # + 0.0: no -0
