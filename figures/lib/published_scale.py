"""How figures of the simulated cluster show published numbers beside predicted ones, on the same axes."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.lib import style
from figures.lib.predictions import Cell, errors, in_words
from figures.lib.result_files import Result, ResultError

TIMES_ONLY = "Simulated is time alone, of code that need not be right: make test shows values."


def draw_published(axes: Axes, points: Iterable[tuple[float, float, bool]], colour: str, marker: str) -> None:
    """Published numbers: x, y, and whether constants were fitted to it. Those that were are filled."""
    for x, y, fitted in points:
        axes.plot(
            x, y, color=colour, marker=marker, markersize=3.8, linestyle="none", zorder=4,
            markerfacecolor=colour if fitted else "white", markeredgewidth=0.8, markeredgecolor=colour,
        )  # fmt: skip


def kinds_of_points() -> list[Line2D]:
    """Legend entries for the two kinds of published numbers, and for predictions."""
    look = {"color": "#444444", "markersize": 3.8, "linestyle": "none", "marker": "o", "markeredgewidth": 0.8}
    return [
        Line2D([], [], color="#444444", linewidth=1.2, label="simulated"),
        Line2D([], [], markerfacecolor="white", label="published, predicted", **look),
        Line2D([], [], label="published, fitted", **look),
    ]


def require_simulated(result: Result) -> None:
    if not result.simulated:
        raise ResultError(f"{result.file}: was measured, not simulated; run its program with --preset published")


def setup_in_words(result: Result) -> str:
    values, gpus = result.parameters, result.provenance["world_size"]
    return (
        f"Simulated cluster: {gpus} GPUs ({values['gpu']}), {min(gpus, values['gpus_per_node'])} a machine, links of "
        f"{values['link_gb_per_s']:.3g} GB/s"
    )


def add_caption(figure: Figure, result: Result, cells: list[Cell], text: str, quantities: tuple[str, ...]) -> None:
    """The set-up, `text`, and how far predictions are from the published numbers."""
    found = errors(cells)
    words = [in_words(quantity, found[quantity]) for quantity in quantities if quantity in found]
    caption = " ".join(
        [f"{setup_in_words(result)}.", text, *(f"{one[0].upper()}{one[1:]}." for one in words), TIMES_ONLY]
    )
    style.add_caption(figure, caption, [result])
