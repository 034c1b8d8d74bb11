"""Draws the ring beside the butterfly and the backend's own all-reduce, over world size.

Reads result files of the benchmark ring_all_reduce, a figure for each. Draws the mean over the repetitions, as
published. What the published procedure measured stands beside the published numbers; warm calls stand alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from figures.lib import script, style
from figures.lib.all_reduces import COLOURS, MARKERS, RING, title_of
from figures.lib.reference_data import load_reference
from figures.lib.result_files import Result, ResultError, load

PROGRAM = "ring_all_reduce"
PUBLISHED_PROCEDURE, WARM = "published", "warm"
PARAMETERS = ("repetitions", "procedure")
SMALLEST_DIFF = 1e-17  # smaller values are drawn at zero


@dataclass(frozen=True)
class Published:
    """One of the two published tables, and the peer's prefix in its columns' names."""

    peer: str
    reference: str
    column: str


TABLES = (
    Published("butterfly", "ring_all_reduce.butterfly", "butterfly"),
    Published("all_reduce", "ring_all_reduce.torch", "torch"),
)


@dataclass(frozen=True)
class Quantity:
    """One row of panels."""

    name: str
    unit: str
    label: str
    scale: float
    column: str  # the published name, with {} for the variant; empty if unpublished


QUANTITIES = (
    Quantity("time", "s", "time [ms]", 1e3, "{}_max_time_consumed"),
    Quantity("maxrss", "KiB", "ru_maxrss [MiB]", 2**-10, "{}_max_memory"),
    Quantity("allocated", "bytes", "allocated beyond\nthe tensor [KiB]", 2**-10, ""),
    Quantity("diff", "1", "sum of squared\nerrors", 1, "diff_{}"),
)


def is_warm(result: Result) -> bool:
    procedure = result.parameters["procedure"]
    if procedure not in (PUBLISHED_PROCEDURE, WARM):
        raise ResultError(f"{result.file}: its procedure is {procedure!r}, which no benchmark has")
    return procedure == WARM


def name_of(program: str, result: Result) -> str:
    """The figure's or table's name; that of warm calls has a part of its own."""
    stem, dot, table = program.partition(".")
    return script.name_of(f"{stem}.{WARM}{dot}{table}" if is_warm(result) else program, result)


def quantities_of(result: Result) -> list[Quantity]:
    return [quantity for quantity in QUANTITIES if quantity.column or is_warm(result)]


Curve = list[tuple[int, float]]  # by world size


def cells_of(result: Result, peer: str) -> list[tuple[int, int]]:
    """The pairs of world and tensor size that were measured with this peer, in order."""
    labels = [series["labels"] for series in result.series]
    cells = {(own.get("world_size"), own.get("tensor_size")) for own in labels if own.get("peer") == peer}
    if any(not isinstance(number, int) for cell in cells for number in cell):
        raise ResultError(f"{result.file}: has a series without world_size and tensor_size; run the benchmark again")
    return sorted(cells)


def measured(result: Result, table: Published, variant: str, quantity: Quantity) -> Curve:
    curve = []
    for world, size in cells_of(result, table.peer):
        labels = {"peer": table.peer, "world_size": world, "tensor_size": size, "variant": variant}
        values = result.values(quantity.unit, **labels, quantity=quantity.name)
        curve.append((world, quantity.scale * statistics.fmean(values)))
    return curve


def published(table: Published, variant: str, quantity: Quantity) -> Curve:
    if not quantity.column:
        return []
    column = quantity.column.format(table.column if variant == table.peer else variant)
    rows = load_reference(table.reference).rows
    return [(int(row["world_size"]), quantity.scale * float(row[column])) for row in rows]


def draw_curve(axes: Axes, curve: Curve, variant: str, own: bool) -> None:
    """Draws a curve. Equal points are all seen: the ring's are larger than the peer's, published ones than ours."""
    size = (6.5 if variant == RING else 3.5) + (0 if own else 2)
    axes.plot(
        *zip(*curve), color=COLOURS[variant], marker=MARKERS[variant], markersize=size,
        linewidth=1.3 if own else 0.9, linestyle="-" if own else (0, (4, 2)),
        markerfacecolor=COLOURS[variant] if own else "white", zorder=3 if own else 2,
    )  # fmt: skip


def draw_panel(axes: Axes, result: Result, table: Published, quantity: Quantity) -> None:
    for variant in (RING, table.peer):
        if not is_warm(result) and (reference := published(table, variant, quantity)):
            draw_curve(axes, reference, variant, own=False)
        if own := measured(result, table, variant, quantity):
            draw_curve(axes, own, variant, own=True)
    if quantity.name == "diff":
        axes.set_yscale("symlog", linthresh=SMALLEST_DIFF)
        axes.yaxis.set_major_locator(FixedLocator([0, 1e-16, 1e-14, 1e-12, 1e-10]))
        axes.yaxis.set_minor_locator(NullLocator())
    elif quantity.name == "maxrss":
        axes.axhline(0, linewidth=0)  # so that zero is on the axis
    else:
        axes.set_yscale("log")
        style.write_plain_numbers(axes.yaxis)
    axes.grid()


def mark_crowded_worlds(axes: Axes, cores: int) -> None:
    """Marks the part of the axis where ranks share cores."""
    low, high = axes.get_xlim()
    start = cores * 2**0.5
    if start < high:
        axes.axvspan(max(start, low), high, color="#EEEEEE", linewidth=0, zorder=0)
    axes.set_xlim(low, high)


def set_worlds(panels: list[Axes], sizes: dict[int, int]) -> None:
    """Sets the axis of world sizes for a column of panels; the last panel also shows the tensor sizes."""
    for axes in panels:
        style.log_axis(axes, sorted(sizes), lambda world: "")
        axes.set_xlim(min(sizes) / 1.3, max(sizes) * 1.3)
    panels[-1].xaxis.set_major_formatter(FuncFormatter(lambda world, _: f"{world:g}\n{sizes[round(world)]}"))
    panels[-1].set_xlabel("ranks, and elements of the tensor")


def draw(result: Result) -> Figure:
    quantities = quantities_of(result)
    figure, panels = style.panels(1.1 + 1.45 * len(quantities), len(quantities), len(TABLES), sharey="row")
    for column, table in enumerate(TABLES):
        rows = load_reference(table.reference).rows
        sizes = {int(row["world_size"]): int(row["tensor_size"]) for row in rows}
        sizes |= dict(cells_of(result, table.peer))
        for row, quantity in enumerate(quantities):
            draw_panel(panels[row, column], result, table, quantity)
            if column == 0:
                panels[row, column].set_ylabel(quantity.label)
        set_worlds(list(panels[:, column]), sizes)
        for axes in panels[:, column]:
            mark_crowded_worlds(axes, result.provenance["cores"])
        panels[0, column].set_title(f"ring and {title_of(table.peer, result)}", loc="left")
    add_legend_and_caption(figure, result)
    return figure


def add_legend_and_caption(figure: Figure, result: Result) -> None:
    variants = (RING, *(table.peer for table in TABLES))
    handles = [plt.Line2D([], [], color=COLOURS[each], marker=MARKERS[each], markersize=4.5) for each in variants]
    labels = [title_of(each, result) for each in variants]
    if not is_warm(result):
        handles.append(plt.Line2D([], [], color=style.GREY, marker="o", markerfacecolor="white", linestyle=(0, (4, 2))))
        labels.append("published")
    handles.append(plt.Rectangle((0, 0), 1, 1, color="#EEEEEE"))
    labels.append(f"more ranks than the {result.provenance['cores']} cores here")
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=7.5, columnspacing=1.2)
    style.add_caption(figure, caption_of(result), [result])


def caption_of(result: Result) -> str:
    repeats = result.parameters["repetitions"]
    if is_warm(result):
        return (
            f"float32; means of {repeats} calls, of the largest value of all ranks, after calls to warm up. The time "
            "is that of the call alone.\nallocated: tensors only, so not what the backend keeps for itself. Squared "
            "errors are against the mean in float64."
        )
    setup = load_reference(TABLES[0].reference).source[1].removeprefix("Setup: ")
    return (
        f"float32; means of {repeats} repeats (published: 10), of the largest value of all ranks: the first call of "
        "ranks that are started for it,\nwith the drawing of its input. Published ranks were spawned, each with a "
        "Python interpreter, which is in their time and\nmemory; ours are forked. Squared errors: rank 0's, against "
        f"the mean in float32. Published by Gloo on the CPU,\nwith {setup}."
    )


def load_ring(file: Path) -> Result:
    result = load(file, PROGRAM, PARAMETERS)
    if not any(cells_of(result, table.peer) for table in TABLES):
        peers = " or ".join(table.peer for table in TABLES)
        raise result.error(f"has no series beside {peers}")
    return result


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    for result in map(load_ring, files):
        yield name_of(PROGRAM, result), draw(result)


main = script.main(__name__, __doc__, figures)
