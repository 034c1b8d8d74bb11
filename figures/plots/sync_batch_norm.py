"""Draws time and memory of synchronized batch normalization over a grid of batch and hidden sizes.

Reads a result file of the benchmark sync_batch_norm. Beside the stage are its peer, batch normalization of each
rank's own batch, and the published numbers of the same cells, if they are of as many ranks.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from figures.lib import script, style
from figures.lib.reference_data import load_reference
from figures.lib.result_files import link, pick

PROGRAM = "sync_batch_norm"
CELL = ["batch_size", "hidden_dim"]
FORWARD, BOTH = DIRECTIONS = ("forward", "forward + backward")
TIME, MEMORY = "median time", "max memory allocated"  # the published columns, in seconds and bytes
VARIANTS = {"stage": style.BLUE, "peer": style.ORANGE, "local": style.GREY}
NAMES = {
    "stage": "stage 04",
    "peer": "peer (port of nn.SyncBatchNorm)",
    "local": "local at::native_batch_norm (nothing synchronized)",
}
# The published table to compare with a variant.
PUBLISHED = {"stage": "sync_batch_norm.selfmade", "peer": "sync_batch_norm.pytorch"}
# Black at the edge: it stands on bars of its own colour.
PUBLISHED_MARKER = {"marker": "D", "markersize": 4.6, "markeredgecolor": "black", "linestyle": "none", "zorder": 4}
BAR_WIDTH = 0.8  # of all variants of a cell
HATCH = "/////"
HEIGHT = 6.38  # inches


def summary(result: pd.DataFrame) -> pd.DataFrame:
    """By direction, variant and CELL: the published columns; `own`, the median time without collectives; and low and
    high, between which half of the calls are. Now and then a rank waits for a core, ten times as long: that is the
    machine's."""
    calls = result.pivot(index=["direction", "variant", *CELL, "call"], columns="quantity", values="value")
    groups = calls.assign(own=calls["time"] - calls["collective"]).groupby(level=["direction", "variant", *CELL])
    medians = groups[["time", "own", "peak memory"]].median()
    medians = medians.rename(columns={"time": TIME, "peak memory": MEMORY})
    return medians.assign(low=groups["time"].quantile(0.25), high=groups["time"].quantile(0.75))


def with_places(cells: pd.DataFrame, variants: list[str], ranks: int) -> pd.DataFrame:
    """Adds where a cell stands on the axis, which has a group for each hidden size, and the published numbers of its
    variant, if they are of as many ranks."""
    cells = cells.reset_index()
    groups = {hidden: place for place, hidden in enumerate(sorted(cells["hidden_dim"].unique()))}
    aside = cells["variant"].map(variants.index) - (len(variants) - 1) / 2
    tables = [load_reference(name).assign(variant=variant) for variant, name in PUBLISHED.items()]
    published = pick(pd.concat(tables), num_workers=ranks).reindex(columns=["variant", *CELL, TIME, MEMORY])
    cells = cells.assign(group=cells["hidden_dim"].map(groups))
    cells["at"] = cells["group"] + aside * BAR_WIDTH / len(variants)
    return cells.merge(published, on=["variant", *CELL], how="left", suffixes=("", " published"))


def draw_times(axes: Axes, cells: pd.DataFrame, width: float) -> None:
    """A stack for each variant: its own computing below, the time of the collectives above."""
    for variant, rows in cells.groupby("variant"):
        colour, at = VARIANTS[variant], rows["at"]
        own, low, high = (1e6 * rows[name] for name in ("own", "low", "high"))
        axes.bar(at, own, width, color=colour, edgecolor="white", linewidth=0.4)
        rest = {"facecolor": "white", "edgecolor": colour, "hatch": HATCH, "linewidth": 0.6}
        axes.bar(at, 1e6 * rows[TIME] - own, width, bottom=own, **rest)
        axes.vlines(at, low, high, color="black", linewidth=0.8)


def draw_memory(axes: Axes, cells: pd.DataFrame) -> None:
    """A dot for each variant, and a line at the size of input and output together."""
    least, half = 2 * 4 * cells["batch_size"] * cells["hidden_dim"] / 1024, 0.6 * BAR_WIDTH
    axes.hlines(least, cells["group"] - half, cells["group"] + half, color="black", linewidth=0.7)
    look = {"markersize": 3.2, "markeredgecolor": "white", "markeredgewidth": 0.4, "zorder": 5}
    for variant, rows in cells.groupby("variant"):
        axes.plot(rows["at"], rows[MEMORY] / 1024, "o", color=VARIANTS[variant], **look)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(base=2, subs=(1.0,), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def draw_column(column: list[Axes], cells: pd.DataFrame, width: float) -> None:
    """One batch size: forward, forward and backward, memory."""
    forward, both = (cells[cells["direction"] == direction] for direction in DIRECTIONS)
    draw_times(column[0], forward, width)
    draw_times(column[1], both, width)
    draw_memory(column[2], forward)
    for axes, name, scale in ((column[0], TIME, 1e6), (column[2], MEMORY, 1 / 1024)):
        for variant, rows in forward.dropna(subset=f"{name} published").groupby("variant"):
            axes.plot(rows["at"], scale * rows[f"{name} published"], color=VARIANTS[variant], **PUBLISHED_MARKER)
    hidden = forward.drop_duplicates("group").set_index("group")["hidden_dim"].sort_index()
    for axes in column:
        axes.set_xticks(hidden.index, map(str, hidden))
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(-0.55, len(hidden) - 0.45)
        axes.grid(axis="y")
    column[2].set_xlabel("hidden size, features of a sample")


def draw(result: pd.DataFrame) -> Figure:
    """A column for each batch size."""
    plt.rcParams["hatch.linewidth"] = 0.5
    ranks, variants = result.attrs["provenance"]["world_size"], [v for v in VARIANTS if v in set(result["variant"])]
    by_batch = with_places(summary(result), variants, ranks).groupby("batch_size")
    figure, panels = style.panels(HEIGHT, 3, len(by_batch), sharex=True, sharey="row", squeeze=False)
    for column, (batch, cells) in zip(panels.T, by_batch):
        draw_column(list(column), cells, BAR_WIDTH / len(variants))
        column[0].set_title(f"batch of {batch} samples a rank", loc="left")
    for axes, label in zip(panels[:, 0], ("forward [µs]", "forward + backward [µs]", "peak memory [KiB]")):
        axes.set_ylabel(label)
    handles = [Patch(color=VARIANTS[variant], label=NAMES[variant]) for variant in variants]
    handles += [
        Patch(color="#555555", label="this rank's own part"),
        Patch(facecolor="white", edgecolor="#555555", hatch=HATCH, label="collectives"),
        Line2D([], [], color="#555555", label="published, of the same colour (2 GPUs)", **PUBLISHED_MARKER),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, fontsize=7, columnspacing=1.5, handlelength=1.3)
    values = result.attrs["parameters"]
    affine = "with weight and bias" if values["affine"] else "without weight and bias"
    style.add_caption(
        figure,
        f"{ranks} ranks, {link(result)}; {values['dtype']}, {affine}. Medians of {values['repetitions']} calls, "
        "slowest rank; lines: 25th to 75th percentile. Peak memory of forward: all tensors at once; black "
        "line: input and output. Published: 10,000 calls, RTX A4000.",
        [result],
    )
    return figure


main = script.main(__name__, __doc__, script.one_each(PROGRAM, draw))
