"""Draws and sets published against predicted times of all sources: figures/reference/held_out.csv.

--data names a result of bucketed_ddp, made by its subcommand published, for the provenance alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from figures.lib import held_out, script, style
from figures.lib.result_files import load, name_of
from figures.lib.tables import Table

PROGRAM = "held_out"
LOOKS = {
    "A": (style.BLUE, "o"), "B": (style.GREEN, "^"), "C": (style.VERMILION, "s"), "suite": (style.PURPLE, "D"),
    "D": (style.ORANGE, "v"), "D, TF32": (style.ORANGE, "<"), "D, BF16": (style.ORANGE, ">"),
    "E": (style.SKY, "P"), "F": (style.GREY, "X"), "G": (style.SKY, "d"),
}  # fmt: skip
NOTE = (
    "Errors over the cells that nothing was fitted to. Filled: rows that describe a source's machine, which are not "
    "counted. The baseline is the mean of the source's numbers of the kind. Made with the solutions."
)


def draw(result: pd.DataFrame) -> Figure:
    figure, axes = style.panels(4.6)
    rows = held_out.with_errors(held_out.rows())
    rows = rows[rows["metric"] != held_out.AB]
    for source, (colour, marker) in LOOKS.items():
        for fitted in (False, True):
            points = rows[(rows["source"] == source) & (rows["fitted"] == fitted)]
            axes.plot(
                points["published"], points["predicted"], color=colour, marker=marker, markersize=3.8, linestyle="none",
                markerfacecolor=colour if fitted else "white", markeredgewidth=0.8,
                label=None if fitted else held_out.SOURCES[source],
            )  # fmt: skip
    ends = np.array([rows["published"].min() / 1.3, 1.3 * rows["published"].max()])
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, 0.9 * ends, 1.1 * ends, color=style.GREY, alpha=0.2)
    axes.set(xscale="log", yscale="log")
    style.dress(axes, "published against predicted, within 10 % in the band", "published [s]", "predicted [s]")
    axes.grid(visible=False)
    axes.legend(fontsize=7, loc="upper left")
    return style.add_caption(figure, NOTE, [result])


def make(files: list[Path]) -> Iterator[tuple[str, Figure | Table]]:
    for result in (load(file, "bucketed_ddp") for file in files):
        name, lines = name_of(PROGRAM, result), held_out.lines(held_out.rows())
        yield name, draw(result)
        yield name, Table("Predictions that nothing was fitted to", held_out.COLUMNS, lines, [result], NOTE)


main = script.main(__name__, __doc__, make)
