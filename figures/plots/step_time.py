"""Draws the time of a training step with each way to average gradients, beside computing alone.

Reads result files of the benchmark step_time, one panel for each: a row for each workload, a column for each link. All
are of one implementation and preset.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import MaxNLocator

from figures.lib import script, style
from figures.lib.result_files import link, load, pick

PROGRAM = "step_time"
# Equal in a row of panels; the panels differ in the link.
WORKLOAD = ("model", "parameters", "batch_size", "image_size", "cap_bytes", "zero_gradients")
COMPUTE = "compute only"
REFERENCES = ("naive", "Reducer")  # the speedup over each of these is printed
VARIANTS = (COMPUTE, "naive", "flat", "overlapped", "bucketed", "Reducer", "Reducer as_view")
COMPUTE_COLOUR, REST_COLOUR = style.BLUE, style.ORANGE
BAR_SHARE = 0.52  # of a panel's width; numbers stand to the right of the bars
COLUMNS = {"ms": 0.66, "× naive": 0.81, "× Reducer": 1.0}  # their right ends, as shares of the width
TEXT_HEIGHT, ROW_HEIGHT, LABEL_HEIGHT = 0.75, 1.8, 0.16  # inches; text: legend and caption


def milliseconds(result: pd.DataFrame) -> pd.DataFrame:
    """A row for each repetition, a column for each variant; those that were left out are missing."""
    return 1e3 * pick(result, part="step").pivot(index="call", columns="variant", values="value")


def speedup(times: pd.DataFrame, variant: str, reference: str) -> float | None:
    """How many times as fast as the reference: the median of the ratios of all repetitions."""
    return (times[reference] / times[variant]).median() if reference in times else None


def arrange(results: list[pd.DataFrame]) -> list[dict[str, pd.DataFrame]]:
    """Rows of results of one workload, by link, both in the order of the files."""
    rows: dict[tuple, dict[str, pd.DataFrame]] = {}
    for result in results:
        workload = tuple(result.attrs["parameters"][name] for name in WORKLOAD)
        rows.setdefault(workload, {})[link(result)] = result
    return list(rows.values())


def workload_title(result: pd.DataFrame) -> str:
    values = result.attrs["parameters"]
    samples = f"{values['batch_size']} samples"
    if values["image_size"]:
        samples = f"{values['batch_size']} images of {values['image_size']}×{values['image_size']}"
    cap = f"buckets of {values['cap_bytes'] / 2**20:g} MiB"
    zeroed = ", gradients zeroed" if values["zero_gradients"] else ""
    return f"{values['model']}, {values['parameters'] / 1e6:.1f} M parameters, {samples} a rank, {cap}{zeroed}"


def draw_bar(axes: Axes, row: int, times: pd.DataFrame, variant: str) -> None:
    """Draws the median, split where computing alone ends, with its spread and the numbers."""
    median = times[variant].median()
    compute = min(median, times[COMPUTE].median())
    bar = {"height": 0.64, "edgecolor": "white", "linewidth": 0.4}
    axes.barh(row, compute, color=COMPUTE_COLOUR, **bar)
    axes.barh(row, median - compute, left=compute, color=REST_COLOUR, **bar)
    low, high = times[variant].quantile([0.1, 0.9])
    axes.plot([low, high], [row + 0.4] * 2, color="black", linewidth=0.9, marker="|", markersize=3.5)
    ratios = (speedup(times, variant, reference) for reference in REFERENCES)
    numbers = [f"{median:.0f}", *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)]
    for number, right, weight in zip(numbers, COLUMNS.values(), ("bold", "normal", "normal")):
        axes.text(right, row, number, transform=axes.get_yaxis_transform(), ha="right", va="center", fontweight=weight)


def draw_panel(axes: Axes, times: pd.DataFrame, longest: float) -> None:
    for row, variant in enumerate(VARIANTS):
        if variant in times:
            draw_bar(axes, row, times, variant)
        else:
            axes.text(0.01 * longest, row, "left out: unfinished", va="center", color=style.GREY, fontstyle="italic")
    axes.set_yticks(range(len(VARIANTS)), VARIANTS)
    axes.set_ylim(len(VARIANTS) - 0.4, -0.6)
    axes.set_xlim(0, longest / BAR_SHARE)
    axes.set_xticks([tick for tick in MaxNLocator(4).tick_values(0, longest) if tick <= longest])
    axes.spines["bottom"].set_bounds(0, longest)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    for header, right in COLUMNS.items():
        axes.text(right, 1.0, header, transform=axes.transAxes, ha="right", va="bottom", fontsize=6, color="#666666")


def draw_row(figure: FigureBase, row: dict[str, pd.DataFrame], links: list[str]) -> list[Axes]:
    """Draws one workload, whose panels share an axis."""
    times = {name: milliseconds(result) for name, result in row.items()}
    longest = 1.02 * max(panel.quantile(0.9).max() for panel in times.values())
    panels = list(figure.subplots(1, len(links), squeeze=False)[0])
    for axes, name in zip(panels, links):
        if name not in row:
            axes.set_axis_off()
            continue
        draw_panel(axes, times[name], longest)
        axes.set_title(name, loc="left", fontsize=8, pad=11)
        if axes is not panels[0]:
            axes.set_yticklabels([])
    figure.suptitle(workload_title(next(iter(row.values()))), x=0.01, ha="left", fontsize=9, fontweight="bold")
    return panels


def draw(results: list[pd.DataFrame]) -> Figure:
    """A row of panels for each workload, a column for each link."""
    style.use_style()
    rows, links = arrange(results), list(dict.fromkeys(map(link, results)))
    heights = [ROW_HEIGHT] * (len(rows) - 1) + [ROW_HEIGHT + LABEL_HEIGHT]
    figure = plt.figure(figsize=(style.TEXT_WIDTH, TEXT_HEIGHT + sum(heights)), layout="constrained")
    for part, row in zip(np.ravel(figure.subfigures(len(rows), 1, height_ratios=heights)), rows):
        panels = draw_row(part, row, links)
    for axes in panels:
        axes.set_xlabel("time of a step [ms]", loc="left")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in (COMPUTE_COLOUR, REST_COLOUR)]
    names = ("as long as computing alone", "what averaging the gradients adds")
    look = {"ncols": 2, "fontsize": 7.5, "columnspacing": 1, "handlelength": 1}
    figure.legend(handles, names, loc="outside upper right", **look)
    values = [result.attrs["parameters"] for result in results]
    alike = all(one["first_bucket_bytes"] == one["cap_bytes"] for one in values)
    buckets = "has the same buckets as bucketed" if alike else "begins with a bucket of another size"
    style.add_caption(
        figure,
        f"{results[0].attrs['provenance']['world_size']} ranks; medians of {values[0]['steps']} repetitions, slowest "
        "rank. Whiskers: 10th to 90th percentile. × naive, × Reducer: so many times as fast,\nthe median of the "
        f"repetitions' ratios. Blue ends where {COMPUTE!r} does, or earlier. The Reducer {buckets}.",
        results,
    )
    return figure


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    results = [load(file, PROGRAM) for file in files]
    yield script.name_of(PROGRAM, results[0]), draw(results)


main = script.main(__name__, __doc__, figures)
