"""Draws the cost of four all-reduces on the simulated network, over message size and world size: formula, simulation.

Reads one result file of the benchmark all_reduce_algorithms.
"""

from __future__ import annotations

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import script, style
from figures.lib.all_reduces import ALGORITHMS, COLOURS, MARKERS, RING, crossover, formula_seconds, size_label
from figures.lib.result_files import Result

PROGRAM = "all_reduce_algorithms"
NETWORK = ("alpha_ns", "beta_ns_per_byte")
WORLDS_SHOWN = (8, 16)  # panels over message size, if these worlds were run; else the largest
SIZES_SHOWN = (4 << 10, 1 << 20)  # panels over world size, likewise

Times = dict[tuple[str, int, int], float]  # seconds by algorithm, world size and bytes


def times_of(result: Result) -> Times:
    """All simulated times: each algorithm at each pair of a world and a size that any of them has."""
    keys = [series["labels"] for series in result.series]
    if not all(labels.keys() == {"algorithm", "world_size", "bytes"} for labels in keys):
        raise result.error("has series of something else")
    cells = sorted({(labels["world_size"], labels["bytes"]) for labels in keys})
    return {
        (algorithm, world, size): result.values("s", algorithm=algorithm, world_size=world, bytes=size)[0]
        for algorithm in ALGORITHMS
        for world, size in cells
    }


def shown(wanted: tuple[int, ...], there: list[int]) -> list[int]:
    return [value for value in wanted if value in there] or [max(there)]


def draw_curve(axes: Axes, algorithm: str, line: list[tuple[float, float]], points: list[tuple[int, float]]) -> None:
    """The formula's line and the simulated points. The ring's are larger, so that others on them leave them visible."""
    wide = 1.6 if algorithm == RING else 1
    axes.plot(*zip(*line), color=COLOURS[algorithm], linewidth=1.2 * wide)
    axes.plot(
        *zip(*points), linestyle="none", marker=MARKERS[algorithm], markersize=4 * wide, color=COLOURS[algorithm],
        markeredgecolor="white", markeredgewidth=0.4, zorder=3,
    )  # fmt: skip


def draw_over_size(axes: Axes, times: Times, world: int, network: dict[str, float]) -> None:
    sizes = sorted({size for _, there, size in times if there == world})
    for algorithm in ALGORITHMS:
        between = np.geomspace(sizes[0], sizes[-1], 200)
        line = [(size, 1e3 * formula_seconds(algorithm, world, size, network)) for size in between]
        draw_curve(axes, algorithm, line, [(size, 1e3 * times[algorithm, world, size]) for size in sizes])
    for one, other in combinations(ALGORITHMS, 2):
        size = crossover(one, other, world, network)
        if size and sizes[0] < size < sizes[-1]:
            mark_crossover(axes, (one, other), size, 1e3 * formula_seconds(one, world, size, network))
    style.log_axis(axes, sizes[:: max(1, len(sizes) // 5)], size_label)
    axes.set_xlabel("size of the tensor")
    axes.set_title(f"{world} ranks", loc="left")


def mark_crossover(axes: Axes, pair: tuple[str, str], size: float, milliseconds: float) -> None:
    axes.plot(size, milliseconds, marker="o", markersize=8, fillstyle="none", color="black", markeredgewidth=0.8)
    if set(pair) == {"ring", "recursive doubling"}:  # the two fastest, each on one side
        axes.annotate(
            f"{size_label(size)}", (size, milliseconds), xytext=(8, -9), textcoords="offset points", fontsize=7,
            fontweight="bold",
        )  # fmt: skip


def draw_over_world(axes: Axes, times: Times, size: int, network: dict[str, float]) -> None:
    worlds = sorted({world for _, world, there in times if there == size})
    for algorithm in ALGORITHMS:
        between = range(worlds[0], worlds[-1] + 1)
        line = [(world, 1e3 * formula_seconds(algorithm, world, size, network)) for world in between]
        draw_curve(axes, algorithm, line, [(world, 1e3 * times[algorithm, world, size]) for world in worlds])
    powers = [world for world in worlds if world & (world - 1) == 0] or worlds
    style.log_axis(axes, powers[:: -max(1, len(powers) // 5)], "{:,.0f}".format)
    axes.set_xlabel("ranks")
    axes.set_title(f"a tensor of {size_label(size)}", loc="left")


def largest_difference(times: Times, network: dict[str, float], divisible: bool) -> float:
    """The largest relative difference of simulation and formula, over the cases with or without equal chunks."""
    differences = [
        abs(seconds / formula_seconds(algorithm, world, size, network) - 1)
        for (algorithm, world, size), seconds in times.items()
        if world > 1 and (size // 4 % world == 0) == divisible
    ]
    return max(differences, default=0)


def draw(result: Result) -> Figure:
    times = times_of(result)
    network = {name: result.parameters[name] for name in NETWORK}
    worlds = shown(WORLDS_SHOWN, sorted({world for _, world, _ in times}))
    sizes = shown(SIZES_SHOWN, sorted({size for _, _, size in times}))
    figure, panels = style.panels(5.4, 2, max(len(worlds), len(sizes)), squeeze=False)
    for row, values, draw_panel in ((panels[0], worlds, draw_over_size), (panels[1], sizes, draw_over_world)):
        for axes, value in zip(row, values):
            draw_panel(axes, times, value, network)
            axes.set_yscale("log")
            style.write_plain_numbers(axes.yaxis)
            axes.grid()
        row[0].set_ylabel("time [ms]")
        for axes in row[len(values) :]:
            axes.set_axis_off()
    add_legend_and_caption(figure, result, times, network)
    return figure


def add_legend_and_caption(figure: Figure, result: Result, times: Times, network: dict[str, float]) -> None:
    handles = [
        plt.Line2D([], [], color=COLOURS[algorithm], marker=MARKERS[algorithm], markersize=4, linewidth=1.2)
        for algorithm in ALGORITHMS
    ]
    figure.legend(handles, ALGORITHMS, loc="outside upper center", ncols=len(ALGORITHMS))
    uneven = largest_difference(times, network, divisible=False)
    exact = largest_difference(times, network, divisible=True)
    agree = "exactly" if exact < 1e-9 else f"within {exact:.2%}"
    agree += " where the ranks divide the elements" + (f", elsewhere within {uneven:.2%}" if uneven else "")
    larger = result.parameters.get("worlds_on_cluster")
    cluster = f" From {larger.split(', ')[0]} ranks on: one for all." if larger else ""
    style.add_caption(
        figure,
        f"Simulated network, α = {network['alpha_ns'] / 1e3:g} µs, β = {network['beta_ns_per_byte']:g} ns a byte. "
        "Lines: the formulas. Points: what the code took in virtual time.\n"
        f"They agree {agree}.\nCircles: crossovers, with the size where the ring becomes the fastest of all.{cluster}",
        [result],
    )


main = script.main(__name__, __doc__, script.one_each(PROGRAM, NETWORK, draw))
