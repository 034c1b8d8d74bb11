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


class Column:
    """The panels of one batch size: a group of bars or dots for each hidden size, in it a place for each variant."""

    def __init__(self, cells: pd.DataFrame, batch: int, ranks: int) -> None:
        self._cells = cells.xs(batch, level="batch_size")
        self._batch, self._ranks = batch, ranks
        self.hidden = list(cells.index.unique("hidden_dim"))
        self._variants = [variant for variant in VARIANTS if variant in cells.index.unique("variant")]
        self._bar = BAR_WIDTH / len(self._variants)

    def _at(self, variant: str, hidden: pd.Index) -> list[float]:
        place = self._variants.index(variant) - (len(self._variants) - 1) / 2
        return [self.hidden.index(each) + place * self._bar for each in hidden]

    def draw_times(self, axes: Axes, direction: str) -> None:
        """A stack for each variant: its own computing below, the time of the collectives above."""
        for variant in self._variants:
            colour, cells = VARIANTS[variant], 1e6 * self._cells.loc[direction, variant]
            at = self._at(variant, cells.index)
            axes.bar(at, cells["own"], self._bar, color=colour, edgecolor="white", linewidth=0.4)
            rest = {"facecolor": "white", "edgecolor": colour, "hatch": HATCH, "linewidth": 0.6}
            axes.bar(at, cells[TIME] - cells["own"], self._bar, bottom=cells["own"], **rest)
            axes.vlines(at, cells["low"], cells["high"], color="black", linewidth=0.8)

    def draw_memory(self, axes: Axes) -> None:
        """A dot for each variant, and a line at the size of input and output together."""
        for index, hidden in enumerate(self.hidden):
            least = 2 * 4 * self._batch * hidden / 1024
            axes.hlines(least, index - 0.6 * BAR_WIDTH, index + 0.6 * BAR_WIDTH, color="black", linewidth=0.7)
        look = {"markersize": 3.2, "markeredgecolor": "white", "markeredgewidth": 0.4, "zorder": 5}
        for variant in self._variants:
            values = self._cells.loc[FORWARD, variant][MEMORY] / 1024
            axes.plot(self._at(variant, values.index), values, "o", color=VARIANTS[variant], **look)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_locator(LogLocator(base=2, subs=(1.0,), numticks=12))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_minor_formatter(NullFormatter())

    def draw_published(self, axes: Axes, column: str, scale: float) -> None:
        for variant, name in PUBLISHED.items():
            rows = pick(load_reference(name), batch_size=self._batch, num_workers=self._ranks)
            rows = rows[rows["hidden_dim"].isin(self.hidden)]
            if variant in self._variants:
                at = self._at(variant, rows["hidden_dim"])
                axes.plot(at, scale * rows[column], color=VARIANTS[variant], **PUBLISHED_MARKER)

    def draw(self, forward: Axes, both: Axes, memory: Axes) -> None:
        self.draw_times(forward, FORWARD)
        self.draw_published(forward, TIME, 1e6)
        self.draw_times(both, BOTH)
        self.draw_memory(memory)
        self.draw_published(memory, MEMORY, 1 / 1024)
        for axes in (forward, both, memory):
            axes.set_xticks(range(len(self.hidden)), map(str, self.hidden))
            axes.tick_params(axis="x", length=0)
            axes.set_xlim(-0.55, len(self.hidden) - 0.45)
            axes.grid(axis="y")
        forward.set_title(f"batch of {self._batch} samples a rank", loc="left")
        memory.set_xlabel("hidden size, features of a sample")


def draw(result: pd.DataFrame) -> Figure:
    """A column for each batch size; rows: forward, forward and backward, memory."""
    plt.rcParams["hatch.linewidth"] = 0.5
    cells, ranks = summary(result), result.attrs["provenance"]["world_size"]
    batches = cells.index.unique("batch_size")
    figure, panels = style.panels(HEIGHT, 3, len(batches), sharex=True, sharey="row", squeeze=False)
    for column, batch in zip(panels.T, batches):
        Column(cells, batch, ranks).draw(*column)
    for axes, label in zip(panels[:, 0], ("forward [µs]", "forward + backward [µs]", "peak memory [KiB]")):
        axes.set_ylabel(label)
    there = cells.index.unique("variant")
    handles = [Patch(color=colour, label=NAMES[name]) for name, colour in VARIANTS.items() if name in there]
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
