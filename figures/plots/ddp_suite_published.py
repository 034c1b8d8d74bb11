"""Draws PyTorch's suite for DDP at published scale: four ResNets to 64 GPUs, published points, simulated lines.

Rows: seconds of an iteration, what DDP adds to it, and buckets of 1 MB against 25 MB. Reads one result file of the
benchmark ddp_suite, made with --preset published.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from figures.lib import predictions, published_scale, script, style
from figures.lib.predictions import AB, AB_PERCENT, FITTED_MODEL, ITERATION, LARGEST_AB, OVERHEAD, SUITE_BUCKET
from figures.lib.suite_data import PROGRAM, VARIANTS, Choice, Suite, own_diffs, published_diffs, published_medians

COLOURS = {"bucketed": style.BLUE, "Reducer": style.ORANGE}
ROWS = ("iteration [ms]", "DDP adds [ms]", "1 against 25 MB [%]")
HEIGHT = 5.8  # inches

Line = dict[int, float]  # by the number of GPUs


def lines_of(alone: float, seconds: Line) -> tuple[Line, Line]:
    """Milliseconds of an iteration, and those beyond the round without DDP."""
    return (
        {gpus: 1e3 * value for gpus, value in seconds.items()},
        {gpus: 1e3 * (value - alone) for gpus, value in seconds.items()},
    )


def simulated(suite: Suite, model: str, variant: str) -> tuple[Line, Line]:
    alone, *rounds = suite.rounds(model, Choice(variant, SUITE_BUCKET))
    return lines_of(alone.percentile(50), {one.ranks: one.percentile(50) for one in rounds})


def published(model: str) -> tuple[Line, Line]:
    seconds = published_medians(model)
    return lines_of(seconds.pop(0), seconds)


def draw_line(axes: Axes, line: Line, variant: str) -> None:
    axes.plot(list(line), list(line.values()), color=COLOURS[variant], linewidth=1.2)


def is_fitted(model: str, gpus: int, compares_buckets: bool) -> bool:
    return model == FITTED_MODEL and (gpus <= LARGEST_AB or not compares_buckets)


def draw_column(column: list[Axes], suite: Suite, model: str) -> None:
    for variant in VARIANTS:
        for axes, line in zip(column, simulated(suite, model, variant)):
            draw_line(axes, line, variant)
        if len(suite.bucket_sizes) == 2:
            draw_line(column[2], own_diffs(suite, model, variant, AB_PERCENT), variant)
    for axes, line in zip(column, (*published(model), published_diffs(model, AB_PERCENT))):
        points = [(gpus, value, is_fitted(model, gpus, axes is column[2])) for gpus, value in line.items()]
        published_scale.draw_published(axes, points, style.GREY, "D")
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(line), [str(gpus) for gpus in line])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(axis="y")
    column[0].set_title(model, loc="left", fontsize=8)
    column[0].margins(y=0.15)
    column[1].set_ylim(bottom=0)
    column[2].axhline(0, color="black", linewidth=0.6)
    column[2].set_xlabel("GPUs")


def draw(suite: Suite) -> Figure:
    published_scale.require_simulated(suite.result)
    figure, panels = style.panels(HEIGHT, len(ROWS), len(suite.models), sharex=True, squeeze=False)
    for index, model in enumerate(suite.models):
        draw_column(list(panels[:, index]), suite, model)
    for axes, label in zip(panels[:, 0], ROWS):
        axes.set_ylabel(label)
    handles = [Line2D([], [], color=COLOURS[variant], label=name) for variant, name in VARIANTS.items()]
    handles += published_scale.kinds_of_points()
    figure.legend(handles=handles, loc="outside upper left", ncols=3, fontsize=7, columnspacing=1.3, handlelength=1.8)
    published_scale.add_caption(
        figure, suite.result, predictions.ddp_suite(suite.result.file), f"Batch {suite.batch_size} a GPU, buckets of "
        "25 MB. Rounds without DDP are given for each model, all that DDP adds is predicted from ResNet-50's. 1 MB "
        "against 25 MB: below zero 1 MB is slower; beyond one machine published differences follow no pattern, and are "
        "not counted.",
        (ITERATION, OVERHEAD, AB),
    )  # fmt: skip
    return figure


main = script.main(__name__, __doc__, script.of_each(Suite, draw, PROGRAM))
