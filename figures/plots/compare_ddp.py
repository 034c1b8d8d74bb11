"""Draws the latency of ResNet-50's forward and backward over the buffer size, and sets a table of it.

Reads result files of the benchmark compare_ddp. What was measured stands on the left of the published numbers; what
was simulated, by its subcommand published, is lines through the published points.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import ddp_comparison, predictions, script, style
from figures.lib.ddp_comparison import ASYNC, CORE, DIRECTIONS, EQUAL_BYTES, OPTIONS, PROGRAM, STAGE, SYNC, M
from figures.lib.predictions import TIMES_ONLY, setup_in_words
from figures.lib.result_files import left_out, link, load, name_of, simulated
from figures.lib.tables import Table, side_by_side

LOOKS = {
    CORE: {"color": style.GREY, "marker": "o"},
    EQUAL_BYTES: {"color": style.PURPLE, "marker": "D"},
    ASYNC: {"color": style.BLUE, "marker": "s"},
    SYNC: {"color": style.VERMILION, "marker": "^"},
    STAGE: {"color": style.GREEN, "marker": "v"},
}
MEASURED = {CORE: "core (c10d::Reducer)", EQUAL_BYTES: "core, equal bytes", ASYNC: "async (stage 03)",
            SYNC: "sync (stage 03, overlap = false)"}  # fmt: skip
SIMULATED = {**MEASURED, ASYNC: "async (Python DDP, forward order)", SYNC: "sync (Python DDP)",
             STAGE: "stage 03 (reverse order)"}  # fmt: skip
UNPUBLISHED = {STAGE: "-", EQUAL_BYTES: (0, (4, 2))}
BUFFERS = (
    "Buffers of core have a cap of M MiB, all others hold M = 2$^{20}$ elements. Dotted: a buffer holds all gradients. "
    "Scales do not begin at 0."
)
ROWS = (CORE, ASYNC, SYNC, EQUAL_BYTES, STAGE)  # the published ones in their order, then the others


def configuration(result: pd.DataFrame) -> str:
    values = result.attrs["parameters"]
    return f"batch {values['batch_size']}, {values['image_size']}x{values['image_size']}, {link(result)}"


def mark_whole_model(axes: Axes, result: pd.DataFrame) -> None:
    """Draws a line at the buffer size that holds all gradients."""
    size = result.attrs["parameters"]["parameters"] / M
    axes.axvline(size, color="black", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    if axes.get_subplotspec().is_first_row() and axes.get_subplotspec().is_first_col():
        axes.annotate(
            f"all {size:.2f}M", (size, 1), (-3, -3), xycoords=axes.get_xaxis_transform(),
            textcoords="offset points", ha="right", va="top", fontsize=6.5,
        )  # fmt: skip


def draw_medians(axes: Axes, latencies: pd.DataFrame, direction: str) -> None:
    """Lines at the medians, and whiskers up to the 90th percentiles. Each variant is a little to the right of the one
    before, so that whiskers stay apart."""
    step = latencies.index.get_level_values("buffer_size").max() / 120
    for number, variant in enumerate(ddp_comparison.variants_of(latencies)):
        by_size = latencies.xs((direction, variant), level=("direction", "variant"))
        medians, above = by_size["p50"], by_size["p90"] - by_size["p50"]
        axes.errorbar(
            by_size.index + step * (number - 1.5), medians, [0 * above, above], **LOOKS[variant], markersize=3.4,
            linewidth=1.2, elinewidth=0.7, capsize=1.5, markeredgecolor="white", markeredgewidth=0.3,
        )  # fmt: skip
    axes.margins(y=0.12)


def draw_measured(result: pd.DataFrame) -> Figure:
    """Published numbers have a scale of their own, for other hardware's milliseconds."""
    own, ranks = ddp_comparison.measured(result), result.attrs["provenance"]["world_size"]
    figure, panels = style.panels(5.0, 2, 2, sharex=True)
    titles = (f"measured: {configuration(result)}", "published: batch 32, 224x224")
    for column, latencies, title in zip(panels.T, (own, ddp_comparison.published()), titles):
        for axes, direction in zip(column, reversed(DIRECTIONS)):
            draw_medians(axes, latencies, direction)
            mark_whole_model(axes, result)
            style.dress(axes, y=f"{direction} [ms]" if axes in panels[:, 0] else "")
        column[0].set_title(title, loc="left", fontsize=8)
        column[1].set_xlabel("buffer size [M elements]")
    entries = {MEASURED[each]: {**LOOKS[each], "markersize": 3.4} for each in ddp_comparison.variants_of(own)}
    style.legend(figure, entries, "outside upper center", handlelength=1.8)
    text = (
        f"ResNet-50, {ranks} rank{'s' if ranks != 1 else ''}, n = {ddp_comparison.iterations_of(result)} iterations. "
        "Lines: medians; whiskers: to the 90th percentile. Equal bytes: core's "
        f"buckets of 4M MiB. {BUFFERS}"
    )
    return style.add_caption(
        figure, text + left_out(ddp_comparison.MEASURED, ddp_comparison.variants_of(own)), [result]
    )


