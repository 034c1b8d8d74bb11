"""Draws the bus bandwidth of all-reduces over message size, with the alpha-beta model fitted to each.

Reads one result file of the benchmark collectives, and draws its world of 2 ranks, or else the smallest.
"""

from __future__ import annotations

import statistics

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import all_reduces, script, style
from figures.lib.all_reduces import COLOURS, KNOWN, MARKERS, RING, Times, bus_bandwidth
from figures.lib.result_files import Result, ResultError, left_out

NAME = "all_reduce_bandwidth"
SHIFT = 1.05  # distance between the points of two variants, as a factor of size


def model_seconds(size: float, ranks: int, alpha: float, beta: float) -> float:
    """The time of the ring's 2(N-1) steps, each with 1/N of the tensor."""
    return 2 * (ranks - 1) * (alpha + size / ranks * beta)


def fit(medians: dict[int, float], ranks: int) -> tuple[float, float]:
    """Non-negative alpha (seconds) and beta (seconds per byte), by least squares of the relative errors."""
    times = np.array(list(medians.values()))
    columns = [[model_seconds(size, ranks, *unit) for size in medians] for unit in ((1, 0), (0, 1))]
    latency, transfer = (np.array(column) / times for column in columns)
    (alpha, beta), *_ = np.linalg.lstsq(np.column_stack((latency, transfer)), np.ones(len(times)), rcond=None)
    if alpha < 0:
        return 0.0, transfer.sum() / (transfer @ transfer)
    if beta < 0:
        return latency.sum() / (latency @ latency), 0.0
    return alpha, beta


def choose_world(result: Result) -> tuple[int, Times]:
    """The smallest world with a bus bandwidth, and its measurements."""
    worlds = {world: times for world, times in all_reduces.times_by_world(result).items() if world > 1}
    if not worlds:
        raise ResultError(f"{result.file}: one rank has no bus; run the benchmark collectives with 2 ranks or more")
    world = min(worlds)
    if len(worlds[world][RING]) < 2:
        raise ResultError(f"{result.file}: needs two sizes or more; run the benchmark again")
    return world, worlds[world]


def latency_label(alpha: float) -> str:
    return f"{1e6 * alpha:.0f} µs" if alpha < 1e-3 else f"{1e3 * alpha:.2g} ms"


def draw(result: Result) -> Figure:
    ranks, times = choose_world(result)
    figure, axes = style.panels(4.0)
    for variant, by_size in times.items():
        medians = {size: statistics.median(seconds) for size, seconds in by_size.items()}
        spread = [[bus_bandwidth(size, s, ranks) for s in np.percentile(by_size[size], [10, 90])] for size in by_size]
        alpha, beta = fit(medians, ranks)
        speed = f"1/β = {1e-9 / beta:#.2g} GB/s" if beta else "β = 0"
        look = {"color": COLOURS[variant], "marker": MARKERS[variant], "markersize": 5, "linewidth": 1.3}
        line = np.geomspace(min(medians), max(medians), 200)
        axes.plot(
            line, [bus_bandwidth(size, model_seconds(size, ranks, alpha, beta), ranks) for size in line],
            color=look["color"], linewidth=look["linewidth"],
        )  # fmt: skip
        beside = [size * SHIFT ** (KNOWN.index(variant) - (len(KNOWN) - 1) / 2) for size in medians]
        axes.vlines(beside, *zip(*spread), color=look["color"], linewidth=0.9, alpha=0.6)
        points = [bus_bandwidth(size, seconds, ranks) for size, seconds in medians.items()]
        axes.plot(beside, points, **(look | {"linestyle": "none"}), markeredgecolor="white", markeredgewidth=0.4)
        axes.plot([], [], **look, label=f"{all_reduces.title_of(variant, result)}: α = {latency_label(alpha)}, {speed}")
    finish_axes(axes, list(times[RING]))
    axes.set_title(f"{ranks} ranks, {result.link}", loc="left")
    style.add_caption(
        figure,
        "Bus bandwidth: 2(N-1)/N · S / time. Points: medians of the slowest rank; bars: 10th to 90th percentile. Lines:"
        " the model\nt = 2(N-1) · (α + S/N · β), fitted to the medians by least squares of relative errors; α and β of "
        f"each in the legend.{left_out(all_reduces.COMPARED, times)}",
        [result],
    )
    return figure


def finish_axes(axes: Axes, sizes: list[int]) -> None:
    style.log_axis(axes, sizes[:: max(1, len(sizes) // 7)], all_reduces.size_label)
    axes.set_yscale("log")
    style.write_plain_numbers(axes.yaxis)
    axes.grid()
    axes.set_xlabel("size S of the tensor")
    axes.set_ylabel("bus bandwidth [GB/s]")
    axes.legend(loc="lower right", fontsize=7.5)


main = script.main(__name__, __doc__, script.one_each(all_reduces.COLLECTIVES, all_reduces.PARAMETERS, draw, NAME))
