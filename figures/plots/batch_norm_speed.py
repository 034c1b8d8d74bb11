"""Draws time and memory of batch normalization of a large input: stage 04 on one rank beside libtorch's own.

Reads a result file of the benchmark batch_norm_speed.
"""

from __future__ import annotations

import statistics
import sys

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from figures.lib import script, style
from figures.lib.result_files import Result, ResultError

PROGRAM = "batch_norm_speed"
PARAMETERS = ("batch_size", "channels", "image_size", "dtype", "threads", "repetitions")
LAYOUTS = ("contiguous", "channels_last")
TIMED_PARTS = ("forward", "backward")
PEAK_PARTS = ("forward", "forward + backward")
STAGE, LOCAL = "stage", "local"
VARIANTS = {STAGE: style.BLUE, LOCAL: style.GREY}
NAMES = {STAGE: "stage 04", LOCAL: "local at::native_batch_norm"}
BAR_HEIGHT = 0.36
AXIS_SHARE = 0.78  # of a panel's width; ratios stand to the right of the bars
HEIGHT, LEGEND_HEIGHT, CAPTION_HEIGHT = 2.75, 0.28, 0.45  # inches


def milliseconds(result: Result, layout: str, variant: str, part: str) -> list[float]:
    values = result.values("s", layout=layout, variant=variant, part=part, quantity="time")
    return [1e3 * value for value in values]


def mebibytes(result: Result, layout: str, variant: str, part: str) -> float:
    values = result.values("bytes", layout=layout, variant=variant, part=part, quantity="peak memory")
    return statistics.median(values) / 2**20


def speedup(stage: list[float], local: list[float]) -> float:
    """How many times as fast: the median of the ratios of all repetitions."""
    return statistics.median(other / own for own, other in zip(stage, local))


def row_of(index: int, variant: str) -> float:
    return index + (-0.5 if variant == STAGE else 0.5) * BAR_HEIGHT


def draw_bar(axes: Axes, index: int, variant: str, length: float) -> None:
    row = row_of(index, variant)
    axes.barh(row, length, BAR_HEIGHT, color=VARIANTS[variant], edgecolor="white", linewidth=0.4)
    axes.text(0, row, f" {length:.1f}", va="center", fontsize=6.5, color="white" if variant == STAGE else "black")


def add_ratio(axes: Axes, index: int, ratio: float) -> None:
    place = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center"}
    axes.text(1.0, index, f"{ratio:.2f}×", fontweight="bold", **place)


def draw_times(axes: Axes, result: Result, rows: list[tuple[str, str]]) -> float:
    """Draws medians and spread; returns the end of the longest."""
    longest = 0.0
    for index, (layout, part) in enumerate(rows):
        times = {variant: milliseconds(result, layout, variant, part) for variant in VARIANTS}
        if len({len(values) for values in times.values()}) > 1:
            raise ResultError(f"{result.file}: {part} of {layout} differs in its number of repetitions; run it again")
        for variant, values in times.items():
            median = statistics.median(values)
            low, high = np.percentile(values, [10, 90])
            draw_bar(axes, index, variant, median)
            axes.plot([low, high], [row_of(index, variant)] * 2, color="black", linewidth=0.9)
            longest = max(longest, median, high)
        add_ratio(axes, index, speedup(times[STAGE], times[LOCAL]))
    return longest


def draw_peaks(axes: Axes, result: Result, rows: list[tuple[str, str]]) -> float:
    longest = 0.0
    for index, (layout, part) in enumerate(rows):
        peaks = {variant: mebibytes(result, layout, variant, part) for variant in VARIANTS}
        for variant, peak in peaks.items():
            draw_bar(axes, index, variant, peak)
            longest = max(longest, peak)
        add_ratio(axes, index, peaks[STAGE] / peaks[LOCAL])
    return longest


def finish_panel(axes: Axes, rows: list[tuple[str, str]], longest: float, header: str) -> None:
    axes.text(1.0, 1.0, header, transform=axes.transAxes, ha="right", va="bottom", fontsize=6.5, color="#666666")
    axes.set_yticks(range(len(rows)), [f"{layout}\n{part}" for layout, part in rows])
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.set_xlim(0, longest / AXIS_SHARE)
    axes.spines["bottom"].set_bounds(0, longest)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= longest])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def rows_of(parts: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(layout, part) for layout in LAYOUTS for part in parts]


def draw(result: Result) -> Figure:
    """Times on the left, memory on the right; pairs of bars, with their ratio."""
    style.use_style()
    height = LEGEND_HEIGHT + HEIGHT + CAPTION_HEIGHT
    figure, (times, peaks) = plt.subplots(1, 2, figsize=(style.TEXT_WIDTH, height), layout="constrained")
    rect = (0, CAPTION_HEIGHT / height, 1, 1 - (LEGEND_HEIGHT + CAPTION_HEIGHT) / height)
    figure.get_layout_engine().set(rect=rect)
    finish_panel(times, rows_of(TIMED_PARTS), draw_times(times, result, rows_of(TIMED_PARTS)), "times as fast")
    finish_panel(peaks, rows_of(PEAK_PARTS), draw_peaks(peaks, result, rows_of(PEAK_PARTS)), "of local")
    times.set_xlabel("time [ms]", loc="left")
    peaks.set_xlabel("peak memory [MiB]", loc="left")
    handles = [Patch(color=colour, label=NAMES[variant]) for variant, colour in VARIANTS.items()]
    figure.legend(handles=handles, loc="upper right", ncols=2, fontsize=7.5, handlelength=1)
    add_texts(figure, result)
    return figure


def add_texts(figure: Figure, result: Result) -> None:
    values, height = result.parameters, figure.get_figheight()
    shape = f"({values['batch_size']}, {values['channels']}, {values['image_size']}, {values['image_size']})"
    title = f"input of {shape}, {values['dtype']}"
    figure.text(0.01, 1 - 0.08 / height, title, va="top", fontsize=9, fontweight="bold")
    threads = "" if result.provenance["device"] == "cuda" else f", {values['threads']} threads a rank"
    ranks = result.provenance["world_size"]
    style.add_caption(
        figure,
        f"{ranks} rank{'s' if ranks > 1 else ''}{threads}. Medians of {values['repetitions']} interleaved repetitions; "
        "lines: 10th to 90th percentile;\nratios of times: the median of the repetitions' ratios. Peak "
        "memory: all tensors at once, with the input and the upstream gradient.",
        [result],
    )


def main(arguments: list[str] | None = None) -> int:
    return script.run(__doc__.splitlines()[0], script.one_each(PROGRAM, PARAMETERS, draw), arguments)


if __name__ == "__main__":
    sys.exit(main())
