"""Draws time and memory of synchronized batch normalization over a grid of batch and hidden sizes.

Reads a result file of the benchmark sync_batch_norm. Beside the stage are its peer, batch normalization of each
rank's own batch, and the published numbers of the same cells, if they are of as many ranks.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from figures.lib import script, style
from figures.lib.reference_data import load_reference
from figures.lib.result_files import Result, ResultError

PROGRAM = "sync_batch_norm"
PARAMETERS = ("dtype", "affine", "repetitions", "rate_gbit", "latency_us")
DIRECTIONS = ("forward", "forward + backward")
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


@dataclass(frozen=True)
class Cell:
    batch: int
    hidden: int


Published = dict[Cell, tuple[float, float]]  # microseconds and KiB


class Grid:
    """The measurements, by cell."""

    def __init__(self, result: Result) -> None:
        self._result = result
        labels = [series["labels"] for series in result.series]
        if not all({"batch_size", "hidden_dim"} <= label.keys() for label in labels):
            raise ResultError(f"{result.file}: has a series without batch_size or hidden_dim; run the benchmark again")
        self.batches = sorted({label["batch_size"] for label in labels})
        self.hidden = sorted({label["hidden_dim"] for label in labels})
        measured = {label["variant"] for label in labels}
        self.variants = {name: colour for name, colour in VARIANTS.items() if name in measured}
        self.bar = BAR_WIDTH / len(self.variants)
        # Times and collectives are of the same calls.
        if len({len(series["values"]) for series in result.series if series["unit"] == "s"}) > 1:
            raise ResultError(f"{result.file}: its series differ in their number of calls; run it again")

    def cells(self, batch: int) -> list[Cell]:
        return [Cell(batch, hidden) for hidden in self.hidden]

    def positions(self, variant: str) -> np.ndarray:
        """A variant's place in each group."""
        place = list(self.variants).index(variant) - (len(self.variants) - 1) / 2
        return np.arange(len(self.hidden)) + place * self.bar

    def microseconds(self, cell: Cell, variant: str, direction: str, quantity: str = "time") -> list[float]:
        return [1e6 * value for value in self.values("s", cell, variant, direction, quantity)]

    def kibibytes(self, cell: Cell, variant: str, direction: str) -> float:
        return statistics.median(self.values("bytes", cell, variant, direction, "peak memory")) / 1024

    def values(self, unit: str, cell: Cell, variant: str, direction: str, quantity: str) -> list[float]:
        labels: dict[str, Any] = {"batch_size": cell.batch, "hidden_dim": cell.hidden, "variant": variant}
        return self._result.values(unit, **labels, direction=direction, quantity=quantity)


def load_published(name: str, ranks: int) -> Published:
    """The rows of the table that were measured with this number of ranks."""
    return {
        Cell(int(row["batch_size"]), int(row["hidden_dim"])):
            (1e6 * float(row["median time"]), float(row["max memory allocated"]) / 1024)
        for row in load_reference(name).rows if int(row["num_workers"]) == ranks
    }  # fmt: skip


def draw_times(axes: Axes, grid: Grid, batch: int, direction: str) -> None:
    """A stack for each variant: its own computing below, the time of the collectives above."""
    cells = grid.cells(batch)
    for variant, colour in grid.variants.items():
        at = grid.positions(variant)
        times = np.array([grid.microseconds(cell, variant, direction) for cell in cells])
        collectives = [grid.microseconds(cell, variant, direction, "collective") for cell in cells]
        totals, own = np.median(times, axis=1), np.median(times - collectives, axis=1)
        axes.bar(at, own, grid.bar, color=colour, edgecolor="white", linewidth=0.4)
        rest = {"facecolor": "white", "edgecolor": colour, "hatch": HATCH, "linewidth": 0.6}
        axes.bar(at, totals - own, grid.bar, bottom=own, **rest)
        # Half of the calls. Now and then a rank waits for a core, ten times as long: that is the machine's.
        axes.vlines(at, *np.percentile(times, [25, 75], axis=1), color="black", linewidth=0.8)


