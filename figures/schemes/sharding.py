"""Handouts 06 and 07: what becomes of a bucket, of a unit, and what a rank holds over the number of ranks."""

from __future__ import annotations

from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from figures.lib import style
from figures.schemes.boxes import PALE, arrow, box, label, page

CHUNKS = "abc"
BYTES_A_NUMBER, MOMENTS = 4, 2  # float32, AdamW

Row = tuple[list[str], str]  # texts of chunks and their colour


def _columns(width: float, titles: list[str], calls: list[str], row: Callable[[int, list[str]], list[Row]]) -> Figure:
    """Three chunks on three ranks, column by column; `row`: of a rank and the chunk that it owns among empty ones."""
    figure, axes = page(width, 2.7, 3.9)
    lefts = [1.1 + 2.4 * place for place in range(len(titles))]
    for left, title in zip(lefts, titles):
        label(axes, left + 0.91, 0.3, title, "center", weight="bold")
    for rank in range(3):
        top = 0.8 + 1.15 * rank
        label(axes, 0.95, top + 0.28, f"rank {rank}", "right", weight="bold")
        own = [each if place == rank else "" for place, each in enumerate(CHUNKS)]
        for left, (texts, colour) in zip(lefts, row(rank, own)):
            for place, text in enumerate(texts):
                box(axes, left + 0.62 * place, top, 0.58, 0.55, text, colour if text else PALE)
        for left, call in zip(lefts, calls):
            arrow(axes, (left + 1.87, top + 0.28), (left + 2.36, top + 0.28))
            if rank == 0:
                label(axes, left + 2.12, top - 0.2, call, "center", color="#555555")
    return figure


def sharded_step() -> Figure:
    """One bucket of three chunks on three ranks: gradients, means, new shards, new parameters."""

    def row(rank: int, own: list[str]) -> list[Row]:
        return [
            ([f"{each}{rank}" for each in CHUNKS], style.YELLOW),
            (own, style.YELLOW),
            ([each.upper() for each in own], style.SKY),
            ([each.upper() for each in CHUNKS], style.SKY),
        ]

    titles = ["gradients", "means", "new shards", "new parameters"]
    return _columns(10.6, titles, ["reduce-\nscatter", "optimizer", "all-\ngather"], row)


def sharded_unit() -> Figure:
    """One unit of three chunks on three ranks: shards, whole for forward, let go, whole for backward, gradients."""

    def row(rank: int, own: list[str]) -> list[Row]:
        shard, whole = (own, style.SKY), (list(CHUNKS), style.SKY)
        return [shard, whole, shard, whole, ([each and f"d{each}" for each in own], style.YELLOW)]

    titles = ["shards", "forward", "let go", "backward", "gradients"]
    return _columns(13.0, titles, ["all-\ngather", "", "all-\ngather", "reduce-\nscatter"], row)


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
