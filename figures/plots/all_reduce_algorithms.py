"""Draws the cost of four all-reduces on the simulated network, over message size and world size: formula, simulation.

Reads one result file of the benchmark all_reduce_algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import combinations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import script, style
from figures.lib.all_reduces import LOOKS, RING
from figures.lib.result_files import pick

PROGRAM = "all_reduce_algorithms"
WORLDS_SHOWN = (8, 16)  # panels over message size, if these worlds were run; else the largest
SIZES_SHOWN = (4 << 10, 1 << 20)  # panels over world size, likewise
Network = dict[str, float]

# Costs of all-reduces in the alpha-beta model: a message of n bytes takes alpha + n * beta, and each rank has one
# outgoing and one incoming port, which work at the same time.
ALGORITHMS = ("ring", "butterfly", "recursive doubling", "tree")


def messages(algorithm: str, world: int) -> tuple[int, float]:
    """The number of consecutive messages, and the part of the tensor in each."""
    if world == 1:
        return 0, 1
    below, above = math.floor(math.log2(world)), math.ceil(math.log2(world))
    return {
        "ring": (2 * (world - 1), 1 / world),
        "butterfly": (2 * (world - 1), 1 / world),
        "recursive doubling": (below if below == above else below + 2, 1),
        "tree": (2 * above, 1),
    }[algorithm]


def formula_seconds(algorithm: str, world: int, size: float, network: Network) -> float:
    """Exact if the world size divides the number of elements."""
    count, part = messages(algorithm, world)
    return 1e-9 * count * (network["alpha_ns"] + part * size * network["beta_ns_per_byte"])


def crossover(one: str, other: str, world: int, network: Network) -> float | None:
    """The bytes for which two all-reduces take equally long; None if one is never slower."""
    (count, part), (other_count, other_part) = messages(one, world), messages(other, world)
    latencies, bytes_moved = other_count - count, count * part - other_count * other_part
    if latencies * bytes_moved <= 0 or not network["beta_ns_per_byte"]:
        return None
    return latencies * network["alpha_ns"] / (bytes_moved * network["beta_ns_per_byte"])


def shown(wanted: tuple[int, ...], there: pd.Series) -> list[int]:
    return [value for value in wanted if value in set(there)] or [there.max()]


def draw_curves(
    axes: Axes, times: pd.DataFrame, over: str, between: Iterable[float], seconds: Callable[[str, float], float]
) -> None:
    """The formula's lines and the simulated points. The ring's are larger, so that others leave them visible."""
    for algorithm in ALGORITHMS:
        wide, look = 1.6 if algorithm == RING else 1, LOOKS[algorithm]
        axes.plot(between, [1e3 * seconds(algorithm, x) for x in between], color=look["color"], linewidth=1.2 * wide)
        points = times[times["algorithm"] == algorithm].sort_values(over)
        axes.plot(points[over], 1e3 * points["value"], **look, linestyle="none", markersize=4 * wide,
                  markeredgecolor="white", markeredgewidth=0.4, zorder=3)  # fmt: skip
    axes.set_yscale("log")
    style.write_plain_numbers(axes.yaxis)


def draw_over_size(axes: Axes, times: pd.DataFrame, world: int, network: Network) -> None:
    sizes = sorted(times["bytes"].unique())
    between = np.geomspace(sizes[0], sizes[-1], 200)
    draw_curves(axes, times, "bytes", between, lambda algorithm, size: formula_seconds(algorithm, world, size, network))
    for one, other in combinations(ALGORITHMS, 2):
        size = crossover(one, other, world, network)
        if size and sizes[0] < size < sizes[-1]:
            place = (size, 1e3 * formula_seconds(one, world, size, network))
            axes.plot(*place, marker="o", markersize=8, fillstyle="none", color="black", markeredgewidth=0.8)
            if {one, other} == {RING, "recursive doubling"}:  # the two fastest, each on one side
                look = {"xytext": (8, -9), "textcoords": "offset points", "fontsize": 7, "fontweight": "bold"}
                axes.annotate(style.size_in_words(size), place, **look)
    style.log_axis(axes, sizes[:: max(1, len(sizes) // 5)], style.size_in_words)
    style.dress(axes, f"{world} ranks", "size of the tensor")


def draw_over_world(axes: Axes, times: pd.DataFrame, size: int, network: Network) -> None:
    worlds = sorted(times["world_size"].unique())
    between = range(worlds[0], worlds[-1] + 1)
    draw_curves(axes, times, "world_size", between, lambda each, world: formula_seconds(each, world, size, network))
    powers = [world for world in worlds if world & (world - 1) == 0] or worlds
    style.log_axis(axes, powers[:: -max(1, len(powers) // 5)], "{:,.0f}".format)
    style.dress(axes, f"a tensor of {style.size_in_words(size)}", "ranks")


def differences(result: pd.DataFrame, network: Network) -> tuple[float, float]:
    """The largest relative differences of simulation and formula, with equal chunks and without."""
    several = pick(result[result["world_size"] > 1])
    rows = zip(several["algorithm"], several["world_size"], several["bytes"])
    formula = [formula_seconds(*row, network) for row in rows]
    errors = (several["value"] / formula - 1).abs()
    even = several["bytes"] // 4 % several["world_size"] == 0
    return errors[even].max(), errors[~even].max()


def draw(result: pd.DataFrame) -> Figure:
    values = result.attrs["parameters"]
    network = {name: values[name] for name in ("alpha_ns", "beta_ns_per_byte")}
    worlds, sizes = shown(WORLDS_SHOWN, result["world_size"]), shown(SIZES_SHOWN, result["bytes"])
    figure, panels = style.panels(5.4, 2, max(len(worlds), len(sizes)), squeeze=False)
    for axes in (*panels[0, len(worlds) :], *panels[1, len(sizes) :]):
        axes.set_axis_off()
    for axes, world in zip(panels[0], worlds):
        draw_over_size(axes, pick(result, world_size=world), world, network)
    for axes, size in zip(panels[1], sizes):
        draw_over_world(axes, pick(result, bytes=size), size, network)
    for axes in panels[:, 0]:
        axes.set_ylabel("time [ms]")
    entries = {each: {**LOOKS[each], "markersize": 4, "linewidth": 1.2} for each in ALGORITHMS}
    style.legend(figure, entries, "outside upper center", fontsize=8)
    exact, uneven = differences(result, network)
    agree = "exactly" if not exact >= 1e-9 else f"within {exact:.2%}"
    larger = values.get("worlds_on_cluster")
    text = (
        f"Simulated network, α = {network['alpha_ns'] / 1e3:g} µs, β = {network['beta_ns_per_byte']:g} ns a byte. "
        f"Lines: the formulas. Points: the code in virtual time.\nThey agree {agree} where the ranks divide the "
        "elements" + (f", elsewhere within {uneven:.2%}" if uneven > 0 else "") + ".\nCircles: crossovers, with the "
        "size where the ring becomes the fastest of all."
        + (f" From {larger.split(', ')[0]} ranks on: one for all." if larger else "")
    )  # fmt: skip
    return style.add_caption(figure, text, [result])


main = script.main(__name__, __doc__, script.one_each(PROGRAM, draw))
