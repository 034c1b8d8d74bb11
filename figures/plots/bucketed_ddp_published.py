"""Draws the time of an iteration of xl over bucket size at published scale: published points, simulated lines.

A figure for each batch size, a colour for each sequence length. Reads a result file of the benchmark bucketed_ddp, made
with --preset published. Variants without buckets stand beside the axis of bucket sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from figures.lib import held_out, published_scale, script, style, training_times
from figures.lib.predictions import ALL_REDUCE, FITTED_WAYS, TOTAL, bucketed_ddp
from figures.lib.result_files import Result, left_out
from figures.lib.training_times import BUCKETED, COMPUTE, REDUCER, TRAIN, UNBUCKETED, Trainings, Way

PARTS = (("train", "time of an iteration [ms]"), ("all_reduce", "of it in finish() [ms]"))
HELD_OUT = {"train": held_out.STEP, "all_reduce": held_out.AFTER}
HEIGHT = 5.4  # inches


def looks_of(trainings: Trainings, batch: int) -> dict[int, tuple[str, str]]:
    """A colour and a marker for each sequence length."""
    published = {way.seq_len for way in training_times.published_times() if way.local_bs == batch}
    return {n: style.line_look(index) for index, n in enumerate(sorted({*trainings.lengths(batch), *published}))}


def draw_buckets(axes: Axes, trainings: Trainings, batch: int, part: str) -> None:
    for length, (colour, marker) in looks_of(trainings, batch).items():
        ways = trainings.bucketed(batch, length)
        times = [1e3 * getattr(trainings.times(way), part) for way in ways]
        axes.plot([way.bucket_size_mb for way in ways], times, color=colour, linewidth=1.3)
        points = [
            (way.bucket_size_mb, 1e3 * getattr(one, part), way in FITTED_WAYS)
            for way, one in training_times.published_times().items()
            if (way.local_bs, way.seq_len) == (batch, length)
        ]
        published_scale.draw_published(axes, points, colour, marker)
    ways = (*trainings.ways(), *training_times.published_times())
    sizes = sorted({way.bucket_size_mb for way in ways if way.variant == BUCKETED})
    axes.set_xscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y")


def time_of(trainings: Trainings, way: Way, part: str) -> float | None:
    """Seconds; none for the all-reduce of computing alone."""
    if way.variant == COMPUTE:
        return trainings.seconds(way, TRAIN) if part == "train" else None
    return getattr(trainings.times(way), part)


def draw_others(axes: Axes, trainings: Trainings, batch: int, part: str) -> None:
    """Variants without buckets, each at a place of its own."""
    here = {way.variant for way in trainings.ways()}
    variants = [variant for variant in (*UNBUCKETED, COMPUTE) if variant in here]
    for length in trainings.lengths(batch):
        colour, _ = looks_of(trainings, batch)[length]
        for place, variant in enumerate(variants):
            seconds = time_of(trainings, Way(batch, length, variant), part)
            if seconds is not None:
                axes.hlines(1e3 * seconds, place - 0.35, place + 0.35, color=colour, linewidth=1.3)
    wanted = [(variant, HELD_OUT[part]) for variant in variants]
    for row in held_out.rows():
        if row.source == "A" and row.batch == str(batch) and (row.method, row.metric) in wanted:
            colour, marker = looks_of(trainings, batch).get(int(row.seq), (style.GREY, "o"))
            point = (variants.index(row.method), 1e3 * row.published, False)
            published_scale.draw_published(axes, [point], colour, marker)
    names = [variant + ("*" if variant == REDUCER else "") for variant in variants]
    axes.set_xticks(range(len(variants)), names, rotation=90, fontsize=6.5)
    axes.set_xlim(-0.6, len(variants) - 0.4)
    axes.grid(axis="y")


def draw(result: Result, trainings: Trainings, batch: int) -> Figure:
    figure, panels = style.panels(HEIGHT, 2, 2, sharex="col", width_ratios=(2.4, 1), height_ratios=(1.25, 1))
    for (buckets, others), (part, label) in zip(panels, PARTS):
        draw_buckets(buckets, trainings, batch, part)
        draw_others(others, trainings, batch, part)
        buckets.set_ylabel(label)
    panels[0, 0].set_title(f"batch {batch} a GPU", loc="left")
    panels[0, 1].set_title("without buckets", loc="left")
    panels[1, 0].set_xlabel("size at which a bucket closes [MB]")
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=3.8, label=f"{length} tokens")
        for length, (colour, marker) in looks_of(trainings, batch).items()
    ]
    handles += published_scale.kinds_of_points()
    figure.legend(handles=handles, loc="outside upper left", ncols=3, fontsize=7, columnspacing=1.3, handlelength=1.8)
    values = result.parameters
    missing = left_out((BUCKETED, *UNBUCKETED), {way.variant for way in trainings.ways()})
    published_scale.add_caption(
        figure, result, bucketed_ddp(result.file), f"{values['model']}, {values['parameters']:,} parameters. * The "
        "Reducer waits inside backward (below: what that takes beyond computing alone), and copies nothing in Python. "
        f"{training_times.THRESHOLD} The scales do not begin at 0." + missing,
        (TOTAL, ALL_REDUCE),
    )  # fmt: skip
    return figure


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    for file in files:
        result, trainings = training_times.load_trainings(file)
        published_scale.require_simulated(result)
        for batch in trainings.batches():
            yield script.name_of(f"bucketed_batch_size_{batch}", result), draw(result, trainings, batch)


main = script.main(__name__, __doc__, figures)
