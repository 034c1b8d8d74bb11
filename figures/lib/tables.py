"""Tables: scripts make them from result files, like figures, in the form of the published ones.

Two files are written: name.txt, to read and paste, which ends with its provenance; and name.json, with columns, rows
and provenance, for the writeup.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from figures.lib import provenance
from figures.lib.result_files import Result

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Table:
    """`text` is the table in its published form; `columns` and `rows` are its cells, or the most important ones, for a
    page of the writeup. `note` says what a reader must know."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    text: str
    results: list[Result]  # whose numbers they are
    note: str = ""


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
        "provenance": [result.provenance for result in table.results],
        "columns": table.columns,
        "rows": table.rows,
        "text": table.text,
    }
    text = table.text.rstrip("\n") + f"\n\n{provenance.in_words(table.results)}\n"
    contents = {"txt": text, "json": in_lines(document)}
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for kind, content in contents.items():
        file = folder / f"{name}.{kind}"
        temporary = folder / f".{name}.{os.getpid()}.{kind}"
        try:
            temporary.write_text(content, encoding="utf-8")
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
        files.append(file)
    return files
