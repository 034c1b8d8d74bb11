"""Draws forward and backward of ResNet-50 over the buffer size at published scale: published points, simulated lines.

Reads one result file of the benchmark compare_ddp, made with --preset published.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.lib import ddp_comparison, predictions, published_scale, script, style
from figures.lib.ddp_comparison import ASYNC, COLOURS, CORE, EQUAL_BYTES, MARKERS, PROGRAM, STAGE, SYNC, variants_of
from figures.lib.predictions import FITTED_SIZES
from figures.lib.result_files import load_simulated

NAMES = {
    CORE: "core (c10d::Reducer)",
    ASYNC: "async (Python DDP, forward order)",
    SYNC: "sync (Python DDP)",
    STAGE: "stage 03 (reverse order)",
    EQUAL_BYTES: "core, equal bytes",
}
UNPUBLISHED = {STAGE: "-", EQUAL_BYTES: (0, (4, 2))}
HEIGHT = 5.4  # inches


def draw_panel(axes: Axes, own: pd.DataFrame, direction: str) -> None:
    for variant in variants_of(own):
        key = {"key": (direction, variant), "level": ("direction", "variant")}
        line = own["p50"].xs(**key)
        axes.plot(line, color=COLOURS[variant], linewidth=1.3, linestyle=UNPUBLISHED.get(variant, "-"), zorder=3)
        if variant not in UNPUBLISHED:
            points = ddp_comparison.published()["p50"].xs(**key)
            fitted = points.index.isin(FITTED_SIZES)
            published_scale.draw_published(axes, points, fitted, COLOURS[variant], MARKERS[variant])
    axes.set_ylabel(f"{direction} [ms]")
    axes.margins(y=0.08)
    axes.grid()


def draw(result: pd.DataFrame) -> Figure:
    own = ddp_comparison.measured(result)
    figure, panels = style.panels(HEIGHT, 2, sharex=True, height_ratios=(3, 1))
    for axes, direction in zip(panels, reversed(ddp_comparison.DIRECTIONS)):
        draw_panel(axes, own, direction)
        ddp_comparison.mark_whole_model(axes, result, named=axes is panels[0])
    panels[-1].set_ylim(200, 216)
    panels[-1].set_xlabel("buffer size [M = 2$^{20}$ elements]")
    handles = [
        Line2D([], [], color=COLOURS[v], linestyle=UNPUBLISHED.get(v, "-"), markersize=3.8, label=NAMES[v],
               marker=None if v in UNPUBLISHED else MARKERS[v])
        for v in variants_of(own)
    ]  # fmt: skip
    published_scale.add_legend(figure, handles, loc="outside upper center")
    published_scale.add_caption(
        figure, result, predictions.compare_ddp(result), f"ResNet-50, {ddp_comparison.configuration(result)}. Backward "
        "contains the all-reduces. Core's buckets have a cap of M MiB, all other buffers hold M elements. Stage 03 is "
        "the code of the implementation named below, of which nothing is published. Dotted: a buffer holds all "
        "gradients. The scales do not begin at 0.",
        [f"backward of {variant}" for variant in (CORE, ASYNC, SYNC)],
    )  # fmt: skip
    return figure


main = script.main(__name__, __doc__, script.one_each(PROGRAM, draw, load=load_simulated))
