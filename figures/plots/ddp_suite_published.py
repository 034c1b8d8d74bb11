"""Draws PyTorch's suite for DDP at published scale: four ResNets to 64 GPUs, published points, simulated lines.

Rows: seconds of an iteration, what DDP adds to it, and buckets of 1 MB against 25 MB. Reads one result file of the
benchmark ddp_suite, made with --preset published.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from figures.lib import predictions, published_scale, script, style, suite_data
from figures.lib.predictions import AB, AB_PERCENT, FITTED_MODEL, ITERATION, LARGEST_AB, OVERHEAD, SUITE_BUCKET
from figures.lib.result_files import load_simulated
from figures.lib.suite_data import NO_DDP_ROUND, PROGRAM, VARIANTS

COLOURS = {"bucketed": style.BLUE, "Reducer": style.ORANGE}
ROWS = ("iteration [ms]", "DDP adds [ms]", "1 against 25 MB [%]")
HEIGHT = 5.8  # inches


def lines_of(rounds: pd.DataFrame, model: str) -> tuple[pd.Series, pd.Series]:
    """Milliseconds of an iteration, and those beyond the round without DDP, by the number of GPUs."""
    own = rounds[rounds["model"] == model]
    with_ddp = own["round"] != NO_DDP_ROUND
    steps = 1e3 * own[with_ddp].set_index("gpus")[50]
    return steps, steps - 1e3 * own[~with_ddp][50].iloc[0]


def draw_column(column: list[Axes], result: pd.DataFrame, model: str) -> None:
    several = len(suite_data.bucket_sizes(result)) == 2
    for variant, colour in COLOURS.items():
        lines = lines_of(suite_data.rounds(result, variant, SUITE_BUCKET, 50), model)
        diffs = [suite_data.diffs(result, variant, AB_PERCENT)[model]] if several else []
        for axes, line in zip(column, [*lines, *diffs]):
            axes.plot(line, color=colour, linewidth=1.2)
    published = (*lines_of(suite_data.published_rounds(), model), suite_data.published_diffs(AB_PERCENT)[model])
    for axes, points in zip(column, published):
        fitted = (model == FITTED_MODEL) & ((points.index <= LARGEST_AB) | (axes is not column[2]))
        published_scale.draw_published(axes, points, fitted, style.GREY, "D")
        axes.set_xscale("log", base=2)
        axes.set_xticks(points.index, map(str, points.index))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(axis="y")
    column[0].set_title(model, loc="left", fontsize=8)
    column[0].margins(y=0.15)
    column[1].set_ylim(bottom=0)
    column[2].axhline(0, color="black", linewidth=0.6)
    column[2].set_xlabel("GPUs")


def draw(result: pd.DataFrame) -> Figure:
    models = result["model"].unique()
    figure, panels = style.panels(HEIGHT, len(ROWS), len(models), sharex=True, squeeze=False)
    for model, column in zip(models, panels.T):
        draw_column(list(column), result, model)
    for axes, label in zip(panels[:, 0], ROWS):
        axes.set_ylabel(label)
    handles = [Line2D([], [], color=COLOURS[variant], label=name) for variant, name in VARIANTS.items()]
    published_scale.add_legend(figure, handles)
    published_scale.add_caption(
        figure, result, predictions.ddp_suite(result), f"Batch {result.attrs['parameters']['batch_size']} a GPU, "
        "buckets of 25 MB. Rounds without DDP are given for each model, all that DDP adds is predicted from "
        "ResNet-50's. 1 MB against 25 MB: below zero 1 MB is slower; beyond one machine published differences follow "
        "no pattern, and are not counted.",
        (ITERATION, OVERHEAD, AB),
    )  # fmt: skip
    return figure


main = script.main(__name__, __doc__, script.one_each(PROGRAM, draw, load=load_simulated))
