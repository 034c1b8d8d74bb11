"""Handouts 03 and 04: the overhead of a bucket's size by the formula, and the variance in float32."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from figures.lib import style

MIB = 2**20
# Of ResNet-50 on 8 ranks, as in handout 03: bytes, bytes a second, seconds a launch.
GRADIENT_BYTES, BANDWIDTH, LAUNCH_S = 102_228_128, 8 / (2 * 7 * 0.1e-9), 20e-6
CAPS_MIB = (0.25, 25)  # of the handout's table, besides the best


def overhead_s(cap: float) -> tuple[float, float]:
    """Of all launches, and of the last bucket."""
    return GRADIENT_BYTES / cap * LAUNCH_S, cap / BANDWIDTH


def bucket_overhead() -> Figure:
    """What buckets add to a step while the network keeps up: launches, the last bucket, and their sum."""
    style.use_style()
    figure, axes = plt.subplots(figsize=(style.TEXT_WIDTH, 2.6), layout="constrained")
    best = math.sqrt(GRADIENT_BYTES * BANDWIDTH * LAUNCH_S)
    caps = np.geomspace(0.1 * MIB, 100 * MIB, 200)
    launches, last = overhead_s(caps)
    axes.plot(caps / MIB, 1e3 * (launches + last), color=style.BLUE, linewidth=2, label="overhead(b)")
    axes.plot(caps / MIB, 1e3 * launches, color=style.BLUE, linestyle=":", label="all launches, S/b · o")
    axes.plot(caps / MIB, 1e3 * last, color=style.BLUE, linestyle="--", label="the last bucket, b/w")
    for cap in (CAPS_MIB[0] * MIB, best, CAPS_MIB[1] * MIB):
        milliseconds = 1e3 * sum(overhead_s(cap))
        axes.plot(cap / MIB, milliseconds, "o", color=style.VERMILION)
        axes.annotate(
            f"{cap / MIB:.3g} MiB: {milliseconds:.2f} ms",
            (cap / MIB, milliseconds),
            xytext=(0, 9),
            textcoords="offset points",
            ha={CAPS_MIB[0] * MIB: "left", CAPS_MIB[1] * MIB: "right"}.get(cap, "center"),
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.1, 100)
    axes.set_ylim(0.2, 30)
    axes.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.set_yticks([1, 10], ["1", "10"])
    axes.set_xlabel("b: the cap [MiB]")
    axes.set_ylabel("beyond computing [ms]")
    axes.grid(True)
    axes.legend(loc="upper center")
    return figure


def variance_by_squares(values: np.ndarray) -> float:
    """mean(x²) - mean(x)², every step in float32."""
    mean = np.float32(values.mean(dtype=np.float64))
    return float(np.float32((values * values).mean(dtype=np.float64)) - mean * mean)


def variance_by_deviations(values: np.ndarray) -> float:
    """The mean of (x - mean)², every step in float32."""
    deviations = values - np.float32(values.mean(dtype=np.float64))
    return float(np.float32((deviations * deviations).mean(dtype=np.float64)))


def variance() -> Figure:
    """How wrong the variance of 4096 numbers of deviation 1 comes out in float32, over their mean."""
    style.use_style()
    figure, axes = plt.subplots(figsize=(style.TEXT_WIDTH, 2.4), layout="constrained")
    spread = np.random.default_rng(0).standard_normal(4096)
    means = np.geomspace(1, 1e6, 49)
    for compute, text, colour, marker in (
        (variance_by_squares, "mean(x²) − mean(x)²", style.VERMILION, "o"),
        (variance_by_deviations, "mean((x − mean)²)", style.BLUE, "s"),
    ):
        errors = []
        for mean in means:
            values = (spread + mean).astype(np.float32)
            true = values.astype(np.float64).var()
            errors.append(max(abs(compute(values) - true) / true, 1e-9))
        axes.plot(means, errors, marker, color=colour, markersize=3, label=text)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.text(0.9, 0.6, "as large as the variance itself", va="top")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1e-9, 1e6)
    axes.set_xlabel("|mean| / deviation")
    axes.set_ylabel("relative error in float32")
    axes.grid(True)
    axes.legend(loc="upper left")
    return figure
