"""Draws and sets time and memory of synchronized batch normalization over a grid of batch and hidden sizes.

Reads result files of the benchmark sync_batch_norm. Beside the stage are its baseline, batch normalization of each
rank's own batch, and the published numbers of the same cells, of forward alone, if they are of as many ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from figures.lib import script, style
from figures.lib.result_files import link, load, load_reference, name_of, pick
from figures.lib.tables import Table, side_by_side

PROGRAM = "sync_batch_norm"
CELL = ["batch_size", "hidden_dim"]
FORWARD, BOTH = DIRECTIONS = ("forward", "forward + backward")
TIME, MEMORY = "median time", "max memory allocated"  # the published columns, in seconds and bytes
VARIANTS = {"stage": style.BLUE, "baseline": style.ORANGE, "local": style.GREY}
NAMES = {"stage": "stage 04", "baseline": "baseline (port of nn.SyncBatchNorm)",
         "local": "local at::native_batch_norm (nothing synchronized)"}  # fmt: skip
# The published table to compare with a variant.
PUBLISHED = {"stage": "sync_batch_norm.custom", "baseline": "sync_batch_norm.pytorch"}
# Black at the edge: it stands on bars of its own colour.
PUBLISHED_MARKER = {"marker": "D", "markersize": 4.6, "markeredgecolor": "black", "linestyle": "none", "zorder": 4}
BAR_WIDTH = 0.8  # of all variants of a cell
COLLECTIVES = {"facecolor": "white", "hatch": "/////"}
LABELS = ("forward [µs]", "forward + backward [µs]", "peak memory [KiB]")
COLUMNS = [*CELL, "num_workers", TIME, MEMORY]
# The published titles, in their order, by the variant whose numbers are below them here.
TITLES = {"baseline": "Pytorch BN", "stage": "Custom BN"}


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
        axes.bar(at, 1e6 * rows[TIME] - own, width, bottom=own, edgecolor=colour, **COLLECTIVES, linewidth=0.6)
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
    for axes, label in zip(column, LABELS):
        axes.set_xticks(hidden.index, map(str, hidden))
        axes.tick_params(axis="x", length=0)
        axes.set_xlim(-0.55, len(hidden) - 0.45)
        style.dress(axes, y=label if axes.get_subplotspec().is_first_col() else "", grid="y")
    column[0].set_title(f"batch of {cells['batch_size'].iloc[0]} samples a rank", loc="left")
    column[2].set_xlabel("hidden size, features of a sample")


def draw(result: pd.DataFrame) -> Figure:
    """A column for each batch size."""
    plt.rcParams["hatch.linewidth"] = 0.5
    ranks, variants = result.attrs["provenance"]["world_size"], [v for v in VARIANTS if v in set(result["variant"])]
    by_batch = with_places(summary(result), variants, ranks).groupby("batch_size")
    figure, panels = style.panels(6.38, 3, len(by_batch), sharex=True, sharey="row", squeeze=False)
    for column, (_, cells) in zip(panels.T, by_batch):
        draw_column(list(column), cells, BAR_WIDTH / len(variants))
    entries = {NAMES[variant]: {"facecolor": VARIANTS[variant]} for variant in variants} | {
        "this rank's own part": {"facecolor": "#555555"},
        "collectives": {"edgecolor": "#555555", **COLLECTIVES},
        "published, of the same colour (2 GPUs)": {"color": "#555555", **PUBLISHED_MARKER},
    }
    style.legend(figure, entries, ncols=2, columnspacing=1.5, handlelength=1.3)
    values = result.attrs["parameters"]
    affine = "with weight and bias" if values["affine"] else "without weight and bias"
    text = (
        f"{ranks} ranks, {link(result)}; {values['dtype']}, {affine}. Medians of {values['repetitions']} calls, "
        "slowest rank; lines: 25th to 75th percentile. Peak memory of forward: all tensors at once; black "
        "line: input and output. Published: 10,000 calls, RTX A4000."
    )
    return style.add_caption(figure, text, [result])


def texts_of(rows: pd.DataFrame) -> list[list[str]]:
    """The cells of COLUMNS."""
    return [[*map(str, row[:3]), f"{row[3]:.5f}", f"{row[4]:.0f}"] for row in rows.itertuples(index=False, name=None)]


def takeaway(tables: dict[str, pd.DataFrame]) -> str:
    """The claim about the published numbers, as counts for ours."""
    own, baseline = (tables[variant].reset_index(drop=True) for variant in ("stage", "baseline"))
    faster, larger = (own[TIME] < baseline[TIME]).sum(), (own[MEMORY] > baseline[MEMORY]).sum()
    return f"The custom layer is faster in {faster} of {len(own)} cells, and takes more memory in {larger}."


def table(result: pd.DataFrame, direction: str, tables: dict[str, pd.DataFrame]) -> Table:
    runs = result.attrs["parameters"]["repetitions"]
    return Table(
        title=f"Synchronized batch normalization: {direction}",
        columns=["implementation", *COLUMNS],
        rows=[[title, *cells] for variant, title in TITLES.items() for cells in texts_of(tables[variant])],
        results=[result],
        note=f"Pytorch BN: the port of nn.SyncBatchNorm. Custom BN: stage 04. Medians of {runs} calls, of the "
        f"slowest rank, in seconds; most bytes of tensors at once, input and output counted in. {takeaway(tables)}",
    )


def make(files: list[Path]) -> Iterator[tuple[str, Figure | Table]]:
    for result in (load(file, PROGRAM) for file in files):
        yield name_of(PROGRAM, result), draw(result)
        cells = summary(result).assign(num_workers=result.attrs["provenance"]["world_size"])
        of = {
            direction: {variant: cells.loc[direction, variant].reset_index()[COLUMNS] for variant in TITLES}
            for direction in (FORWARD, BOTH)
        }
        published = table(result, FORWARD, of[FORWARD])
        yield name_of(PROGRAM, result), published
        yield name_of(f"{PROGRAM}.backward", result), table(result, BOTH, of[BOTH])
        for variant, rows in of[FORWARD].items():
            rows = rows.astype({MEMORY: int})
            yield from side_by_side(f"{PROGRAM}.{variant}", published, PUBLISHED[variant], COLUMNS[:3], rows)


main = script.main(__name__, __doc__, make)
