"""Draws published against predicted times, all sources on one plane: figures/reference/held_out.csv.

The predictions in that file are made with the solutions by `python -m tools.report.held_out`; --data names a result of
bucketed_ddp, made with --preset published, for the provenance of this drawing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from figures.lib import held_out, script, style
from figures.lib.result_files import Result, load
from figures.lib.side_by_side import simple_table
from figures.lib.tables import Table

PROGRAM = "held_out"
LOOKS = {
    "A": (style.BLUE, "o"),
    "B": (style.GREEN, "^"),
    "C": (style.VERMILION, "s"),
    "suite": (style.PURPLE, "D"),
    "D": (style.ORANGE, "v"),
    "D, TF32": (style.ORANGE, "<"),
    "D, BF16": (style.ORANGE, ">"),
    "E": (style.SKY, "P"),
    "F": (style.GREY, "X"),
    "G": (style.SKY, "d"),
}
NOTE = (
    "Errors over the cells that nothing was fitted to. A source's own all-reduces of 2 GPUs, few rows of one GPU and a "
    "naive step or two describe its machine; these rows, filled, are calibration, and not counted. The dull guess is "
    "the mean of the source's numbers of the kind. Made with the solutions."
)


def draw(result: Result) -> Figure:
    figure, axes = style.panels(4.6)
    rows = [row for row in held_out.rows() if row.metric != held_out.AB]
    for source, (colour, marker) in LOOKS.items():
        for fitted in (False, True):
            points = [(row.published, row.predicted) for row in rows if (row.source, row.fitted) == (source, fitted)]
            name = None if fitted else held_out.SOURCES[source]
            axes.plot(
                *zip(*points), color=colour, marker=marker, markersize=3.8, linestyle="none", label=name,
                markerfacecolor=colour if fitted else "white", markeredgewidth=0.8,
            )  # fmt: skip
    ends = [min(row.published for row in rows) / 1.3, 1.3 * max(row.published for row in rows)]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, [0.9 * end for end in ends], [1.1 * end for end in ends], color=style.GREY, alpha=0.2)
    axes.set(xscale="log", yscale="log", xlabel="published [s]", ylabel="predicted [s]")
    axes.set_title("published against predicted, within 10 % in the band", loc="left")
    axes.legend(fontsize=7, loc="upper left")
    style.add_caption(figure, NOTE, [result])
    return figure


def make(files: list[Path]) -> Iterator[tuple[str, Figure | Table]]:
    for file in files:
        result = load(file, "bucketed_ddp")
        name, lines = script.name_of(PROGRAM, result), held_out.table(held_out.rows())
        yield name, draw(result)
        yield name, simple_table("Predictions that nothing was fitted to", held_out.COLUMNS, lines, [result], NOTE)


main = script.main(__name__, __doc__, make)
