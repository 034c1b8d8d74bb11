"""Published numbers and those of a result in one table: for each quantity the value, the published one, and the ratio.

The rows and their names are those of a table in figures/reference, whatever the experiment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from figures.lib import script
from figures.lib.reference_data import load_reference
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
    for index, key in enumerate(zip(*(published.columns[column] for column in keys))):
        if key in own:
            printed = [published.columns[quantity.name][index] for quantity in quantities]
            rows.append([*key, *_cells(quantities, own[key], printed)])
    if not rows:
        return
    columns = [*keys, *(title for quantity in quantities for title in _titles(quantity))]
    (setup,) = (line for line in published.source if line.startswith("Setup: "))
    note = (
        f"{table.note} Published: {setup.removeprefix('Setup: ')}. Ratio: the value here over the published one. Of "
        f"{len(published.columns[keys[0]])} published rows {len(rows)} were repeated."
    )
    text = f"{tabulate(rows, columns, tablefmt='simple', disable_numparse=True)}\n\n{note}"
    made = Table(f"{table.title}: here and published", columns, rows, text, table.results, note)
    yield script.name_of(f"{name}.beside", table.results[0]), made


def _titles(quantity: Quantity) -> list[str]:
    return [quantity.name, "published", *(["ratio"] if quantity.has_ratio else [])]


def _cells(quantities: Sequence[Quantity], values: Sequence[float], printed: Sequence[str]) -> Iterator[str]:
    for quantity, value, there in zip(quantities, values, printed, strict=True):
        yield in_digits(value)
        yield there
        if quantity.has_ratio:
            yield f"{value / float(there):.3g}" if float(there) else "-"


def in_digits(value: float) -> str:
    """Four digits, and all of a whole part."""
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value + 0.0:.4g}"  # + 0.0: no -0
