"""Handouts 01 and 02: a step on three ranks, and a step whose communication overlaps with backward."""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import style
from figures.schemes.boxes import PALE, arrow, box, label, page


def one_step() -> Figure:
    """The miniature of handout 01: gradients 1, 5 and none are averaged on three ranks."""
    gradients = (1.0, 5.0, None)
    total = sum(each or 0 for each in gradients)
    figure, axes = page(10, 3, 6.4)
    for row, name in enumerate(("construction", "forward, backward", "gradient", "finish()", "gradient", "optimizer")):
        label(axes, 0.1, row + 0.9, name, color="#555555")
    for rank, gradient in enumerate(gradients):
        left = 2.2 + 2.6 * rank
        label(axes, left + 1.1, 0.3, f"rank {rank}", "center", weight="bold")
        box(axes, left, 0.6, 2.2, 0.6, "rank 0's weights", style.SKY)
        box(axes, left, 1.6, 2.2, 0.6, f"shard {rank} of the batch")
        none = "undefined: counts as 0"
        box(axes, left, 2.6, 2.2, 0.6, none if gradient is None else f"{gradient:g}", style.YELLOW)
        box(axes, left, 4.6, 2.2, 0.6, f"{total:g} / {len(gradients)} = {total / len(gradients):g}", style.YELLOW)
        box(axes, left, 5.6, 2.2, 0.6, "the same step")
        for top in (1.2, 2.2, 3.2, 4.2, 5.2):
            arrow(axes, (left + 1.1, top), (left + 1.1, top + 0.4))
    box(axes, 2.2, 3.6, 7.4, 0.6, f"all-reduce: the sum of all ranks, {total:g}, on every rank", style.ORANGE)
    for rank in (1, 2):
        arrow(axes, (2.2 + 2.6 * rank - 0.4, 0.9), (2.2 + 2.6 * rank, 0.9))
    return figure


@dataclass
class Layer:
    """Of the miniature of handout 02."""

    number: int
    ready_ms: float
    cost_ms: float


ALPHA_MS, BETA_MS, RANKS = 0.01, 0.1e-6, 4
FORWARD_MS = 2.0
GRADIENT_BYTES = {4: 4e6, 3: 8e6, 2: 8e6, 1: 1e6}


def layers() -> list[Layer]:
    cost = {n: 2 * (RANKS - 1) * (ALPHA_MS + size / RANKS * BETA_MS) for n, size in GRADIENT_BYTES.items()}
    return [Layer(n, FORWARD_MS + 1 + place, cost[n]) for place, n in enumerate(GRADIENT_BYTES)]


def chain(given: list[Layer], overlap: bool) -> list[tuple[float, float]]:
    """Start and end of each all-reduce: when its gradient is ready, or backward has ended, and the network is free."""
    times, free = [], 0.0
    for layer in given:
        start = max(layer.ready_ms if overlap else given[-1].ready_ms, free)
        free = start + layer.cost_ms
        times.append((start, free))
    return times


def _draw_step(axes: Axes, given: list[Layer], overlap: bool, top: float) -> None:
    box(axes, 0, top, FORWARD_MS, 0.8, "forward", style.SKY)
    for layer in given:
        box(axes, layer.ready_ms - 1, top, 1, 0.8, f"bwd {layer.number}", style.BLUE, "white")
    times = chain(given, overlap)
    for layer, (start, end) in zip(given, times):
        box(axes, start, top + 0.9, end - start, 0.8, str(layer.number), style.ORANGE)
        if overlap:
            axes.plot([layer.ready_ms] * 2, [top + 0.8, top + 0.9 + 0.8], color="black", linewidth=0.8, linestyle=":")
    end = times[-1][1]
    axes.plot([end, end], [top - 0.1, top + 1.8], color="black", linewidth=1.2)
    label(axes, end + 0.1, top + 0.85, f"{end:.2f} ms", weight="bold")
    label(axes, -0.1, top + 0.4, "naive" if not overlap else "overlapped", "right", weight="bold")
    label(axes, -0.1, top + 1.3, "all-reduces", "right", color="#555555")


def overlapped_step() -> Figure:
    """The miniature of handout 02, by the chain's formula: naive above, overlapped below."""
    style.use_style()
    figure = plt.figure(figsize=(style.TEXT_WIDTH, 2.5))
    axes = figure.add_axes((0.135, 0.17, 0.855, 0.82))
    given = layers()
    axes.set_xlim(0, 10.4)
    axes.set_ylim(4.5, -0.2)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("ms; dotted: a gradient is ready; numbers: whose all-reduce")
    axes.set_facecolor("white")
    axes.grid(axis="x", color=PALE)
    _draw_step(axes, given, overlap=False, top=0)
    _draw_step(axes, given, overlap=True, top=2.4)
    return figure
