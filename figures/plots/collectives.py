"""Draws and sets time and bus bandwidth of all-reduces over message size, with the alpha-beta model fitted to them.

Reads result files of the benchmark collectives: medians of calls that all ranks begin together, of the slowest. The
model is fitted to the smallest world of several ranks. The table has the columns of nccl-tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import script, style
from figures.lib.all_reduces import COLLECTIVES, COMPARED, LOOKS, bus_bandwidth, collectives_times, title_of
from figures.lib.result_files import left_out, link, load, name_of
from figures.lib.tables import Table

TICKS = 3  # of sizes, in each panel
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


def draw_fits(result: pd.DataFrame, times: pd.DataFrame, ranks: int) -> Figure:
    variants, sizes = times.index.unique("variant"), times.index.unique("bytes")
    figure, axes = style.panels(4.0)
    for variant in variants:
        own, look = times.loc[variant], {**LOOKS[variant], "markersize": 5, "linewidth": 1.3}
        alpha, beta = fit(own["median"], ranks)
        line = np.geomspace(sizes.min(), sizes.max(), 200)
        bandwidth = bus_bandwidth(line, model_seconds(line, ranks, alpha, beta), ranks)
        axes.plot(line, bandwidth, color=look["color"], linewidth=look["linewidth"])
        beside = own.index * SHIFT ** (COMPARED.index(variant) - (len(COMPARED) - 1) / 2)
        low, high, points = (bus_bandwidth(own.index, own[name], ranks) for name in ("low", "high", "median"))
        axes.vlines(beside, low, high, color=look["color"], linewidth=0.9, alpha=0.6)
        axes.plot(beside, points, **(look | {"linestyle": "none"}), markeredgecolor="white", markeredgewidth=0.4)
        axes.plot([], [], **look, label=label_of(title_of(variant, result), alpha, beta))
    style.log_axis(axes, sizes[:: max(1, len(sizes) // 7)], style.size_in_words)
    axes.set_yscale("log")
    style.write_plain_numbers(axes.yaxis)
    style.dress(axes, f"{ranks} ranks, {link(result)}", "size S of the tensor", "bus bandwidth [GB/s]")
    axes.legend(loc="lower right", fontsize=7.5)
    text = (
        "Bus bandwidth: 2(N-1)/N · S / time. Points: medians of the slowest rank; bars: 10th to 90th percentile.\n"
        "Lines: the model t = 2(N-1) · (α + S/N · β), fitted to the medians by least squares of relative errors."
    )
    return style.add_caption(figure, text + left_out(COMPARED, variants), [result])


def draw_column(time: Axes, bandwidth: Axes, times: pd.DataFrame, world: int) -> None:
    for variant in times.index.unique("variant"):
        own, colour = times.loc[variant], LOOKS[variant]["color"]
        look = {**LOOKS[variant], "markersize": 4, "linewidth": 1.1, "markeredgecolor": "white", "markeredgewidth": 0.3}
        time.plot(1e3 * own["median"], **look)
        time.vlines(own.index, 1e3 * own["low"], 1e3 * own["high"], color=colour, linewidth=0.8, alpha=0.5)
        if world > 1:
            bandwidth.plot(bus_bandwidth(own.index, own["median"], world), **look)
    sizes = times.index.unique("bytes")
    for axes in (time, bandwidth):
        ticks = [sizes[round(at)] for at in np.linspace(0, len(sizes) - 1, min(TICKS, len(sizes)))]
        style.log_axis(axes, ticks, style.size_in_words)
        axes.set_yscale("log")
    style.dress(time, f"{world} rank{'s' if world > 1 else ''}")
    style.dress(bandwidth, x="size of the tensor")


def draw_worlds(result: pd.DataFrame, times: pd.DataFrame) -> Figure:
    """Times above bus bandwidths, a column for each world; axes are shared, so that worlds can be compared."""
    worlds, variants = times.index.unique("world_size"), times.index.unique("variant")
    figure, panels = style.panels(4.9, 2, len(worlds), sharex="col", sharey="row", squeeze=False)
    for world, column in zip(worlds, panels.T):
        draw_column(*column, times.loc[world], world)
    for axes, label in zip(panels[:, 0], ("time [ms]", "bus bandwidth [GB/s]")):
        axes.set_ylabel(label)
        style.write_plain_numbers(axes.yaxis)
    entries = {title_of(each, result): {**LOOKS[each], "markersize": 4.5} for each in variants}
    style.legend(figure, entries, "outside upper center", fontsize=8)
    cores, device = (result.attrs["provenance"][name] for name in ("cores", "device"))
    shared = " and ".join(str(world) for world in worlds if world > cores and device == "cpu")
    calls = " to ".join(map(str, sorted({times["calls"].min(), times["calls"].max()})))
    text = (
        f"float32, {link(result)}. Medians of {calls} calls, of the slowest "
        f"rank; bars: 10th to 90th percentile.\nBus bandwidth: 2(N-1)/N · S / time, for S bytes among N ranks, as in "
        f"nccl-tests.{left_out(COMPARED, variants)}"
    )
    text += f"\nThe worlds of {shared} ranks share {cores} cores, which takes time, too." if shared else ""
    return style.add_caption(figure, text, [result])


def make_table(result: pd.DataFrame) -> Table:
    """Bus bandwidths, the variants side by side."""
    times = collectives_times(result).reset_index()
    times["bandwidth"] = bus_bandwidth(times["bytes"], times["median"], times["world_size"])
    variants = list(times["variant"].unique())
    wide = times.pivot(index=["world_size", "bytes"], columns="variant", values="bandwidth")[variants]
    rows = [
        [str(world), style.size_in_words(size), *map("{:.4f}".format, row)] for (world, size), row in wide.iterrows()
    ]
    cores, device = (result.attrs["provenance"][name] for name in ("cores", "device"))
    crowded = f" The ranks share {cores} cores." if device == "cpu" and times["world_size"].max() > cores else ""
    note = (
        "2(N-1)/N · S / time for S bytes among N ranks, as nccl-tests counts, from medians of calls that all "
        f"ranks begin together, of the slowest rank.{crowded}{left_out(COMPARED, variants)}"
    )
    columns = ["ranks", "size", *(title_of(variant, result) for variant in variants)]
    return Table("Bus bandwidth of all-reduces, in GB/s", columns, rows, [result], note)


def make(files: list[Path]) -> Iterator[tuple[str, Figure | Table]]:
    for result in (load(file, COLLECTIVES) for file in files):
        times = collectives_times(result)
        yield name_of(COLLECTIVES, result), make_table(result)
        yield name_of(COLLECTIVES, result), draw_worlds(result, times)
        several = [world for world in times.index.unique("world_size") if world > 1]  # one rank has no bus
        if several:
            yield name_of("all_reduce_bandwidth", result), draw_fits(result, times.loc[several[0]], several[0])


main = script.main(__name__, __doc__, make)
