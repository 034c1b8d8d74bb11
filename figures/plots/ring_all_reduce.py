"""Draws the ring beside the butterfly and the backend's own all-reduce, over world size.

Reads result files of the benchmark ring_all_reduce, a figure for each. Draws the mean over the repetitions, as
published. What the published procedure measured stands beside the published numbers; warm calls stand alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from figures.lib import script, style
from figures.lib.all_reduces import COLOURS, MARKERS, RING, title_of
from figures.lib.reference_data import load_reference, setup_of
from figures.lib.result_files import load, pick

PROGRAM = "ring_all_reduce"
REFERENCES = {"butterfly": "ring_all_reduce.butterfly", "all_reduce": "ring_all_reduce.torch"}  # by the peer
CELL = ["world_size", "tensor_size"]
# Of a quantity: the column of a variant in the published tables, or ours alone; the axis, and the factor of its unit.
QUANTITIES = {
    "time": ("{}_max_time_consumed", "time [ms]", 1e3),
    "maxrss": ("{}_max_memory", "ru_maxrss [MiB]", 2**-10),
    "allocated": ("allocated_{}", "allocated beyond\nthe tensor [KiB]", 2**-10),
    "diff": ("diff_{}", "sum of squared\nerrors", 1),
}
SMALLEST_DIFF = 1e-17  # smaller values are drawn at zero


def is_warm(result: pd.DataFrame) -> bool:
    return result.attrs["parameters"]["procedure"] == "warm"


def name_of(program: str, result: pd.DataFrame) -> str:
    """The figure's or table's name; that of warm calls has a part of its own."""
    stem, dot, table = program.partition(".")
    return script.name_of(f"{stem}.warm{dot}{table}" if is_warm(result) else program, result)


def column_of(quantity: str, variant: str) -> str:
    return QUANTITIES[quantity][0].format({"all_reduce": "torch"}.get(variant, variant))


def means(result: pd.DataFrame, peer: str) -> pd.DataFrame:
    """The means over repetitions beside this peer by CELL, with the columns of its published table."""
    of_peer = pick(result, peer=peer)
    if of_peer.empty:
        return pd.DataFrame()
    wide = of_peer.groupby([*CELL, "quantity", "variant"])["value"].mean().unstack(["quantity", "variant"])
    wide.columns = [column_of(*names) for names in wide.columns]
    return wide


def draw_curve(axes: Axes, curve: pd.Series, variant: str, own: bool) -> None:
    """Draws a curve. Equal points are all seen: the ring's are larger than the peer's, published ones than ours."""
    size = (6.5 if variant == RING else 3.5) + (0 if own else 2)
    axes.plot(
        curve.index.get_level_values("world_size"), curve, color=COLOURS[variant], marker=MARKERS[variant],
        markersize=size, linewidth=1.3 if own else 0.9, linestyle="-" if own else (0, (4, 2)),
        markerfacecolor=COLOURS[variant] if own else "white", zorder=3 if own else 2,
    )  # fmt: skip


def finish_panel(axes: Axes, quantity: str, sizes: dict[int, int], cores: int) -> None:
    """Sets both axes, and marks the part where ranks share cores."""
    if quantity == "diff":
        axes.set_yscale("symlog", linthresh=SMALLEST_DIFF)
        axes.yaxis.set_major_locator(FixedLocator([0, 1e-16, 1e-14, 1e-12, 1e-10]))
        axes.yaxis.set_minor_locator(NullLocator())
    elif quantity == "maxrss":
        axes.axhline(0, linewidth=0)  # so that zero is on the axis
    else:
        axes.set_yscale("log")
        style.write_plain_numbers(axes.yaxis)
    axes.grid()
    style.log_axis(axes, sorted(sizes), lambda world: "")
    low, high = min(sizes) / 1.3, max(sizes) * 1.3
    if cores * 2**0.5 < high:
        axes.axvspan(max(cores * 2**0.5, low), high, color="#EEEEEE", linewidth=0, zorder=0)
    axes.set_xlim(low, high)


def draw_column(column: list[Axes], result: pd.DataFrame, peer: str, quantities: list[str]) -> None:
    own, published = means(result, peer), load_reference(REFERENCES[peer]).set_index(CELL)
    sizes = dict([*published.index, *own.index])
    for axes, quantity in zip(column, quantities):
        _, label, scale = QUANTITIES[quantity]
        for variant in (RING, peer):
            name = column_of(quantity, variant)
            if not is_warm(result):
                draw_curve(axes, scale * published[name], variant, own=False)
            if len(own):
                draw_curve(axes, scale * own[name], variant, own=True)
        finish_panel(axes, quantity, sizes, result.attrs["provenance"]["cores"])
        axes.set_ylabel(label if axes.get_subplotspec().is_first_col() else "")
    column[-1].xaxis.set_major_formatter(FuncFormatter(lambda world, _: f"{world:g}\n{sizes[round(world)]}"))
    column[-1].set_xlabel("ranks, and elements of the tensor")
    column[0].set_title(f"ring and {title_of(peer, result)}", loc="left")


def draw(result: pd.DataFrame) -> Figure:
    quantities = [quantity for quantity in QUANTITIES if quantity != "allocated" or is_warm(result)]
    figure, panels = style.panels(1.1 + 1.45 * len(quantities), len(quantities), len(REFERENCES), sharey="row")
    for column, peer in zip(panels.T, REFERENCES):
        draw_column(list(column), result, peer, quantities)
    variants = (RING, *REFERENCES)
    handles = [plt.Line2D([], [], color=COLOURS[each], marker=MARKERS[each], markersize=4.5) for each in variants]
    labels = [title_of(each, result) for each in variants]
    if not is_warm(result):
        handles.append(plt.Line2D([], [], color=style.GREY, marker="o", markerfacecolor="white", linestyle=(0, (4, 2))))
        labels.append("published")
    handles.append(plt.Rectangle((0, 0), 1, 1, color="#EEEEEE"))
    labels.append(f"more ranks than the {result.attrs['provenance']['cores']} cores here")
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=7.5, columnspacing=1.2)
    style.add_caption(figure, caption_of(result), [result])
    return figure


def caption_of(result: pd.DataFrame) -> str:
    text = f"float32; means of {result.attrs['parameters']['repetitions']} calls, of the largest value of all ranks. "
    if is_warm(result):
        return text + (
            "Warm calls: the time of the call alone; tensors that were allocated, not what the backend keeps for "
            "itself; squared errors against the mean in float64."
        )
    return text + (
        "The first call of ranks that are started for it, with the drawing of its input; squared errors: rank 0's, "
        "against the mean in float32. Published ranks were spawned, each with a Python interpreter, which is in their "
        "time and memory; ours are forked. Published: 10 repeats, Gloo on the CPU, "
        f"{setup_of(load_reference(REFERENCES['butterfly']))}."
    )


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    for result in (load(file, PROGRAM) for file in files):
        yield name_of(PROGRAM, result), draw(result)


main = script.main(__name__, __doc__, figures)
