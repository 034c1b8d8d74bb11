"""How figures of the simulated cluster show published numbers beside predicted ones, on the same axes."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.lib import style
from figures.lib.predictions import errors, in_words

TIMES_ONLY = "Simulated is time alone, of code that need not be right: make test shows values."


def draw_published(axes: Axes, points: pd.Series, fitted: Iterable[bool], colour: str, marker: str) -> None:
    """Published numbers over their index. Those to which constants were fitted are filled."""
    for (x, y), filled in zip(points.items(), fitted):
        axes.plot(
            x, y, color=colour, marker=marker, markersize=3.8, linestyle="none", zorder=4,
            markerfacecolor=colour if filled else "white", markeredgewidth=0.8, markeredgecolor=colour,
        )  # fmt: skip


def add_legend(figure: Figure, handles: list[Line2D], loc: str = "outside upper left") -> None:
    """`handles`, then entries for predictions and for the two kinds of published numbers."""
    look = {"color": "#444444", "markersize": 3.8, "linestyle": "none", "marker": "o", "markeredgewidth": 0.8}
    kinds = [
        Line2D([], [], color="#444444", linewidth=1.2, label="simulated"),
        Line2D([], [], markerfacecolor="white", label="published, predicted", **look),
        Line2D([], [], label="published, fitted", **look),
    ]
    figure.legend(handles=handles + kinds, loc=loc, ncols=3, fontsize=7, columnspacing=1.3, handlelength=1.8)


def setup_in_words(result: pd.DataFrame) -> str:
    values, gpus = result.attrs["parameters"], result.attrs["provenance"]["world_size"]
    return (
        f"Simulated cluster: {gpus} GPUs ({values['gpu']}), {min(gpus, values['gpus_per_node'])} a machine, links of "
        f"{values['link_gb_per_s']:.3g} GB/s"
    )


def add_caption(
    figure: Figure, result: pd.DataFrame, cells: pd.DataFrame, text: str, quantities: Iterable[str]
) -> None:
    """The set-up, `text`, and how far predictions are from the published numbers."""
    found = errors(cells)
    words = [in_words(quantity, found.loc[quantity]) for quantity in quantities if quantity in found.index]
    sentences = [f"{setup_in_words(result)}.", text, *(f"{one[0].upper()}{one[1:]}." for one in words), TIMES_ONLY]
    style.add_caption(figure, " ".join(sentences), [result])
