"""Draws time and bus bandwidth of all-reduces over message size, one column for each world size.

Reads one result file of the benchmark collectives.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import all_reduces, script, style
from figures.lib.all_reduces import COLOURS, MARKERS, bus_bandwidth, title_of
from figures.lib.result_files import left_out, link

TICKS = 3  # of sizes, in each panel


def draw_column(time: Axes, bandwidth: Axes, times: pd.DataFrame, world: int) -> None:
    for variant in times.index.unique("variant"):
        own, colour = times.loc[variant], COLOURS[variant]
        look = {"color": colour, "marker": MARKERS[variant], "markersize": 4, "linewidth": 1.1}
        look |= {"markeredgecolor": "white", "markeredgewidth": 0.3}
        time.plot(1e3 * own["median"], **look)
        time.vlines(own.index, 1e3 * own["low"], 1e3 * own["high"], color=colour, linewidth=0.8, alpha=0.5)
        if world > 1:
            bandwidth.plot(bus_bandwidth(own.index, own["median"], world), **look)
    sizes = times.index.unique("bytes")
    for axes in (time, bandwidth):
        ticks = [sizes[round(at)] for at in np.linspace(0, len(sizes) - 1, min(TICKS, len(sizes)))]
        style.log_axis(axes, ticks, all_reduces.size_label)
        axes.set_yscale("log")
        axes.grid()
    time.set_title(f"{world} rank{'s' if world > 1 else ''}", loc="left")
    bandwidth.set_xlabel("size of the tensor")


def crowded(result: pd.DataFrame, worlds: pd.Index) -> str:
    """A line about ranks that share cores, whose time is not the link's alone."""
    cores, device = (result.attrs["provenance"][name] for name in ("cores", "device"))
    shared = [world for world in worlds if world > cores]
    if device != "cpu" or not shared:
        return ""
    ranks = " and ".join(map(str, shared))
    return f"\nThe worlds of {ranks} ranks share {cores} cores: it is not the link alone that takes their time."


def draw(result: pd.DataFrame) -> Figure:
    """Times above bus bandwidths; axes are shared, so that worlds can be compared."""
    times = all_reduces.collectives_times(result)
    worlds, variants = times.index.unique("world_size"), times.index.unique("variant")
    figure, panels = style.panels(4.9, 2, len(worlds), sharex="col", sharey="row", squeeze=False)
    for world, column in zip(worlds, panels.T):
        draw_column(*column, times.loc[world], world)
    for axes, label in zip(panels[:, 0], ("time [ms]", "bus bandwidth [GB/s]")):
        axes.set_ylabel(label)
        style.write_plain_numbers(axes.yaxis)
    handles = [plt.Line2D([], [], color=COLOURS[each], marker=MARKERS[each], markersize=4.5) for each in variants]
    figure.legend(
        handles, [title_of(each, result) for each in variants], loc="outside upper center", ncols=len(variants)
    )
    most, least = times["calls"].max(), times["calls"].min()
    number = f"{most} calls (small tensors) to {least} (large)" if most > least else f"{most} calls"
    style.add_caption(
        figure,
        f"float32, {link(result)}. Medians of {number}, of the slowest rank; bars: 10th to 90th percentile.\n"
        "Bus bandwidth as nccl-tests counts it: 2(N-1)/N · S / time, for S bytes among N ranks."
        f"{left_out(all_reduces.COMPARED, variants)}{crowded(result, worlds)}",
        [result],
    )
    return figure


main = script.main(__name__, __doc__, script.one_each(all_reduces.COLLECTIVES, draw))
