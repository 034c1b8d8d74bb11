"""Draws time and memory of batch normalization of a large input, beside the limit that memory sets.

Reads a result file of the benchmark batch_norm_speed: stage 04 on one rank, a fused form (on the CPU) and libtorch's
own.
"""

from __future__ import annotations

import statistics
import sys

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from figures.lib import script, style
from figures.lib.result_files import Result, ResultError

PROGRAM = "batch_norm_speed"
PARAMETERS = ("batch_size", "channels", "image_size", "dtype", "threads", "repetitions")
LAYOUTS = ("contiguous", "channels_last")
TIMED_PARTS = ("forward", "backward")
PEAK_PARTS = ("forward", "forward + backward")
LIMIT = "limit"
VARIANTS = {"stage": style.BLUE, "fused": style.GREEN, "local": style.GREY}
NAMES = {"stage": "stage 04", "fused": "four fused passes", "local": "local at::native_batch_norm"}
BARS_HEIGHT = 0.8  # of all variants of a row
AXIS_SHARE = 0.78  # of a panel's width; ratios stand to the right of the bars
HEIGHT = 4.0  # inches


def milliseconds(result: Result, layout: str, variant: str, part: str) -> list[float]:
    values = result.values("s", layout=layout, variant=variant, part=part, quantity="time")
    return [1e3 * value for value in values]


def mebibytes(result: Result, layout: str, variant: str, part: str) -> float:
    values = result.values("bytes", layout=layout, variant=variant, part=part, quantity="peak memory")
    return statistics.median(values) / 2**20


def share_of_limit(times: list[float], limits: list[float]) -> float:
    """The median of the ratios of all repetitions."""
    return statistics.median(limit / own for own, limit in zip(times, limits))


def variants_of(result: Result) -> list[str]:
    measured = {series["labels"]["variant"] for series in result.series}
    return [variant for variant in VARIANTS if variant in measured]


def row_of(index: int, variant: str, variants: list[str]) -> float:
    return index + (variants.index(variant) - (len(variants) - 1) / 2) * BARS_HEIGHT / len(variants)


def draw_bar(axes: Axes, row: float, height: float, variant: str, length: float) -> None:
    axes.barh(row, length, height, color=VARIANTS[variant], edgecolor="white", linewidth=0.4)
    axes.text(0, row, f" {length:.1f}", va="center", fontsize=6, color="black" if variant == "local" else "white")


def add_note(axes: Axes, row: float, text: str) -> None:
    place = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center"}
    axes.text(1.0, row, text, fontsize=6.5, fontweight="bold", **place)


def draw_times(axes: Axes, result: Result, rows: list[tuple[str, str]]) -> float:
    """Draws medians, spread and limit, with the part of the limit's speed; returns the end of the longest."""
    longest = 0.0
    variants = variants_of(result)
    for index, (layout, part) in enumerate(rows):
        times = {variant: milliseconds(result, layout, variant, part) for variant in [*variants, LIMIT]}
        if len({len(values) for values in times.values()}) > 1:
            raise ResultError(f"{result.file}: {part} of {layout} differs in its number of repetitions; run it again")
        limits = times.pop(LIMIT)
        limit = statistics.median(limits)
        axes.plot([limit] * 2, [index - BARS_HEIGHT / 2, index + BARS_HEIGHT / 2], color="black", linewidth=1.2)
        for variant, values in times.items():
            row = row_of(index, variant, variants)
            median = statistics.median(values)
            low, high = np.percentile(values, [10, 90])
            draw_bar(axes, row, BARS_HEIGHT / len(variants), variant, median)
            axes.plot([low, high], [row] * 2, color="black", linewidth=0.9)
            longest = max(longest, median, high)
            add_note(axes, row, f"{100 * share_of_limit(values, limits):.0f} %")
    return longest


def draw_peaks(axes: Axes, result: Result, rows: list[tuple[str, str]]) -> float:
    longest = 0.0
    variants = variants_of(result)
    for index, (layout, part) in enumerate(rows):
        peaks = {variant: mebibytes(result, layout, variant, part) for variant in variants}
        for variant, peak in peaks.items():
            row = row_of(index, variant, variants)
            draw_bar(axes, row, BARS_HEIGHT / len(variants), variant, peak)
            longest = max(longest, peak)
            add_note(axes, row, f"{peak / peaks['local']:.2f}×")
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
    """Times on the left, memory on the right; a bar for each variant, with its ratio."""
    style.use_style()
    figure, (times, peaks) = plt.subplots(1, 2, figsize=(style.TEXT_WIDTH, HEIGHT), layout="constrained")
    finish_panel(times, rows_of(TIMED_PARTS), draw_times(times, result, rows_of(TIMED_PARTS)), "of the limit")
    finish_panel(peaks, rows_of(PEAK_PARTS), draw_peaks(peaks, result, rows_of(PEAK_PARTS)), "of local")
    times.set_xlabel("time [ms]", loc="left")
    peaks.set_xlabel("peak memory [MiB]", loc="left")
    handles: list[Artist] = [Patch(color=VARIANTS[name], label=NAMES[name]) for name in variants_of(result)]
    handles.append(Line2D([], [], color="black", linewidth=1.2, label="memory limit"))
    values = result.parameters
    shape = f"({values['batch_size']}, {values['channels']}, {values['image_size']}, {values['image_size']})"
    figure.legend(
        handles=handles, loc="outside upper left", ncols=4, fontsize=7, handlelength=1, alignment="left",
        title=f"input of {shape}, {values['dtype']}", title_fontproperties={"size": 9, "weight": "bold"},
    )  # fmt: skip
    add_caption(figure, result)
    return figure


def add_caption(figure: Figure, result: Result) -> None:
    values = result.parameters
    threads = "" if result.provenance["device"] == "cuda" else f", {values['threads']} threads a rank"
    ranks = result.provenance["world_size"]
    style.add_caption(
        figure,
        f"{ranks} rank{'s' if ranks > 1 else ''}{threads}. Medians of {values['repetitions']} interleaved repetitions; "
        "lines: 10th to 90th percentile. Memory limit: 3 tensors of the input's size read or written forward, 5 "
        "backward, at the pace of a copy between; %: of its speed, the median of the repetitions' ratios. Peak "
        "memory: all tensors at once, with the input and the upstream gradient.",
        [result],
    )


def main(arguments: list[str] | None = None) -> int:
    return script.run(__doc__.splitlines()[0], script.one_each(PROGRAM, PARAMETERS, draw), arguments)


if __name__ == "__main__":
    sys.exit(main())
