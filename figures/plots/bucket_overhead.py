"""Draws what bucketed DDP adds to computing alone, over bucket size: measured, by formula, and simulated.

Reads one result file of the benchmark bucket_overhead.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from figures.lib import script, style
from figures.lib.result_files import link, pick
from figures.lib.training_times import BUCKETED, COMPUTE

PROGRAM = "bucket_overhead"
FORMULA = ("gradient_bytes", "overhead_s", "bandwidth_bytes_per_s")


def formula_seconds(size: float, gradients: float, overhead: float, bandwidth: float) -> tuple[float, float]:
    """The times of all launches and of the last bucket: s/b · o and b/w."""
    return gradients / size * overhead, size / bandwidth


def beyond_computing(result: pd.DataFrame) -> pd.DataFrame:
    """Milliseconds of a step minus those of computing alone in the same repetition: median, 10th and 90th percentile,
    by cap."""
    alone = pick(result, quantity="step", variant=COMPUTE).set_index("call")["value"]
    steps = pick(result, quantity="step", variant=BUCKETED)
    return (1e3 * (steps["value"] - steps["call"].map(alone))).groupby(steps["cap_bytes"]).describe([0.1, 0.5, 0.9])


def draw_formula(axes: Axes, values: dict[str, float], caps: pd.Index) -> None:
    sizes = np.geomspace(caps[0], caps[-1], 200)
    launches, last = (1e3 * term for term in formula_seconds(sizes, *(values[name] for name in FORMULA)))
    axes.plot(sizes, launches + last, color=style.BLUE, linewidth=1.5, label="formula: s/b · o + b/w")
    axes.plot(sizes, launches, color=style.BLUE, linewidth=0.8, linestyle=":", label="launches: s/b · o")
    axes.plot(sizes, last, color=style.BLUE, linewidth=0.8, linestyle="--", label="the last bucket: b/w")


def draw(result: pd.DataFrame) -> Figure:
    figure, axes = style.panels(4.4)
    values, ranks = result.attrs["parameters"], result.attrs["provenance"]["world_size"]
    measured, simulated = beyond_computing(result), pick(result, quantity="simulated overhead")
    caps, best = measured.index, values["best_cap_bytes"]
    draw_formula(axes, values, caps)
    if len(simulated):  # where the ranks shared memory
        line = 1e3 * simulated.set_index("cap_bytes")["value"].sort_index()
        axes.plot(line, color=style.GREEN, marker="s", markersize=4, linewidth=1, label="simulated network")
    axes.vlines(caps, measured["10%"], measured["90%"], color=style.VERMILION, linewidth=0.9, alpha=0.6)
    axes.plot(measured["50%"], "o-", color=style.VERMILION, markersize=4.5, linewidth=1, label="measured", zorder=4)
    axes.axvline(best, color="black", linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(
        f" b* = √(s·w·o) = {style.size_in_words(best)}",
        (best, 1),
        xycoords=("data", "axes fraction"),
        va="top",
        fontsize=7.5,
    )
    style.log_axis(axes, caps[:: -max(1, len(caps) // 5)], style.size_in_words)
    # From a quarter of the formula's minimum: noise may be negative, and a term alone goes to zero.
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(bottom=1e3 * sum(formula_seconds(best, *(values[name] for name in FORMULA))) / 4)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    size = f"{values['parameters'] / 1e6:,.3g} M parameters"
    title = f"{values['model']}, {size}; {ranks} ranks, {link(result)}"
    style.dress(axes, title, "size b of a bucket (cap)", "a step beyond computing alone [ms]")
    figure.legend(loc="outside upper left", ncols=2, fontsize=7.5, columnspacing=1.5)
    text = (
        f"Gradients s = {style.size_in_words(values['gradient_bytes'])}; measured: all-reduces cost o = "
        f"{1e6 * values['overhead_s']:.0f} µs and move w = {1e-9 * values['bandwidth_bytes_per_s']:.3g} GB/s. Batch "
        f"{values['batch_size']} a rank, {values['sequence_length']} tokens; medians of {values['repetitions']} "
        "repetitions, slowest rank, bars: 10th to 90th percentile. The simulated network has the same s, w and o."
    )
    return style.add_caption(figure, text, [result])


main = script.main(__name__, __doc__, script.one_each(PROGRAM, draw))
