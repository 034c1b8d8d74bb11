"""Tables in Markdown, as in a README."""

from __future__ import annotations


def markdown(columns: list[str], rows: list[list[str]], aligned: bool) -> str:
    """One line for the names of the columns, one of dashes, and one for each row. `aligned` cells are as wide as their
    column, to be read as plain text; others are as wide as their text."""
    cells = [columns, *rows]
    widths = [max(len(row[i]) for row in (cells if aligned else [columns])) for i in range(len(columns))]
    padding = widths if aligned else [0] * len(columns)
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, padding)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
