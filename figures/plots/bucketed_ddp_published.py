"""Draws the time of an iteration of xl over bucket size at published scale: published points, simulated lines.

A figure for each batch size, a colour for each sequence length. Reads a result file of the benchmark bucketed_ddp, made
with --preset published. Variants without buckets stand beside the axis of bucket sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from figures.lib import held_out, predictions, published_scale, script, style, training_times
from figures.lib.result_files import left_out, load_simulated
from figures.lib.training_times import ALL_REDUCE, BUCKETED, COMPUTE, PROGRAM, REDUCER, TRAIN, UNBUCKETED

# Of a part the axis, and the held-out measurements of it.
PARTS = {
    TRAIN: ("time of an iteration [ms]", held_out.STEP),
    ALL_REDUCE: ("of it in finish() [ms]", held_out.AFTER),
}
HEIGHT = 5.4  # inches
Looks = dict[int, tuple[str, str]]  # a colour and a marker for each sequence length


def draw_buckets(axes: Axes, times: pd.DataFrame, published: pd.DataFrame, part: str, looks: Looks) -> None:
    bucketed = times[times["variant"] == BUCKETED]
    for length, (colour, marker) in looks.items():
        line, points = (
            rows[rows["seq_len"] == length].sort_values("bucket_size_mb").set_index("bucket_size_mb")
            for rows in (bucketed, published)
        )
        axes.plot(1e3 * line[part], color=colour, linewidth=1.3)
        fitted = predictions.is_fitted(points.reset_index())
        published_scale.draw_published(axes, 1e3 * points[part], fitted, colour, marker)
    sizes = sorted({*bucketed["bucket_size_mb"], *published["bucket_size_mb"]})
    axes.set_xscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y")


def draw_others(axes: Axes, times: pd.DataFrame, part: str, batch: int, looks: Looks) -> None:
    """Variants without buckets, each at a place of its own."""
    variants = [variant for variant in (*UNBUCKETED, COMPUTE) if variant in set(times["variant"])]
    for _, row in times[times["variant"].isin(variants)].iterrows():
        if (row["variant"], part) != (COMPUTE, ALL_REDUCE):
            place, colour = variants.index(row["variant"]), looks[row["seq_len"]][0]
            axes.hlines(1e3 * row[part], place - 0.35, place + 0.35, color=colour, linewidth=1.3)
    known = held_out.rows().query("source == 'A' and batch == @batch and method in @variants")
    for row in known[known["metric"] == PARTS[part][1]].itertuples():
        point = pd.Series({variants.index(row.method): 1e3 * row.published})
        published_scale.draw_published(axes, point, [False], *looks.get(int(row.seq), (style.GREY, "o")))
    names = [variant + ("*" if variant == REDUCER else "") for variant in variants]
    axes.set_xticks(range(len(variants)), names, rotation=90, fontsize=6.5)
    axes.set_xlim(-0.6, len(variants) - 0.4)
    axes.grid(axis="y")


def draw(result: pd.DataFrame, times: pd.DataFrame, batch: int) -> Figure:
    times = times[times["local_bs"] == batch]
    published = training_times.published_times().query("local_bs == @batch")
    lengths = sorted({*times["seq_len"], *published["seq_len"]})
    looks = {length: style.line_look(index) for index, length in enumerate(lengths)}
    figure, panels = style.panels(HEIGHT, 2, 2, sharex="col", width_ratios=(2.4, 1), height_ratios=(1.25, 1))
    for (buckets, others), (part, (label, _)) in zip(panels, PARTS.items()):
        draw_buckets(buckets, times, published, part, looks)
        draw_others(others, times, part, str(batch), looks)
        buckets.set_ylabel(label)
    panels[0, 0].set_title(f"batch {batch} a GPU", loc="left")
    panels[0, 1].set_title("without buckets", loc="left")
    panels[1, 0].set_xlabel("size at which a bucket closes [MB]")
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=3.8, label=f"{length} tokens")
        for length, (colour, marker) in looks.items()
    ]
    published_scale.add_legend(figure, handles)
    values = result.attrs["parameters"]
    published_scale.add_caption(
        figure, result, predictions.bucketed_ddp(result), f"{values['model']}, {values['parameters']:,} parameters. * "
        "The Reducer waits inside backward (below: what that takes beyond computing alone), and copies nothing in "
        f"Python. {training_times.THRESHOLD} The scales do not begin at 0."
        + left_out((BUCKETED, *UNBUCKETED), set(result["variant"])), (predictions.TOTAL, predictions.ALL_REDUCE),
    )  # fmt: skip
    return figure


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    for result in (load_simulated(file, PROGRAM) for file in files):
        times = training_times.times(result)
        for batch in sorted(times["local_bs"].unique()):
            yield script.name_of(f"bucketed_batch_size_{batch}", result), draw(result, times, batch)


main = script.main(__name__, __doc__, figures)
