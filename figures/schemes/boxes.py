"""What schemes are drawn from: boxes with text, arrows, and an empty page."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from figures.lib import style

INK = "#222222"
PALE = "#E8EEF4"


def page(width: float, height: float, rows: float) -> tuple[Figure, Axes]:
    """A figure of the text's width whose axes count columns to the right and rows downwards."""
    style.use_style()
    figure = plt.figure(figsize=(style.TEXT_WIDTH, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(rows, 0)
    axes.axis("off")
    return figure, axes


def box(
    axes: Axes, left: float, top: float, width: float, height: float, text: str = "", face: str = PALE, ink: str = INK
) -> None:
    axes.add_patch(Rectangle((left, top), width, height, facecolor=face, edgecolor="white", linewidth=1))
    axes.text(left + width / 2, top + height / 2, text, ha="center", va="center", color=ink, linespacing=1.3)


def label(axes: Axes, x: float, y: float, text: str, align: str = "left", **look: object) -> None:
    axes.text(x, y, text, ha=align, va="center", **{"color": INK, **look})


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], bend: float = 0, **look: object) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=9,
            shrinkA=0,
            shrinkB=0,
            connectionstyle=f"arc3,rad={bend}",
            **{"color": INK, "linewidth": 1, **look},
        )
    )
