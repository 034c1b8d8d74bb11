"""Draws the latency of ResNet-50's forward and backward over the buffer size, beside the published numbers.

Reads one result file of the benchmark compare_ddp.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import ddp_comparison, script, style
from figures.lib.ddp_comparison import ASYNC, COLOURS, CORE, DIRECTIONS, EQUAL_BYTES, MARKERS, SYNC, variants_of
from figures.lib.result_files import left_out

NAMES = {
    CORE: "core (c10d::Reducer)",
    EQUAL_BYTES: "core, equal bytes",
    ASYNC: "async (stage 03)",
    SYNC: "sync (stage 03, overlap = false)",
}


def draw_panel(axes: Axes, latencies: pd.DataFrame, direction: str) -> None:
    """Draws lines at the medians, and whiskers up to the 90th percentiles. Each variant is a little to the right of the
    one before, so that whiskers stay apart."""
    step = latencies.index.get_level_values("buffer_size").max() / 120
    for number, variant in enumerate(variants_of(latencies)):
        by_size = latencies.xs((direction, variant), level=("direction", "variant"))
        medians, above = by_size["p50"], by_size["p90"] - by_size["p50"]
        axes.errorbar(
            by_size.index + step * (number - 1.5), medians, [0 * above, above],
            color=COLOURS[variant], marker=MARKERS[variant], markersize=3.4, linewidth=1.2, elinewidth=0.7, capsize=1.5,
            markeredgecolor="white", markeredgewidth=0.3, label=NAMES[variant],
        )  # fmt: skip
    axes.margins(y=0.12)
    axes.grid()


def draw(result: pd.DataFrame) -> Figure:
    """Own numbers on the left, published ones on the right, with a separate scale for other hardware's milliseconds."""
    own, ranks = ddp_comparison.measured(result), result.attrs["provenance"]["world_size"]
    figure, panels = style.panels(5.0, 2, 2, sharex=True)
    for column, latencies in enumerate((own, ddp_comparison.published())):
        for row, direction in enumerate(reversed(DIRECTIONS)):
            draw_panel(panels[row, column], latencies, direction)
            ddp_comparison.mark_whole_model(panels[row, column], result, named=(row, column) == (0, 0))
            panels[row, 0].set_ylabel(f"{direction} [ms]")
        panels[-1, column].set_xlabel("buffer size [M elements]")
    panels[0, 0].set_title(f"measured: {ddp_comparison.configuration(result)}", loc="left", fontsize=8)
    panels[0, 1].set_title("published: batch 32, 224x224", loc="left", fontsize=8)
    handles = [errors.lines[0] for errors in panels[0, 0].containers]
    figure.legend(
        handles, [NAMES[variant] for variant in variants_of(own)], loc="outside upper center", ncols=len(handles),
        fontsize=7, columnspacing=1.3, handlelength=1.8,
    )  # fmt: skip
    style.add_caption(
        figure, f"ResNet-50, {ranks} rank{'s' if ranks != 1 else ''}, {ddp_comparison.configuration(result)}, n = "
        f"{ddp_comparison.iterations_of(result)} iterations; {ddp_comparison.procedure_of(result)}. Lines: medians; "
        "whiskers: to the 90th percentile. Buffers of async and sync hold M = 2^20 elements, 4M MiB; core's buckets M "
        "MiB, as published, and 4M MiB (equal bytes). Dotted: a buffer holds all gradients. Scales do not begin at 0."
        + left_out(ddp_comparison.MEASURED, variants_of(own)), [result],
    )  # fmt: skip
    return figure


main = script.main(__name__, __doc__, script.one_each(ddp_comparison.PROGRAM, draw))
