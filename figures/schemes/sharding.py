"""Handouts 06 and 07: what becomes of a bucket, of a unit, and what a rank holds over the number of ranks."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import style
from figures.schemes.boxes import PALE, arrow, box, label, page

CHUNKS = "abc"
BYTES_A_NUMBER, MOMENTS = 4, 2  # float32, AdamW


def _row(axes: Axes, left: float, top: float, texts: list[str], colour: str) -> None:
    for place, text in enumerate(texts):
        box(axes, left + 0.62 * place, top, 0.58, 0.55, text, colour if text else PALE)


def sharded_step() -> Figure:
    """One bucket of three chunks on three ranks: gradients, means, new shards, new parameters."""
    figure, axes = page(10.6, 2.7, 3.9)
    columns = (1.1, 3.5, 5.9, 8.3)
    titles = ("gradients", "means", "new shards", "new parameters")
    calls = ("reduce-\nscatter", "optimizer", "all-\ngather")
    for left, title in zip(columns, titles):
        label(axes, left + 0.91, 0.3, title, "center", weight="bold")
    for rank in range(3):
        top = 0.8 + 1.15 * rank
        label(axes, 0.95, top + 0.28, f"rank {rank}", "right", weight="bold")
        own = [each if place == rank else "" for place, each in enumerate(CHUNKS)]
        _row(axes, columns[0], top, [f"{each}{rank}" for each in CHUNKS], style.YELLOW)
        _row(axes, columns[1], top, own, style.YELLOW)
        _row(axes, columns[2], top, [each.upper() for each in own], style.SKY)
        _row(axes, columns[3], top, [each.upper() for each in CHUNKS], style.SKY)
        for left, call in zip(columns, calls):
            arrow(axes, (left + 1.87, top + 0.28), (left + 2.36, top + 0.28))
            if rank == 0:
                label(axes, left + 2.12, top - 0.2, call, "center", color="#555555")
    return figure


def sharded_unit() -> Figure:
    """One unit of three chunks on three ranks: shards, whole for forward, let go, whole for backward, gradients."""
    figure, axes = page(13.0, 2.7, 3.9)
    columns = (1.1, 3.5, 5.9, 8.3, 10.7)
    titles = ("shards", "forward", "let go", "backward", "gradients")
    calls = ("all-\ngather", "", "all-\ngather", "reduce-\nscatter")
    for left, title in zip(columns, titles):
        label(axes, left + 0.91, 0.3, title, "center", weight="bold")
    for rank in range(3):
        top = 0.8 + 1.15 * rank
        label(axes, 0.95, top + 0.28, f"rank {rank}", "right", weight="bold")
        own = [each if place == rank else "" for place, each in enumerate(CHUNKS)]
        for column in (0, 2):
            _row(axes, columns[column], top, own, style.SKY)
        for column in (1, 3):
            _row(axes, columns[column], top, list(CHUNKS), style.SKY)
        _row(axes, columns[4], top, [each and f"d{each}" for each in own], style.YELLOW)
        for left, call in zip(columns, calls):
            arrow(axes, (left + 1.87, top + 0.28), (left + 2.36, top + 0.28))
            if rank == 0:
                label(axes, left + 2.12, top - 0.2, call, "center", color="#555555")
    return figure


def held_bytes(ranks: float, stage: str) -> float:
    """Of a rank between steps, for each parameter, with AdamW: what is whole, and what is divided."""
    whole, divided = {"03": (2 + MOMENTS, 0), "06": (1, 2 + MOMENTS), "07": (0, 2 + MOMENTS)}[stage]
    return BYTES_A_NUMBER * (whole + divided / ranks)


LOOKS = {"03": style.VERMILION, "06": style.BLUE, "07": style.GREEN}


def memory_over_ranks(*stages: str) -> Figure:
    """Bytes that a rank holds for each parameter; numbers beside the last stage's."""
    style.use_style()
    figure, axes = plt.subplots(figsize=(style.TEXT_WIDTH, 2.4), layout="constrained")
    ranks = np.geomspace(1, 512, 100)
    for stage in stages:
        axes.plot(ranks, [held_bytes(n, stage) for n in ranks], color=LOOKS[stage], linewidth=2, label=f"stage {stage}")
    axes.axhline(BYTES_A_NUMBER, color="grey", linestyle=":", label="parameters alone")
    for n in (1, 8, 64):
        held = held_bytes(n, stages[-1])
        axes.plot(n, held, "o", color=LOOKS[stages[-1]])
        axes.annotate(f"{held:.3g}", (n, held), xytext=(-4, 7), textcoords="offset points", ha="right")
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 2, 8, 64, 512], ["1", "2", "8", "64", "512"])
    axes.set_ylim(0, 24)
    axes.set_xlabel("N: ranks")
    axes.set_ylabel("bytes a parameter")
    axes.grid(True)
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.43))
    return figure
