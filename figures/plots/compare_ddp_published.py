"""Draws forward and backward of ResNet-50 over the buffer size at published scale: published points, simulated lines.

Reads one result file of the benchmark compare_ddp, made with --preset published.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.lib import published_scale, script, style
from figures.lib.ddp_comparison import (
    ASYNC,
    CORE,
    DIRECTIONS,
    EQUAL_BYTES,
    PARAMETERS,
    PROGRAM,
    STAGE,
    SYNC,
    Comparison,
    measured,
    published,
    variants_of,
)  # fmt: skip
from figures.lib.ddp_series import COLOURS, MARKERS, configuration, mark_whole_model
from figures.lib.predictions import FITTED_SIZES, compare_ddp
from figures.lib.result_files import Result, load_group

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
    theirs = published()
    for variant in variants_of(own):
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


def draw(result: Result, file: Path) -> Figure:
    style.use_style()
    own = measured(result)
    figure, panels = plt.subplots(
        2, 1, figsize=(style.TEXT_WIDTH, HEIGHT), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    for axes, direction in zip(panels, reversed(DIRECTIONS)):
        draw_panel(axes, own, direction)
        mark_whole_model(axes, result.parameters["parameters"], named=axes is panels[0])
    panels[-1].set_ylim(200, 216)
    panels[-1].set_xlabel("buffer size [M = 2$^{20}$ elements]")
    handles = [
        Line2D([], [], color=COLOURS[v], linestyle=UNPUBLISHED.get(v, "-"), markersize=3.8, label=NAMES[v],
               marker=None if v in UNPUBLISHED else MARKERS[v])
        for v in variants_of(own)
    ]  # fmt: skip
    handles += published_scale.kinds_of_points()
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=7, columnspacing=1.3, handlelength=1.8)
    quantities = tuple(f"backward of {variant}" for variant in (CORE, ASYNC, SYNC))
    published_scale.add_caption(
        figure, result, compare_ddp(file), f"ResNet-50, {configuration(result)}. Backward contains the all-reduces. "
        "Core's buckets have a cap of M MiB, all other buffers hold M elements. Stage 03 is the code of the "
        "implementation named below, of which nothing is published. Dotted: a buffer holds all gradients. The scales "
        "do not begin at 0.",
        quantities,
    )  # fmt: skip
    return figure


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    for file in files:
        (result,) = load_group([file], PROGRAM, shared=(), own=PARAMETERS)
        published_scale.require_simulated(result)
        yield script.name_of(PROGRAM, result), draw(result, file)


main = script.main(__doc__, figures)

if __name__ == "__main__":
    sys.exit(main())
