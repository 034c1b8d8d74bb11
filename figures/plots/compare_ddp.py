"""Draws the latency of ResNet-50's forward and backward over the buffer size, beside the published numbers.

Reads one result file of the benchmark compare_ddp.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import ddp_series, script, style
from figures.lib.ddp_comparison import DIRECTIONS, PARAMETERS, PROGRAM, Comparison, measured, published, variants_of
from figures.lib.ddp_series import COLOURS, MARKERS
from figures.lib.result_files import Result


def draw_panel(axes: Axes, comparison: Comparison, direction: str) -> None:
    """Draws lines at the medians, and whiskers up to the 90th percentiles."""
    for number, variant in enumerate(variants_of(comparison)):
        sizes = ddp_series.beside_each_other(comparison, number)
        latencies = [cell[direction][variant] for cell in comparison.values()]
        medians = [latency.p50 for latency in latencies]
        above = [latency.p90 - latency.p50 for latency in latencies]
        axes.errorbar(
            sizes, medians, [[0] * len(above), above], color=COLOURS[variant], marker=MARKERS[variant], markersize=3.4,
            linewidth=1.2, elinewidth=0.7, capsize=1.5, markeredgecolor="white", markeredgewidth=0.3,
        )  # fmt: skip
    axes.margins(y=0.12)
    axes.grid()


def draw(result: Result) -> Figure:
    """Own numbers on the left, published ones on the right, with a separate scale for other hardware's milliseconds."""
    own, elements = measured(result), result.parameters["parameters"]
    figure, panels = style.panels(5.0, 2, 2, sharex=True)
    for column, comparison in enumerate((own, published())):
        for row, direction in enumerate(reversed(DIRECTIONS)):
            draw_panel(panels[row, column], comparison, direction)
            ddp_series.mark_whole_model(panels[row, column], elements, named=(row, column) == (0, 0))
            panels[row, 0].set_ylabel(f"{direction} [ms]")
        panels[-1, column].set_xlabel("buffer size [M elements]")
    panels[0, 0].set_title(f"measured: {ddp_series.configuration(result)}", loc="left", fontsize=8)
    panels[0, 1].set_title("published: batch 32, 224x224", loc="left", fontsize=8)
    ddp_series.add_legend(figure, variants_of(own))
    ddp_series.add_caption(
        figure, result, own, "Lines: medians; whiskers: to the 90th percentile. Backward contains the all-reduces. M = "
        "2^20: buffers of async and sync hold M elements, 4M MiB; core's buckets have a cap of M MiB, as published, "
        "and of 4M MiB (equal bytes). Dotted: a buffer holds all gradients. Published: hardware not named. Scales do "
        "not begin at 0.",
    )  # fmt: skip
    return figure


main = script.main(__name__, __doc__, script.one_each(PROGRAM, PARAMETERS, draw))
