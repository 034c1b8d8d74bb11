"""Draws the bus bandwidth of all-reduces over message size, with the alpha-beta model fitted to each.

Reads one result file of the benchmark collectives, and draws its world of 2 ranks, or else the smallest.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from figures.lib import all_reduces, script, style
from figures.lib.all_reduces import COLOURS, KNOWN, MARKERS, bus_bandwidth
from figures.lib.result_files import ResultError, left_out, link

NAME = "all_reduce_bandwidth"
SHIFT = 1.05  # distance between the points of two variants, as a factor of size


def model_seconds(size: float, ranks: int, alpha: float, beta: float) -> float:
    """The time of the ring's 2(N-1) steps, each with 1/N of the tensor."""
    return 2 * (ranks - 1) * (alpha + size / ranks * beta)


def fit(medians: pd.Series, ranks: int) -> tuple[float, float]:
    """Non-negative alpha (seconds) and beta (seconds a byte) for medians by bytes: least squares of relative errors."""
    sizes, times = medians.index.to_numpy(), medians.to_numpy()
    latency = model_seconds(0 * sizes, ranks, 1, 0) / times
    transfer = model_seconds(sizes, ranks, 0, 1) / times
    (alpha, beta), *_ = np.linalg.lstsq(np.column_stack((latency, transfer)), np.ones(len(times)), rcond=None)
    if alpha < 0:
        return 0.0, transfer.sum() / (transfer @ transfer)
    if beta < 0:
        return latency.sum() / (latency @ latency), 0.0
    return alpha, beta


def label_of(title: str, alpha: float, beta: float) -> str:
    latency = f"{1e6 * alpha:.0f} µs" if alpha < 1e-3 else f"{1e3 * alpha:.2g} ms"
    return f"{title}: α = {latency}, " + (f"1/β = {1e-9 / beta:#.2g} GB/s" if beta else "β = 0")


def draw(result: pd.DataFrame) -> Figure:
    several = result[result["world_size"] > 1]
    if several.empty:
        raise ResultError("one rank has no bus; run the benchmark collectives with 2 ranks or more")
    ranks = several["world_size"].min()
    times = all_reduces.collectives_times(result).loc[ranks]
    variants, sizes = times.index.unique("variant"), times.index.unique("bytes")
    figure, axes = style.panels(4.0)
    for variant in variants:
        own = times.loc[variant]
        alpha, beta = fit(own["median"], ranks)
        look = {"color": COLOURS[variant], "marker": MARKERS[variant], "markersize": 5, "linewidth": 1.3}
        line = np.geomspace(sizes.min(), sizes.max(), 200)
        bandwidth = bus_bandwidth(line, model_seconds(line, ranks, alpha, beta), ranks)
        axes.plot(line, bandwidth, color=look["color"], linewidth=look["linewidth"])
        beside = own.index * SHIFT ** (KNOWN.index(variant) - (len(KNOWN) - 1) / 2)
        low, high, points = (bus_bandwidth(own.index, own[name], ranks) for name in ("low", "high", "median"))
        axes.vlines(beside, low, high, color=look["color"], linewidth=0.9, alpha=0.6)
        axes.plot(beside, points, **(look | {"linestyle": "none"}), markeredgecolor="white", markeredgewidth=0.4)
        axes.plot([], [], **look, label=label_of(all_reduces.title_of(variant, result), alpha, beta))
    style.log_axis(axes, sizes[:: max(1, len(sizes) // 7)], all_reduces.size_label)
    axes.set_yscale("log")
    style.write_plain_numbers(axes.yaxis)
    axes.grid()
    axes.set_xlabel("size S of the tensor")
    axes.set_ylabel("bus bandwidth [GB/s]")
    axes.legend(loc="lower right", fontsize=7.5)
    axes.set_title(f"{ranks} ranks, {link(result)}", loc="left")
    style.add_caption(
        figure,
        "Bus bandwidth: 2(N-1)/N · S / time. Points: medians of the slowest rank; bars: 10th to 90th percentile. Lines:"
        " the model\nt = 2(N-1) · (α + S/N · β), fitted to the medians by least squares of relative errors; α and β of "
        f"each in the legend.{left_out(all_reduces.COMPARED, variants)}",
        [result],
    )
    return figure


main = script.main(__name__, __doc__, script.one_each(all_reduces.COLLECTIVES, draw, NAME))
