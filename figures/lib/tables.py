"""Tables: scripts make them from result files, like figures, in the form of the published ones.

Two files are written: name.txt, to read and paste, which ends with its provenance; and name.json, with columns, rows
and provenance, for the writeup.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from figures.lib.result_files import provenance_in_words, write_whole

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Table:
    """`text` is the table in its published form; `columns` and `rows` are its cells, or the most important ones, for a
    page of the writeup. `note` says what a reader must know."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    text: str
    results: list[pd.DataFrame]  # whose numbers they are
    note: str = ""


def markdown(columns: list[str], rows: list[list[str]], aligned: bool) -> str:
    """In Markdown, as in a README. `aligned` cells are as wide as their column, to be read as plain text; others are as
    wide as their text."""
    cells = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*(cells if aligned else [columns]))]
    padding = widths if aligned else [0] * len(columns)
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, padding)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


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
        "schema_version": SCHEMA_VERSION,
        "kind": "table",
        "name": name,
        "title": table.title,
        "note": table.note,
        "provenance": [result.attrs["provenance"] for result in table.results],
        "columns": table.columns,
        "rows": table.rows,
        "text": table.text,
    }
    text = table.text.rstrip("\n") + f"\n\n{provenance_in_words(table.results)}\n"
    return [
        write_whole(folder / f"{name}.{kind}", lambda file, content=content: file.write_text(content, encoding="utf-8"))
        for kind, content in (("txt", text), ("json", in_lines(document)))
    ]
