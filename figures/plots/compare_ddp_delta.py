"""Draws how much longer forward and backward take than core's, over buffer size, beside the published numbers.

Reads one result file of the benchmark compare_ddp.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import ddp_comparison, ddp_series, script, style
from figures.lib.ddp_comparison import CORE, PARAMETERS, PROGRAM, Comparison, delta, measured, published
from figures.lib.ddp_series import COLOURS, MARKERS, PUBLISHED_LINE
from figures.lib.result_files import Result


def draw_deltas(axes: Axes, comparison: Comparison, direction: str, own: bool) -> None:
    for number, variant in enumerate(ddp_comparison.variants_of(comparison)):
        if variant == CORE:
            continue
        cells = [cell[direction] for cell in comparison.values()]
        values = [delta(latencies, variant) for latencies in cells]
        if own:
            above = [
                100 * (latencies[variant].p90 - latencies[variant].p50) / latencies[CORE].p50 for latencies in cells
            ]
            sizes = ddp_series.beside_each_other(comparison, number)
            axes.errorbar(
                sizes, values, [[0] * len(above), above], color=COLOURS[variant],
                marker=MARKERS[variant], markersize=4, linewidth=1.4, elinewidth=0.7, capsize=1.5, zorder=3,
                markeredgecolor="white", markeredgewidth=0.3,
            )  # fmt: skip
        else:
            axes.plot(
                list(comparison), values, color=COLOURS[variant], marker=MARKERS[variant], markersize=2.6,
                linewidth=0.8, linestyle=PUBLISHED_LINE, zorder=2, markerfacecolor="white", markeredgewidth=0.7,
            )  # fmt: skip


def draw(result: Result) -> Figure:
    own = measured(result)
    figure, panels = style.panels(4.9, 2, sharex=True, height_ratios=(1.5, 1))
    for axes, direction in zip(panels, reversed(ddp_comparison.DIRECTIONS)):
        axes.axhline(0, color=COLOURS[CORE], linewidth=1.2)
        draw_deltas(axes, published(), direction, own=False)
        draw_deltas(axes, own, direction, own=True)
        ddp_series.mark_whole_model(axes, result.parameters["parameters"], named=axes is panels[0])
        axes.set_ylabel(f"{direction}:\nlonger than core's [%]")
        axes.margins(y=0.1)
        axes.grid()
    panels[-1].set_xlabel("buffer size [M = 2$^{20}$ elements]")
    ddp_series.add_legend(figure, ddp_comparison.variants_of(own), own_and_published=True)
    ddp_series.add_caption(
        figure, result, own, "Medians against core's median at the same buffer size; whiskers (own numbers): to the "
        "90th percentile. Core's buckets have a cap of M MiB, as published: a quarter of the bytes of async's and "
        "sync's. Core, equal bytes: a cap of 4M MiB, unpublished. Dotted: a buffer holds all gradients. Published: "
        "batch 32, 224x224, hardware not named.",
    )  # fmt: skip
    return figure


main = script.main(__name__, __doc__, script.one_each(PROGRAM, PARAMETERS, draw, f"{PROGRAM}.delta"))
