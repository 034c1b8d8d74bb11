"""Draws what bucketed DDP adds to computing alone, over bucket size: measured, by formula, and simulated.

Reads one result file of the benchmark bucket_overhead.
"""

from __future__ import annotations

import statistics

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from figures.lib import script, style
from figures.lib.result_files import Result, ResultError
from figures.lib.training_times import size_in_words

PROGRAM = "bucket_overhead"
LINK = ("gradient_bytes", "overhead_s", "bandwidth_bytes_per_s", "best_cap_bytes")
PARAMETERS = ("model", "parameters", "batch_size", "sequence_length", "repetitions", "rate_gbit", "latency_us", *LINK)
BUCKETED, COMPUTE = "bucketed", "compute only"
HEIGHT = 4.4  # inches


def formula_seconds(size: float, gradients: float, overhead: float, bandwidth: float) -> tuple[float, float]:
    """The times of all launches and of the last bucket: s/b · o and b/w."""
    return gradients / size * overhead, size / bandwidth


def caps_of(result: Result) -> list[int]:
    labels = [series["labels"] for series in result.series]
    caps = sorted({label["cap_bytes"] for label in labels if label.get("variant") == BUCKETED and "cap_bytes" in label})
    if len(caps) < 2:
        raise ResultError(f"{result.file}: needs buckets of two sizes or more; run the benchmark {PROGRAM} again")
    return caps


def measured_seconds(result: Result) -> dict[int, list[float]]:
    """By cap: the time of a step minus that of computing alone, for each repetition."""
    alone = result.values("s", quantity="step", variant=COMPUTE)
    beyond = {}
    for cap in caps_of(result):
        steps = result.values("s", quantity="step", variant=BUCKETED, cap_bytes=cap)
        if len(steps) != len(alone):
            raise ResultError(f"{result.file}: its series differ in their number of steps; run it again")
        beyond[cap] = [step - compute for step, compute in zip(steps, alone)]
    return beyond


def simulated_seconds(result: Result) -> dict[int, float]:
    """The simulated times by cap; empty if the ranks shared no memory."""
    return dict(sorted(result.first_values("s", "cap_bytes", quantity="simulated overhead").items()))


def draw_formula(axes: Axes, result: Result, caps: list[int]) -> None:
    link = [result.parameters[name] for name in LINK[:3]]
    sizes = np.geomspace(caps[0], caps[-1], 200)
    launches, last = (1e3 * np.array(term) for term in formula_seconds(sizes, *link))
    axes.plot(sizes, launches + last, color=style.BLUE, linewidth=1.5, label="formula: s/b · o + b/w")
    axes.plot(sizes, launches, color=style.BLUE, linewidth=0.8, linestyle=":", label="launches: s/b · o")
    axes.plot(sizes, last, color=style.BLUE, linewidth=0.8, linestyle="--", label="the last bucket: b/w")


def draw(result: Result) -> Figure:
    figure, axes = style.panels(HEIGHT)
    measured, simulated = measured_seconds(result), simulated_seconds(result)
    caps = list(measured)
    draw_formula(axes, result, caps)
    if simulated:
        look = {"color": style.GREEN, "marker": "s", "markersize": 4, "linewidth": 1}
        axes.plot(list(simulated), [1e3 * value for value in simulated.values()], label="simulated network", **look)
    low, high = np.percentile(1e3 * np.array(list(measured.values())), [10, 90], axis=1)
    medians = [1e3 * statistics.median(values) for values in measured.values()]
    axes.vlines(caps, low, high, color=style.VERMILION, linewidth=0.9, alpha=0.6)
    axes.plot(caps, medians, color=style.VERMILION, marker="o", markersize=4.5, linewidth=1, label="measured", zorder=4)
    best = result.parameters["best_cap_bytes"]
    axes.axvline(best, color="black", linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(
        f" b* = √(s·w·o) = {size_in_words(best)}", (best, 1), xycoords=("data", "axes fraction"), va="top", fontsize=7.5
    )
    finish_axes(axes, result, caps)
    figure.legend(loc="outside upper left", ncols=2, fontsize=7.5, columnspacing=1.5)
    add_caption(figure, result, simulated)
    return figure


def finish_axes(axes: Axes, result: Result, caps: list[int]) -> None:
    values, ranks = result.parameters, result.provenance["world_size"]
    style.log_axis(axes, caps[:: -max(1, len(caps) // 5)], size_in_words)
    # From a quarter of the formula's minimum: noise may be negative, and a term alone goes to zero.
    least = sum(formula_seconds(values["best_cap_bytes"], *(values[name] for name in LINK[:3])))
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(bottom=1e3 * least / 4)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid()
    size = f"{values['parameters'] / 1e6:,.3g} M parameters"
    axes.set_title(f"{values['model']}, {size}; {ranks} ranks, {result.link}", loc="left")
    axes.set_xlabel("size b of a bucket (cap)")
    axes.set_ylabel("a step beyond computing alone [ms]")


def add_caption(figure: Figure, result: Result, simulated: dict[int, float]) -> None:
    values = result.parameters
    text = (
        f"Gradients s = {size_in_words(values['gradient_bytes'])}; measured: all-reduces cost o = "
        f"{1e6 * values['overhead_s']:.0f} µs and move w = {1e-9 * values['bandwidth_bytes_per_s']:.3g} GB/s. Batch "
        f"{values['batch_size']} a rank, {values['sequence_length']} tokens; medians of {values['repetitions']} "
        "repetitions, slowest rank, bars: 10th to 90th percentile. Logarithmic axes."
    )
    if simulated:
        text += " The simulated network has the same s, w and o, and computing that takes as long as measured alone."
    style.add_caption(figure, text, [result])


main = script.main(__name__, __doc__, script.one_each(PROGRAM, PARAMETERS, draw))
