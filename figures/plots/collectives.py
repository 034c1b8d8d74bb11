"""Draws time and bus bandwidth of all-reduces over message size, one column for each world size.

Reads one result file of the benchmark collectives.
"""

from __future__ import annotations

import statistics

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import all_reduces, script, style
from figures.lib.all_reduces import COLOURS, KNOWN, MARKERS, RING, Times, bus_bandwidth, title_of
from figures.lib.result_files import Result, left_out

TICKS = 3  # of sizes, in each panel


def draw_times(axes: Axes, times: Times) -> None:
    for variant, by_size in times.items():
        medians = [1e3 * statistics.median(seconds) for seconds in by_size.values()]
        draw_curve(axes, variant, list(by_size), medians)
        spread = [1e3 * np.percentile(seconds, [10, 90]) for seconds in by_size.values()]
        axes.vlines(list(by_size), *zip(*spread), color=COLOURS[variant], linewidth=0.8, alpha=0.5)


def draw_bandwidths(axes: Axes, times: Times, world: int) -> None:
    for variant, by_size in times.items():
        medians = [bus_bandwidth(size, statistics.median(seconds), world) for size, seconds in by_size.items()]
        draw_curve(axes, variant, list(by_size), medians)


def draw_curve(axes: Axes, variant: str, sizes: list[int], values: list[float]) -> None:
    look = {"color": COLOURS[variant], "marker": MARKERS[variant], "markersize": 4, "linewidth": 1.1}
    axes.plot(sizes, values, **look, markeredgecolor="white", markeredgewidth=0.3)


def finish_panel(axes: Axes, sizes: list[int]) -> None:
    ticks = [sizes[round(at)] for at in np.linspace(0, len(sizes) - 1, min(TICKS, len(sizes)))]
    style.log_axis(axes, ticks, all_reduces.size_label)
    axes.set_yscale("log")
    axes.grid()


def draw(result: Result) -> Figure:
    """Times above bus bandwidths; axes are shared, so that worlds can be compared."""
    worlds = all_reduces.times_by_world(result)
    figure, panels = style.panels(4.9, 2, len(worlds), sharex="col", sharey="row", squeeze=False)
    for (world, times), (time, bandwidth) in zip(worlds.items(), panels.T):
        draw_times(time, times)
        if world > 1:
            draw_bandwidths(bandwidth, times, world)
        for axes in (time, bandwidth):
            finish_panel(axes, list(times[RING]))
        time.set_title(f"{world} rank{'s' if world > 1 else ''}", loc="left")
        bandwidth.set_xlabel("size of the tensor")
    for axes, label in zip(panels[:, 0], ("time [ms]", "bus bandwidth [GB/s]")):
        axes.set_ylabel(label)
        style.write_plain_numbers(axes.yaxis)
    add_legend_and_caption(figure, result, worlds)
    return figure


def crowded(result: Result, worlds: dict[int, Times]) -> str:
    """A line about ranks that share cores, whose time is not the link's alone."""
    cores = result.provenance["cores"]
    shared = [world for world in worlds if world > cores]
    if result.provenance["device"] != "cpu" or not shared:
        return ""
    ranks = " and ".join(map(str, shared))
    return f"\nThe worlds of {ranks} ranks share {cores} cores: it is not the link alone that takes their time."


def add_legend_and_caption(figure: Figure, result: Result, worlds: dict[int, Times]) -> None:
    times = next(iter(worlds.values()))
    shown = [variant for variant in KNOWN if variant in times]
    handles = [plt.Line2D([], [], color=COLOURS[each], marker=MARKERS[each], markersize=4.5) for each in shown]
    figure.legend(handles, [title_of(each, result) for each in shown], loc="outside upper center", ncols=len(shown))
    calls = [len(seconds) for times in worlds.values() for by_size in times.values() for seconds in by_size.values()]
    most, least = max(calls), min(calls)
    number = f"{most} calls (small tensors) to {least} (large)" if most > least else f"{most} calls"
    style.add_caption(
        figure,
        f"float32, {result.link}. Medians of {number}, of the slowest rank; "
        "bars: 10th to 90th percentile.\n"
        "Bus bandwidth as nccl-tests counts it: 2(N-1)/N · S / time, for S bytes among N ranks."
        f"{left_out(all_reduces.COMPARED, times)}{crowded(result, worlds)}",
        [result],
    )


main = script.main(__name__, __doc__, script.one_each(all_reduces.COLLECTIVES, all_reduces.PARAMETERS, draw))