def draw_published(axes: Axes, grid: Grid, cells: list[Cell], published: dict[str, Published], which: int) -> None:
    """`which`: 0 for times, 1 for memory."""
    for variant, values in published.items():
        at = [x for x, cell in zip(grid.positions(variant), cells) if cell in values]
        heights = [values[cell][which] for cell in cells if cell in values]
        axes.plot(at, heights, color=VARIANTS[variant], **PUBLISHED_MARKER)


def draw_memory(axes: Axes, grid: Grid, batch: int, direction: str) -> None:
    """A dot for each variant, and a line at the size of input and output together."""
    cells = grid.cells(batch)
    for index, cell in enumerate(cells):
        least = 2 * 4 * cell.batch * cell.hidden / 1024
        axes.hlines(least, index - 0.6 * BAR_WIDTH, index + 0.6 * BAR_WIDTH, color="black", linewidth=0.7)
    for variant, colour in grid.variants.items():
        values = [grid.kibibytes(cell, variant, direction) for cell in cells]
        look = {"color": colour, "markersize": 3.2, "markeredgecolor": "white", "markeredgewidth": 0.4, "zorder": 5}
        axes.plot(grid.positions(variant), values, "o", **look)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_locator(LogLocator(base=2, subs=(1.0,), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def draw_column(column: list[Axes], grid: Grid, batch: int, published: dict[str, Published]) -> None:
    cells = grid.cells(batch)
    forward, both, memory = column
    draw_times(forward, grid, batch, DIRECTIONS[0])
    draw_times(both, grid, batch, DIRECTIONS[1])
    draw_memory(memory, grid, batch, DIRECTIONS[0])
    draw_published(forward, grid, cells, published, 0)
    draw_published(memory, grid, cells, published, 1)
    for axes in column:
        axes.set_xticks(range(len(cells)), [str(cell.hidden) for cell in cells])
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(-0.55, len(cells) - 0.45)
        axes.grid(axis="y")
    forward.set_title(f"batch of {batch} samples a rank", loc="left")
    memory.set_xlabel("hidden size, features of a sample")


def add_legend(figure: Figure, variants: dict[str, str]) -> None:
    handles = [Patch(color=colour, label=NAMES[variant]) for variant, colour in variants.items()]
    handles += [
        Patch(color="#555555", label="this rank's own part"),
        Patch(facecolor="white", edgecolor="#555555", hatch=HATCH, label="collectives"),
        Line2D([], [], color="#555555", label="published, of the same colour (2 GPUs)", **PUBLISHED_MARKER),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, fontsize=7, columnspacing=1.5, handlelength=1.3)


def draw(result: Result) -> Figure:
    """A column for each batch size; rows: forward, forward and backward, memory."""
    plt.rcParams["hatch.linewidth"] = 0.5
    grid = Grid(result)
    ranks = result.provenance["world_size"]
    published = {variant: load_published(name, ranks) for variant, name in PUBLISHED.items()}
    figure, panels = style.panels(HEIGHT, 3, len(grid.batches), sharex=True, sharey="row", squeeze=False)
    for index, batch in enumerate(grid.batches):
        draw_column(list(panels[:, index]), grid, batch, published)
    for axes, label in zip(panels[:, 0], ("forward [µs]", "forward + backward [µs]", "peak memory [KiB]")):
        axes.set_ylabel(label)
    add_legend(figure, grid.variants)
    add_caption(figure, result)
    return figure


def add_caption(figure: Figure, result: Result) -> None:
    values, ranks = result.parameters, result.provenance["world_size"]
    affine = "with weight and bias" if values["affine"] else "without weight and bias"
    style.add_caption(
        figure,
        f"{ranks} ranks, {result.link}; {values['dtype']}, {affine}. "
        f"Medians of {values['repetitions']} calls, slowest rank; "
        "lines: 25th to 75th percentile. Peak memory of forward: all tensors at once; black "
        "line: input and output. Published: 10,000 calls, RTX A4000.",
        [result],
    )


main = script.main(__name__, __doc__, script.one_each(PROGRAM, PARAMETERS, draw))
