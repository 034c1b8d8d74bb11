"""Tables: scripts make them from result files, like figures.

Two files are written: name.txt, to read and paste, which ends with its provenance; and name.json, with columns, rows
and provenance, for the writeup.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from figures.lib.result_files import load_reference, name_of, provenance_in_words, setup_of, write_whole

SCHEMA_VERSION = 1
NO_RATIO = "diff"  # in percent: zero means nothing


@dataclass(frozen=True)
class Table:
    """`note` says what a reader must know."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    results: list[pd.DataFrame]  # whose numbers they are
    note: str = ""

    def text(self) -> str:
        cells = tabulate(self.rows, self.columns, tablefmt="simple", disable_numparse=True)
        return f"{self.title}\n\n{cells}\n\n{self.note}"


def in_lines(document: dict[str, object]) -> str:
    """As JSON, with a line for each field, and for each element of a list of objects or lists."""

    def lines(value: object) -> str:
        if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            return "[\n" + ",\n".join(f"  {json.dumps(each, ensure_ascii=False)}" for each in value) + "\n ]"
        return json.dumps(value, ensure_ascii=False)

    return "{\n" + ",\n".join(f" {json.dumps(key)}: {lines(value)}" for key, value in document.items()) + "\n}\n"


def save(table: Table, folder: Path, name: str) -> list[Path]:
    """Writes name.txt and name.json, each whole or not at all."""
    document = {
        "schema_version": SCHEMA_VERSION, "kind": "table", "name": name, "title": table.title, "note": table.note,
        "provenance": [result.attrs["provenance"] for result in table.results],
        "columns": table.columns, "rows": table.rows,
    }  # fmt: skip
    text = table.text().rstrip("\n") + f"\n\n{provenance_in_words(table.results)}\n"
    return [
        write_whole(folder / f"{name}.{kind}", lambda file, content=content: file.write_text(content, encoding="utf-8"))
        for kind, content in (("txt", text), ("json", in_lines(document)))
    ]


def side_by_side(
    name: str, table: Table, reference: str, keys: Sequence[str], own: pd.DataFrame
) -> Iterator[tuple[str, Table]]:
    """A result beside the same rows of the published table `reference`: for each quantity the value, the published one,
    and the ratio; nothing if there are none. `own` has the columns `keys`, which say what a published row is of, and
    others of the same names as published ones."""
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
    made = Table(f"{table.title}: here and published", columns, rows, table.results, note)
    yield name_of(f"{name}.beside", table.results[0]), made


def ratio(value: float, published: float) -> str:
    return f"{value / published:.3g}" if published else "-"


def in_digits(value: float) -> str:
    """Four digits, and all of a whole part."""
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value + 0.0:.4g}"  # + 0.0: no -0
