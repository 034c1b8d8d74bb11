"""Draws how the throughput of DDP scales with the number of ranks, for four ResNets, beside the published suite.

Above: ex/sec of each rank; below: the same as a share of the round without DDP. Reads one result file of the benchmark
ddp_suite for each figure.
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.lib import script, style
from figures.lib.result_files import ResultError
from figures.lib.suite_data import NO_DDP_ROUND, PROGRAM, PUBLISHED, VARIANTS, Choice, Suite, load_published

COLOURS = {"bucketed": style.BLUE, "Reducer": style.ORANGE}
MARKERS = {"bucketed": "o", "Reducer": "s"}
PUBLISHED_STYLE = {"color": style.GREY, "marker": "D", "linestyle": "--", "linewidth": 0.9, "markersize": 3}
OWN_STYLE = {"linewidth": 1.1, "markersize": 3.8}
HEIGHT = 4.3  # inches


@dataclass(frozen=True)
class Point:
    """One round: ex/sec of each rank, at the median and where the slowest twentieth begins."""

    place: str  # on the axis: "no DDP", or the number of ranks
    median: float
    slow: float


def place_of(name: str, ranks: int) -> str:
    return "no\nDDP" if name == NO_DDP_ROUND else str(ranks)


def own_points(suite: Suite, model: str, choice: Choice) -> list[Point]:
    batch = suite.batch_size
    return [
        Point(place_of(one.name, one.ranks), batch / one.percentile(50), batch / one.percentile(95))
        for one in suite.rounds(model, choice)
    ]


def published_points(model: str) -> list[Point]:
    return [
        Point(place_of(one.name, one.ranks), one.examples(50), one.examples(95))
        for one in load_published().get(model, [])
    ]


def as_shares(points: list[Point]) -> list[Point]:
    """The points in percent of the round without DDP."""
    alone = points[0].median
    return [Point(point.place, 100 * point.median / alone, 100 * point.slow / alone) for point in points]


def places_of(lines: list[list[Point]]) -> list[str]:
    """The places on the axis: without DDP first, then by the number of ranks."""
    places = {point.place for points in lines for point in points}
    return sorted(places, key=lambda place: int(place) if place.isdigit() else 0)


def draw_line(axes: Axes, places: list[str], points: list[Point], shift: float, **look: object) -> None:
    at = [places.index(point.place) + shift for point in points]
    medians = [point.median for point in points]
    axes.vlines(at, [point.slow for point in points], medians, color=look["color"], linewidth=0.8)
    axes.plot(at, medians, **look)


def draw_column(column: list[Axes], suite: Suite, model: str, places: list[str]) -> None:
    lines = [(published_points(model), PUBLISHED_STYLE)]
    for variant in VARIANTS:
        look = {"color": COLOURS[variant], "marker": MARKERS[variant], **OWN_STYLE}
        lines.append((own_points(suite, model, Choice(variant, suite.bucket_sizes[0])), look))
    for shift, (points, look) in zip((0, -0.09, 0.09), lines):
        if points:
            draw_line(column[0], places, points, shift, **look)
            draw_line(column[1], places, as_shares(points), shift, **look)
    column[0].set_title(model, loc="left", fontsize=8)
    column[0].set_yscale("log")
    style.write_plain_numbers(column[0].yaxis, decades=4)
    column[1].axhline(100, color="black", linewidth=0.6)
    for axes in column:
        axes.grid(axis="y")
        axes.set_xticks(range(len(places)), places, fontsize=7)
        axes.set_xlim(-0.5, len(places) - 0.5)
    column[1].set_xlabel("ranks, or GPUs")


def add_legend(figure: Figure, suite: Suite) -> None:
    handles = [
        Line2D([], [], color=COLOURS[variant], marker=MARKERS[variant], label=name, **OWN_STYLE)
        for variant, name in VARIANTS.items()
    ]
    handles.append(Line2D([], [], label=f"published: {PUBLISHED}", **PUBLISHED_STYLE))
    figure.legend(handles=handles, loc="outside upper left", ncols=3, fontsize=7, columnspacing=1.3, handlelength=1.8)


def add_caption(figure: Figure, suite: Suite) -> None:
    kind = "ranks of one thread each" if suite.result.provenance["device"] == "cpu" else "ranks with a GPU each"
    side = suite.result.parameters["image_size"]
    style.add_caption(
        figure,
        f"Here: {kind}, {suite.result.link}, batch {suite.batch_size} of {side}×{side} images, buckets of "
        f"{suite.bucket_sizes[0]} MB; published: 32 of 224×224, 25 MB. Medians of all ranks' iterations; lines go to "
        "the slowest 5 % of them. Efficiency: relative to one rank without DDP, others idle.",
        [suite.result],
    )


def draw(suite: Suite) -> Figure:
    """A column for each model; rows: ex/sec, efficiency."""
    if len(suite.bucket_sizes) > 1:
        file = suite.result.file
        raise ResultError(f"{file}: has several bucket sizes; set it with figures.tables.ddp_suite_ab")
    figure, panels = style.panels(HEIGHT, 2, len(suite.models), sharex=True, sharey="row", squeeze=False)
    own = [own_points(suite, model, choice) for model in suite.models for choice in suite.choices()]
    places = places_of(own + [published_points(model) for model in suite.models])
    for index, model in enumerate(suite.models):
        draw_column(list(panels[:, index]), suite, model, places)
    panels[0, 0].set_ylabel("examples/s of a rank")
    panels[1, 0].set_ylabel("scaling efficiency [%]")
    panels[1, 0].set_ylim(bottom=0)
    add_legend(figure, suite)
    add_caption(figure, suite)
    return figure


main = script.main(__name__, __doc__, script.of_each(Suite, draw, PROGRAM))