def draw_simulated(result: pd.DataFrame) -> Figure:
    own, published = (latencies["p50"] for latencies in (ddp_comparison.measured(result), ddp_comparison.published()))
    figure, panels = style.panels(5.4, 2, sharex=True, height_ratios=(3, 1))
    for axes, direction in zip(panels, reversed(DIRECTIONS)):
        for variant in ddp_comparison.variants_of(own):
            key, look = {"key": (direction, variant), "level": ("direction", "variant")}, LOOKS[variant]
            dashes = UNPUBLISHED.get(variant, "-")
            axes.plot(own.xs(**key), color=look["color"], linewidth=1.3, linestyle=dashes, zorder=3)
            if variant not in UNPUBLISHED:
                points = published.xs(**key)
                predictions.draw_published(axes, points, points.index.isin(predictions.FITTED_SIZES), **look)
        style.dress(axes, y=f"{direction} [ms]")
        axes.margins(y=0.08)
        mark_whole_model(axes, result)
    panels[-1].set_ylim(200, 216)
    panels[-1].set_xlabel("buffer size [M = 2$^{20}$ elements]")
    looks = {each: {"linestyle": UNPUBLISHED[each], "marker": None} if each in UNPUBLISHED else {} for each in LOOKS}
    entries = {
        SIMULATED[each]: {**LOOKS[each], "markersize": 3.8, **looks[each]} for each in ddp_comparison.variants_of(own)
    }
    predictions.add_legend(figure, entries, loc="outside upper center")
    text = f"ResNet-50, {configuration(result)}. Backward contains the all-reduces; stage 03's are not published. "
    quantities = [f"backward of {variant}" for variant in (CORE, ASYNC, SYNC)]
    return predictions.add_caption(figure, result, predictions.compare_ddp(result), text + BUFFERS, quantities)


def note_of(result: pd.DataFrame, there: list[str]) -> str:
    values, ranks = result.attrs["parameters"], result.attrs["provenance"]["world_size"]
    buffers = (
        "Buffers of async and sync hold M = 2^20 float32; of DDP_CPP_CORE M is bucket_cap_mb, as published; "
        "EQUAL_BYTES is the same core with four times that."
    )
    if simulated(result):
        return (
            f"{setup_in_words(result)}, ResNet-50, batch {values['batch_size']}. Milliseconds of an iteration: all "
            f"take the same, so that percentiles are the mean. {buffers} {TIMES_ONLY}"
        )
    return (
        f"ResNet-50, {ranks} rank{'s' if ranks != 1 else ''}, {configuration(result)}. Milliseconds of n = "
        f"{ddp_comparison.iterations_of(result)} iterations after {values['discarded']} discarded ones. The second "
        "column named mean is the median, as published. Percentiles that so few iterations do not support are left "
        f"out (-). {buffers}{left_out((ASYNC, SYNC), there)}"
    )


def compact(latencies: pd.DataFrame, sizes: list[int]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of medians: all buffer sizes on one page."""
    others = [variant for variant in ROWS[1:] if variant in ddp_comparison.variants_of(latencies)]
    rows = []
    for size, direction in product(sizes, DIRECTIONS):
        cells = latencies.loc[size, direction]
        texts = [f"{cells.p50[other]:.1f} ({cells.p50_delta[other]:+.1f} %)" for other in others]
        rows.append([f"{size}M", direction, f"{cells.p50[CORE]:.1f}", *texts])
    return ["buffer size", "direction", "core p50 [ms]", *(f"{variant} p50 [ms]" for variant in others)], rows


def make(files: list[Path]) -> Iterator[tuple[str, Figure | Table]]:
    for file in files:
        result = load(file, PROGRAM)
        yield name_of(PROGRAM, result), draw_simulated(result) if simulated(result) else draw_measured(result)
        latencies, known = ddp_comparison.measured(result), ddp_comparison.supported(result)
        sizes = list(latencies.index.unique("buffer_size"))
        note = note_of(result, ddp_comparison.variants_of(latencies))
        columns, rows = compact(latencies, sizes)
        title = "ResNet-50 over buffer sizes: latency of forward and backward"
        table = Table(title, columns, rows, [result], note)
        yield name_of(PROGRAM, result), table
        own = latencies[known].reset_index().replace({"variant": OPTIONS})
        yield from side_by_side(PROGRAM, table, PROGRAM, ddp_comparison.KEYS, own)


main = script.main(__name__, __doc__, make)
