"""Draws and sets the ring beside the butterfly and the backend's own all-reduce, over world size.

Reads result files of the benchmark ring_all_reduce; shows means over the repetitions beside the published numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from figures.lib import script, style
from figures.lib.all_reduces import LOOKS, RING, title_of
from figures.lib.result_files import load, load_reference, name_of, pick, setup_of
from figures.lib.tables import Table, side_by_side

PROGRAM = "ring_all_reduce"
REFERENCES = {"butterfly": "ring_all_reduce.butterfly", "all_reduce": "ring_all_reduce.torch"}  # by the baseline
CELL = ["world_size", "tensor_size"]
# Of a quantity: the column of a variant in the published tables, or ours alone; the axis, and the factor of its unit.
QUANTITIES = {
    "time": ("{}_max_time_consumed", "time [ms]", 1e3),
    "maxrss": ("{}_max_memory", "ru_maxrss [MiB]", 2**-10),
    "diff": ("diff_{}", "sum of squared\nerrors", 1),
}
SMALLEST_DIFF = 1e-17  # smaller values are drawn at zero


def column_of(quantity: str, variant: str) -> str:
    return QUANTITIES[quantity][0].format({"all_reduce": "torch"}.get(variant, variant))


def means(result: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """The means over repetitions beside this baseline by CELL, with the columns of its published table."""
    of_baseline = pick(result, baseline=baseline)
    if of_baseline.empty:
        return pd.DataFrame()
    wide = of_baseline.groupby([*CELL, "quantity", "variant"])["value"].mean().unstack(["quantity", "variant"])
    wide.columns = [column_of(*names) for names in wide.columns]
    return wide


def draw_curve(axes: Axes, curve: pd.Series, variant: str, own: bool) -> None:
    """Equal points are all seen: the ring's are larger than the baseline's, published ones than ours."""
    size = (6.5 if variant == RING else 3.5) + (0 if own else 2)
    axes.plot(
        curve.index.get_level_values("world_size"), curve, **LOOKS[variant], markersize=size,
        linewidth=1.3 if own else 0.9, linestyle="-" if own else (0, (4, 2)), zorder=3 if own else 2,
        markerfacecolor=LOOKS[variant]["color"] if own else "white",
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


def draw_column(column: list[Axes], result: pd.DataFrame, baseline: str) -> None:
    own, published = means(result, baseline), load_reference(REFERENCES[baseline]).set_index(CELL)
    sizes = dict([*published.index, *own.index])
    for axes, (quantity, (_, label, scale)) in zip(column, QUANTITIES.items()):
        for variant in (RING, baseline):
            name = column_of(quantity, variant)
            draw_curve(axes, scale * published[name], variant, own=False)
            if len(own):
                draw_curve(axes, scale * own[name], variant, own=True)
        finish_panel(axes, quantity, sizes, result.attrs["provenance"]["cores"])
        axes.set_ylabel(label if axes.get_subplotspec().is_first_col() else "")
    column[-1].xaxis.set_major_formatter(FuncFormatter(lambda world, _: f"{world:g}\n{sizes[round(world)]}"))
    column[-1].set_xlabel("ranks, and elements of the tensor")
    column[0].set_title(f"ring and {title_of(baseline, result)}", loc="left")


def draw(result: pd.DataFrame) -> Figure:
    values, provenance = result.attrs["parameters"], result.attrs["provenance"]
    figure, panels = style.panels(1.1 + 1.45 * len(QUANTITIES), len(QUANTITIES), len(REFERENCES), sharey="row")
    for column, baseline in zip(panels.T, REFERENCES):
        draw_column(list(column), result, baseline)
    entries = {title_of(each, result): {**LOOKS[each], "markersize": 4.5} for each in (RING, *REFERENCES)}
    dashed = {"color": style.GREY, "marker": "o", "markerfacecolor": "white", "linestyle": (0, (4, 2))}
    entries["published"] = dashed
    entries[f"more ranks than the {provenance['cores']} cores here"] = {"facecolor": "#EEEEEE"}
    style.legend(figure, entries, "outside upper center", fontsize=7.5, columnspacing=1.2)
    text = (
        f"float32; means of {values['repetitions']} calls, of the largest value of all ranks. "
        "Calls are the first of new processes, which draw the input; errors: rank 0's, against the mean in "
        "float32. Published processes start a Python interpreter each, ours are forked. Published: 10 repeats, Gloo on "
        f"the CPU, {setup_of(load_reference(REFERENCES['butterfly']))}."
    )
    return style.add_caption(figure, text, [result])


def columns_of(baseline: str) -> list[str]:
    return [column_of(quantity, variant) for quantity in ("time", "maxrss", "diff") for variant in (RING, baseline)]


def seconds_text(seconds: float) -> str:
    """Three decimals, as published, or enough to show two digits: calls may take less than a millisecond here."""
    digits = 1 - math.floor(math.log10(seconds)) if seconds > 0 else 0
    return f"{seconds:.{max(3, digits)}f}"


def texts_of(numbers: pd.DataFrame) -> list[list[str]]:
    """The cells of the published columns, by CELL."""

    def text(column: str, value: float) -> str:
        if "time" in column:
            return seconds_text(value)
        return f"{value:.1f}" if "memory" in column else f"{value:.4e}" if value else "0.0000"

    return [
        [*map(str, cell), *(text(column, value) for column, value in row.items())] for cell, row in numbers.iterrows()
    ]


def make_table(result: pd.DataFrame, baseline: str, numbers: pd.DataFrame) -> Table:
    name, provenance = title_of(baseline, result), result.attrs["provenance"]
    whose = "" if baseline == "butterfly" else f"torch: {name}. "
    return Table(
        title=f"Ring all-reduce beside {'the given butterfly' if baseline == 'butterfly' else name}: first calls",
        columns=[*CELL, *numbers.columns],
        rows=texts_of(numbers),
        results=[result],
        note=f"Means of {result.attrs['parameters']['repetitions']} repeats of the largest value of all ranks: seconds "
        "of the first call of new processes, ru_maxrss in KiB, squared errors of rank 0 against the mean in float32. "
        f"{whose}The machine has {provenance['cores']} cores.",
    )


def make(files: list[Path]) -> Iterator[tuple[str, Figure | Table]]:
    for result in (load(file, PROGRAM) for file in files):
        yield name_of(PROGRAM, result), draw(result)
        for baseline, reference in REFERENCES.items():
            numbers = means(result, baseline)
            if len(numbers):
                numbers = numbers[columns_of(baseline)]
                made = make_table(result, baseline, numbers)
                yield name_of(reference, result), made
                yield from side_by_side(reference, made, reference, CELL, numbers.reset_index())


main = script.main(__name__, __doc__, make)
