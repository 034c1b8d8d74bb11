"""Draws the suite's A/B of two bucket sizes: how much the second differs from the first, beside the published numbers.

Reads one result file of the benchmark ddp_suite, run with two bucket sizes, for each figure. Less than zero is slower.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from figures.lib import script, style
from figures.lib.published_scale import setup_in_words
from figures.lib.result_files import ResultError
from figures.lib.suite_data import PUBLISHED, VARIANTS, Diffs, Suite, own_diffs, published_diffs

NAME = "ddp_suite_ab"
PERCENTS = (75, 95)
COLOURS = {"bucketed": style.BLUE, "Reducer": style.ORANGE, PUBLISHED: style.GREY}
LABELS = {**VARIANTS, PUBLISHED: f"published: {PUBLISHED}, 25 against 1 MB"}
BAR_WIDTH = 0.27
LINEAR = 1  # percent: the axis is linear up to this value, and logarithmic beyond
TICKS = (-100, -10, -1, 0, 1, 10, 100)
HEIGHT = 4.0  # inches


def load_ab(file: Path) -> Suite:
    suite = Suite(file)
    if len(suite.bucket_sizes) != 2:
        count = len(suite.bucket_sizes)
        raise ResultError(f"{file}: has {count} bucket sizes, not two; run ddp_suite --bucket-size 25 1")
    return suite


def draw_panel(axes: Axes, places: list[int], lines: dict[str, Diffs]) -> None:
    for index, (name, diffs) in enumerate(lines.items()):
        at = [places.index(ranks) + (index - (len(lines) - 1) / 2) * BAR_WIDTH for ranks in diffs]
        axes.bar(at, list(diffs.values()), BAR_WIDTH, color=COLOURS[name], edgecolor="white", linewidth=0.3)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.5)
    axes.set_yticks(TICKS, [f"{tick:+d}" if tick else "0" for tick in TICKS])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(range(len(places)), [str(ranks) for ranks in places], fontsize=7)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.grid(axis="y")


def lines_of(suite: Suite, model: str, percent: int) -> dict[str, Diffs]:
    own = {variant: own_diffs(suite, model, variant, percent) for variant in VARIANTS}
    return {**own, PUBLISHED: published_diffs(model, percent)}


def add_caption(figure: Figure, suite: Suite) -> None:
    before, after = suite.bucket_sizes
    side = suite.result.parameters["image_size"]
    if suite.result.simulated:
        here = f"{setup_in_words(suite.result)}, without spread"
    else:
        kind = "ranks of one thread each" if suite.result.provenance["device"] == "cpu" else "ranks with a GPU each"
        here = f"{kind}, {suite.result.link}, in turns"
    text = (
        f"Buckets of {after} MB against {before} MB: −100·(test − baseline)/baseline of sec/iter; below zero {after} "
        f"MB is slower; beyond ±1 % the axis is logarithmic. Here: {here}, batch {suite.batch_size} of {side}×{side} "
        "images; published: 32 of 224×224."
    )
    style.add_caption(figure, text, [suite.result])


def draw(suite: Suite) -> Figure:
    """A column for each model of the result, a row for each percentile."""
    shape = (len(PERCENTS), len(suite.models))
    figure, panels = style.panels(HEIGHT, *shape, sharex=True, sharey=True, squeeze=False)
    lines = [[lines_of(suite, model, percent) for model in suite.models] for percent in PERCENTS]
    all_diffs = [diffs for row in lines for panel in row for diffs in panel.values()]
    places = sorted({ranks for diffs in all_diffs for ranks in diffs})
    for row, percent in enumerate(PERCENTS):
        for column, model in enumerate(suite.models):
            draw_panel(panels[row, column], places, lines[row][column])
            if row == 0:
                panels[row, column].set_title(model, loc="left", fontsize=8)
        panels[row, 0].set_ylabel(f"diff at p{percent} [%]")
    values = [-LINEAR, LINEAR, *(diff for diffs in all_diffs for diff in diffs.values())]
    panels[0, 0].set_ylim(1.3 * min(values), 1.3 * max(values))
    for axes in panels[-1]:
        axes.set_xlabel("ranks, or GPUs")
    handles = [Patch(color=COLOURS[name], label=label) for name, label in LABELS.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=3, fontsize=7, columnspacing=1.3, handlelength=1.2)
    add_caption(figure, suite)
    return figure


main = script.main(__name__, __doc__, script.of_each(load_ab, draw, NAME))
