"""Draws the time of a training step with each way to average gradients, beside computing alone.

Reads result files of the benchmark step_time, one panel for each: a row for each workload, a column for each link. All
are of one implementation and preset.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import MaxNLocator

from figures.lib import script, style
from figures.lib.result_files import Result, ResultError, load_group

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

Times = dict[str, list[float]]  # milliseconds of each variant's step, for each repetition


def step_milliseconds(result: Result) -> Times:
    """The measured times; variants that were left out are missing."""
    measured = {series["labels"].get("variant") for series in result.series}
    times = {
        variant: [1e3 * value for value in result.values("s", variant=variant, part="step")]
        for variant in VARIANTS
        if variant in measured
    }
    if COMPUTE not in times:
        raise result.error(f"lacks the variant {COMPUTE!r}")
    if len({len(values) for values in times.values()}) > 1:
        raise ResultError(f"{result.file}: the variants differ in their number of steps")
    return times


def speedup(times: Times, variant: str, reference: str) -> float | None:
    """How many times as fast as the reference: the median of the ratios of all repetitions."""
    if reference not in times:
        return None
    return statistics.median(other / own for other, own in zip(times[reference], times[variant]))


def arrange(results: list[Result]) -> dict[tuple, dict[float, Result]]:
    """The results by workload and link, both in the order of the files."""
    rows: dict[tuple, dict[float, Result]] = {}
    for result in results:
        row = rows.setdefault(tuple(result.parameters[name] for name in WORKLOAD), {})
        other = row.setdefault(result.link, result)
        if other is not result:
            raise ResultError(f"{other.file} and {result.file} are of the same workload and link; give one of them")
    return rows


def workload_title(result: Result) -> str:
    values = result.parameters
    samples = f"{values['batch_size']} samples"
    if values["image_size"]:
        samples = f"{values['batch_size']} images of {values['image_size']}×{values['image_size']}"
    cap = f"buckets of {values['cap_bytes'] / 2**20:g} MiB"
    zeroed = ", gradients zeroed" if values["zero_gradients"] else ""
    return f"{values['model']}, {values['parameters'] / 1e6:.1f} M parameters, {samples} a rank, {cap}{zeroed}"


def draw_bar(axes: Axes, row: int, times: Times, variant: str) -> None:
    """Draws the median, split where computing alone ends, with its spread and the numbers."""
    median = statistics.median(times[variant])
    compute = min(median, statistics.median(times[COMPUTE]))
    bar = {"height": 0.64, "edgecolor": "white", "linewidth": 0.4}
    axes.barh(row, compute, color=COMPUTE_COLOUR, **bar)
    axes.barh(row, median - compute, left=compute, color=REST_COLOUR, **bar)
    low, high = np.percentile(times[variant], [10, 90])
    axes.plot([low, high], [row + 0.4] * 2, color="black", linewidth=0.9, marker="|", markersize=3.5)
    numbers = [f"{median:.0f}"]
    for reference in REFERENCES:
        ratio = speedup(times, variant, reference)
        numbers.append("" if ratio is None else f"{ratio:.2f}")
    for number, right, weight in zip(numbers, COLUMNS.values(), ("bold", "normal", "normal")):
        axes.text(right, row, number, transform=axes.get_yaxis_transform(), ha="right", va="center", fontweight=weight)


def draw_panel(axes: Axes, times: Times, longest: float) -> None:
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


def draw_row(figure: FigureBase, row: dict[str, Result], links: list[str]) -> list[Axes]:
    """Draws one workload, whose panels share an axis."""
    times = {link: step_milliseconds(result) for link, result in row.items()}
    longest = 1.02 * max(np.percentile(steps, 90) for panel in times.values() for steps in panel.values())
    panels = list(figure.subplots(1, len(links), squeeze=False)[0])
    for axes, link in zip(panels, links):
        if link not in row:
            axes.set_axis_off()
            continue
        draw_panel(axes, times[link], longest)
        axes.set_title(link, loc="left", fontsize=8, pad=11)
        if axes is not panels[0]:
            axes.set_yticklabels([])
    figure.suptitle(workload_title(next(iter(row.values()))), x=0.01, ha="left", fontsize=9, fontweight="bold")
    return panels


def draw(results: list[Result]) -> Figure:
    """A row of panels for each workload, a column for each link."""
    style.use_style()
    rows = arrange(results)
    links = list(dict.fromkeys(result.link for result in results))
    heights = [ROW_HEIGHT] * (len(rows) - 1) + [ROW_HEIGHT + LABEL_HEIGHT]
    size = (style.TEXT_WIDTH, TEXT_HEIGHT + sum(heights))
    figure = plt.figure(figsize=size, layout="constrained")
    for part, row in zip(np.ravel(figure.subfigures(len(rows), 1, height_ratios=heights)), rows.values()):
        panels = draw_row(part, row, links)
    for axes in panels:
        axes.set_xlabel("time of a step [ms]", loc="left")
    add_legend_and_caption(figure, results)
    return figure


def add_legend_and_caption(figure: Figure, results: list[Result]) -> None:
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in (COMPUTE_COLOUR, REST_COLOUR)]
    names = ("as long as computing alone", "what averaging the gradients adds")
    look = {"ncols": 2, "fontsize": 7.5, "columnspacing": 1, "handlelength": 1}
    figure.legend(handles, names, loc="outside upper right", **look)
    ranks, steps = results[0].provenance["world_size"], results[0].parameters["steps"]
    alike = all(result.parameters["first_bucket_bytes"] == result.parameters["cap_bytes"] for result in results)
    buckets = "has the same buckets as bucketed" if alike else "begins with a bucket of another size"
    style.add_caption(
        figure,
        f"{ranks} ranks; medians of {steps} repetitions, slowest rank. Whiskers: 10th to 90th percentile. "
        f"× naive, × Reducer: so many times as fast,\nthe median of the repetitions' ratios. Blue ends where "
        f"{COMPUTE!r} does, or earlier. The Reducer {buckets}.",
        results,
    )


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    results = load_group(files, PROGRAM, shared=("steps",), own=(*WORKLOAD, "rate_gbit", "latency_us"))
    yield script.name_of(PROGRAM, results[0]), draw(results)


main = script.main(__name__, __doc__, figures)
