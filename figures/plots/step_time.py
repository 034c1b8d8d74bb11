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
from figures.lib.result_files import link, load, name_of, pick

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
    values, side = result.attrs["parameters"], result.attrs["parameters"]["image_size"]
    samples = f"{values['batch_size']} " + (f"images of {side}×{side}" if side else "samples")
    cap = f"buckets of {values['cap_bytes'] / 2**20:g} MiB" + ", gradients zeroed" * bool(values["zero_gradients"])
    return f"{values['model']}, {values['parameters'] / 1e6:.1f} M parameters, {samples} a rank, {cap}"


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
    axes.set_yticks(range(len(VARIANTS)), VARIANTS if axes.get_subplotspec().is_first_col() else [""] * len(VARIANTS))
    axes.set_ylim(len(VARIANTS) - 0.4, -0.6)
    axes.set_xlim(0, longest / BAR_SHARE)
    axes.set_xticks([tick for tick in MaxNLocator(4).tick_values(0, longest) if tick <= longest])
    axes.spines["bottom"].set_bounds(0, longest)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    for header, right in COLUMNS.items():
        axes.text(right, 1.0, header, transform=axes.transAxes, ha="right", va="bottom", fontsize=6, color="#666666")


def draw_row(part: FigureBase, row: dict[str, pd.DataFrame], links: list[str], last: bool) -> None:
    """Draws one workload, whose panels share an axis."""
    times = {name: milliseconds(result) for name, result in row.items()}
    longest = 1.02 * max(panel.quantile(0.9).max() for panel in times.values())
    for axes, name in zip(part.subplots(1, len(links), squeeze=False)[0], links):
        if name not in row:
            axes.set_axis_off()
            continue
        draw_panel(axes, times[name], longest)
        axes.set_title(name, loc="left", fontsize=8, pad=11)
        axes.set_xlabel("time of a step [ms]" if last else "", loc="left")
    part.suptitle(workload_title(next(iter(row.values()))), x=0.01, ha="left", fontsize=9, fontweight="bold")


def draw(results: list[pd.DataFrame]) -> Figure:
    """A row of panels for each workload, a column for each link."""
    style.use_style()
    rows, links = arrange(results), list(dict.fromkeys(map(link, results)))
    heights = [ROW_HEIGHT] * (len(rows) - 1) + [ROW_HEIGHT + LABEL_HEIGHT]
    figure = plt.figure(figsize=(style.TEXT_WIDTH, TEXT_HEIGHT + sum(heights)), layout="constrained")
    for part, row in zip(np.ravel(figure.subfigures(len(rows), 1, height_ratios=heights)), rows):
        draw_row(part, row, links, last=row is rows[-1])
    entries = {"as long as computing alone": COMPUTE_COLOUR, "what averaging the gradients adds": REST_COLOUR}
    boxes = {name: {"facecolor": colour} for name, colour in entries.items()}
    style.legend(figure, boxes, "outside upper right", fontsize=7.5, columnspacing=1, handlelength=1)
    values = [result.attrs["parameters"] for result in results]
    alike = all(one["first_bucket_bytes"] == one["cap_bytes"] for one in values)
    text = (
        f"{results[0].attrs['provenance']['world_size']} ranks; medians of {values[0]['steps']} repetitions, slowest "
        "rank; whiskers: 10th to 90th percentile. × naive, × Reducer: so many times as fast, the median of the "
        f"repetitions' ratios. The Reducer's first bucket has {'the same' if alike else 'another'} size."
    )
    return style.add_caption(figure, text, results)


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    results = [load(file, PROGRAM) for file in files]
    yield name_of(PROGRAM, results[0]), draw(results)


main = script.main(__name__, __doc__, figures)
