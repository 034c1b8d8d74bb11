"""Handouts 04 and 05: the two reductions of synchronized batch normalization, and the steps of the ring."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from figures.lib import style
from figures.schemes.boxes import arrow, box, label, page

SHARDS = ((1, 3), (5, 7, 9))  # the miniature of handout 04, one channel


def _local(shard: tuple[int, ...]) -> tuple[int, float, float]:
    """Count, mean, and the sum of squared deviations."""
    mean = sum(shard) / len(shard)
    return len(shard), mean, sum((value - mean) ** 2 for value in shard)


def sync_batch_norm() -> Figure:
    """What stays on its rank, and what is sent: once in forward, and once in backward."""
    figure, axes = page(10, 3.4, 7.6)
    names = (
        "input",
        "of the shard",
        "collective",
        "global",
        "output",
        "of the shard",
        "collective",
        "input's gradient",
    )
    for row, name in enumerate(names):
        label(axes, 0.1, 0.9 * row + 0.75, name, color="#555555")
    parts = [_local(shard) for shard in SHARDS]
    count = sum(n for n, _, _ in parts)
    mean = sum(n * m for n, m, _ in parts) / count
    variance = sum(squares + n * (m - mean) ** 2 for n, m, squares in parts) / count
    for rank, (shard, (n, m, squares)) in enumerate(zip(SHARDS, parts)):
        left, width = 2.1 + 4 * rank, 3.6
        rows = (
            (", ".join(map(str, shard)), style.SKY),
            (f"n = {n}, mean {m:g}, M = {squares:g}", style.YELLOW),
            None,
            (f"n = {count}, mean {mean:g}, variance {variance:g}", style.YELLOW),
            (", ".join(f"{(value - mean) / math.sqrt(variance):.2f}" for value in shard), style.SKY),
            ("Σ g and Σ g·x̂", style.YELLOW),
            None,
            ("by the formula", style.SKY),
        )
        label(axes, left + width / 2, 0.2, f"rank {rank}", "center", weight="bold")
        for row, content in enumerate(rows):
            top = 0.9 * row + 0.47
            if content:
                box(axes, left, top, width, 0.56, *content)
            if row:
                arrow(axes, (left + width / 2, top - 0.34), (left + width / 2, top))
    for row, text in (
        (2, "ONE in forward: 2C + 1 numbers from each rank"),
        (6, "ONE in backward: 2C numbers from each rank"),
    ):
        box(axes, 2.1, 0.9 * row + 0.47, 7.6, 0.56, text, style.ORANGE)
    return figure


RING = ((1, 2, 3), (10, 20, 30), (100, 200, 300))  # rank by rank, a chunk each number; the miniature of handout 05


def ring_states() -> list[list[list[int]]]:
    """What each rank holds at the start and after each of 2(N-1) steps."""
    size = len(RING)
    states = [[list(rank) for rank in RING]]
    for step in range(2 * (size - 1)):
        now = [list(rank) for rank in states[-1]]
        for rank in range(size):
            chunk = (rank - 1 - step) % size if step < size - 1 else (rank - (step - size + 1)) % size
            arrived, right = states[-1][rank][chunk], (rank + 1) % size
            now[right][chunk] = arrived + (states[-1][right][chunk] if step < size - 1 else 0)
        states.append(now)
    return states


def ring_steps() -> Figure:
    """The four steps of a ring of three ranks: who holds which sums."""
    figure, axes = page(10, 2.7, 6)
    states, size = ring_states(), len(RING)
    titles = ["start", "step 1", "step 2", "step 1", "step 2"]
    for column, (title, state) in enumerate(zip(titles, states)):
        left = 0.75 + 1.88 * column
        label(axes, left + 0.75, 0.75, title, "center", weight="bold")
        for rank, chunks in enumerate(state):
            for chunk, value in enumerate(chunks):
                changed = column and value != states[column - 1][rank][chunk]
                done = value == sum(given[chunk] for given in RING)
                face = style.GREEN if done else style.ORANGE if changed else style.SKY
                box(axes, left + 0.5 * chunk, 1.2 + 1.5 * rank, 0.5, 1, str(value), face)
    for rank in range(size):
        label(axes, 0.02, 1.7 + 1.5 * rank, f"rank {rank}", weight="bold")
    label(axes, 0.75 + 1.88 * 1.5 + 0.75, 0.2, "reduce-scatter: what arrives is added", "center")
    label(axes, 0.75 + 1.88 * 3.5 + 0.75, 0.2, "all-gather: what arrives is copied", "center")
    label(axes, 0.75, 5.8, "three chunks in a row; orange: just added; green: the sum of all ranks", color="#555555")
    return figure
