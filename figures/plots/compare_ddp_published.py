"""Draws forward and backward of ResNet-50 over the buffer size at published scale: published points, simulated lines.

Reads one result file of the benchmark compare_ddp, made with --preset published.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.lib import ddp_comparison, published_scale, script, style
from figures.lib.ddp_comparison import ASYNC, CORE, EQUAL_BYTES, STAGE, SYNC, Comparison
from figures.lib.ddp_series import COLOURS, MARKERS, configuration, mark_whole_model
from figures.lib.predictions import FITTED_SIZES, compare_ddp
from figures.lib.result_files import Result

NAMES = {
    CORE: "core (c10d::Reducer)",
    ASYNC: "async (Python DDP, forward order)",
    SYNC: "sync (Python DDP)",
    STAGE: "stage 03 (reverse order)",
    EQUAL_BYTES: "core, equal bytes",
}
UNPUBLISHED = {STAGE: "-", EQUAL_BYTES: (0, (4, 2))}
HEIGHT = 5.4  # inches


def draw_panel(axes: Axes, own: Comparison, direction: str) -> None:
    theirs = ddp_comparison.published()
    for variant in ddp_comparison.variants_of(own):
        sizes = list(own)
        axes.plot(
            sizes, [own[size][direction][variant].p50 for size in sizes], color=COLOURS[variant], linewidth=1.3,
            linestyle=UNPUBLISHED.get(variant, "-"), zorder=3,
        )  # fmt: skip
        points = [
            (size, cell[direction][variant].p50, size in FITTED_SIZES)
            for size, cell in theirs.items()
            if variant in cell[direction]
        ]
        published_scale.draw_published(axes, points, COLOURS[variant], MARKERS[variant])
    axes.set_ylabel(f"{direction} [ms]")
    axes.margins(y=0.08)
    axes.grid()


def draw(result: Result) -> Figure:
    published_scale.require_simulated(result)
    own = ddp_comparison.measured(result)
    figure, panels = style.panels(HEIGHT, 2, sharex=True, height_ratios=(3, 1))
    for axes, direction in zip(panels, reversed(ddp_comparison.DIRECTIONS)):
        draw_panel(axes, own, direction)
        mark_whole_model(axes, result.parameters["parameters"], named=axes is panels[0])
    panels[-1].set_ylim(200, 216)
    panels[-1].set_xlabel("buffer size [M = 2$^{20}$ elements]")
    handles = [
        Line2D([], [], color=COLOURS[v], linestyle=UNPUBLISHED.get(v, "-"), markersize=3.8, label=NAMES[v],
               marker=None if v in UNPUBLISHED else MARKERS[v])
        for v in ddp_comparison.variants_of(own)
    ]  # fmt: skip
    handles += published_scale.kinds_of_points()
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=7, columnspacing=1.3, handlelength=1.8)
    quantities = tuple(f"backward of {variant}" for variant in (CORE, ASYNC, SYNC))
    published_scale.add_caption(
        figure, result, compare_ddp(result.file), f"ResNet-50, {configuration(result)}. Backward contains the "
        "all-reduces. Core's buckets have a cap of M MiB, all other buffers hold M elements. Stage 03 is the code of "
        "the implementation named below, of which nothing is published. Dotted: a buffer holds all gradients. The "
        "scales do not begin at 0.",
        quantities,
    )  # fmt: skip
    return figure


main = script.main(__name__, __doc__, script.one_each(ddp_comparison.PROGRAM, ddp_comparison.PARAMETERS, draw))
