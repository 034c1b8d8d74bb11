"""Draws the time of an iteration over bucket size: a figure for each batch size, a colour for each sequence length.
Variants without buckets stand beside the axis of bucket sizes.

Reads a result file of the benchmark bucketed_ddp. Published numbers are drawn beside --preset published alone: this
machine, with the model that fits it, need not show the same.
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
from figures.lib.result_files import left_out, link, load, pick, simulated
from figures.lib.training_times import ALL_REDUCE, BUCKETED, COMPUTE, PROGRAM, REDUCER, TRAIN, UNBUCKETED, WAY

# Of a part the axis, and the held-out measurements of it.
PARTS = {
    TRAIN: ("time of an iteration [ms]", held_out.STEP),
    ALL_REDUCE: ("of it in finish() [ms]", held_out.AFTER),
}
HEIGHT = 5.4  # inches
Looks = dict[int, tuple[str, str]]  # a colour and a marker for each sequence length


def milliseconds(result: pd.DataFrame, part: str) -> pd.DataFrame:
    """Means by WAY, and the 10th and 90th percentile, low and high, of what the slowest rank took. The Reducer's
    all-reduce is a difference of means, and has none."""
    calls = pick(training_times.trainings(result), part=part)
    slowest = 1e3 * calls.groupby([*WAY, "call"])["value"].max()
    spread = slowest.groupby(level=WAY).quantile([0.1, 0.9]).unstack().set_axis(["low", "high"], axis="columns")
    means = training_times.times(result)
    means = means.assign(mean=1e3 * means[part]).join(spread, on=WAY)
    if part == ALL_REDUCE:
        means.loc[means["variant"] == REDUCER, ["low", "high"]] = float("nan")
        means = means[means["variant"] != COMPUTE]
    return means


def draw_buckets(axes: Axes, times: pd.DataFrame, looks: Looks, marked: bool) -> None:
    for index, (length, (colour, marker)) in enumerate(looks.items()):
        line = times[times["seq_len"] == length].sort_values("bucket_size_mb")
        beside = line["bucket_size_mb"] * 1.04**index if marked else line["bucket_size_mb"]  # no bar hides another
        axes.plot(beside, line["mean"], color=colour, linewidth=1.3, marker=marker if marked else "", markersize=3.8)
        axes.vlines(beside, line["low"], line["high"], color=colour, linewidth=0.9, alpha=0.6)


def draw_published(axes: Axes, published: pd.DataFrame, part: str, looks: Looks) -> None:
    for length, points in published.groupby("seq_len"):
        by_size = 1e3 * points.set_index("bucket_size_mb")[part]
        published_scale.draw_published(axes, by_size, predictions.is_fitted(points), *looks[length])


def draw_others(axes: Axes, times: pd.DataFrame, variants: list[str], looks: Looks) -> None:
    """Variants without buckets, each at a place of its own."""
    for row in times[times["variant"].isin(variants)].itertuples():
        place, aside = variants.index(row.variant), 0.1 * (list(looks).index(row.seq_len) - (len(looks) - 1) / 2)
        colour = looks[row.seq_len][0]
        axes.hlines(row.mean, place - 0.35, place + 0.35, color=colour, linewidth=1.3)
        axes.vlines(place + aside, row.low, row.high, color=colour, linewidth=0.9, alpha=0.6)
    names = [variant + ("*" if variant == REDUCER else "") for variant in variants]
    axes.set_xticks(range(len(variants)), names, rotation=90, fontsize=6.5)
    axes.set_xlim(-0.6, len(variants) - 0.4)


def draw_held_out(axes: Axes, batch: int, part: str, variants: list[str], looks: Looks) -> None:
    known = pick(held_out.rows(), source="A", batch=str(batch), metric=PARTS[part][1])
    for row in known[known["method"].isin(variants)].itertuples():
        point = pd.Series({variants.index(row.method): 1e3 * row.published})
        published_scale.draw_published(axes, point, [False], *looks.get(int(row.seq), (style.GREY, "o")))


def caption(result: pd.DataFrame, times: pd.DataFrame) -> str:
    values, provenance = result.attrs["parameters"], result.attrs["provenance"]
    text = (
        "* The Reducer waits inside backward (below: what that takes beyond computing alone). "
        f"{training_times.THRESHOLD}{left_out((BUCKETED, *UNBUCKETED), set(result['variant']))}"
    )
    if simulated(result):
        return f"{values['model']}, {values['parameters']:,} parameters. {text} The scales do not begin at 0."
    caps = dict(sorted(zip(times["bucket_size_mb"], times["cap_bytes"])))
    here = ", ".join(f"{size} MB is {training_times.size_in_words(cap)}" for size, cap in caps.items() if size)
    return (
        f"{values['model']}, {values['parameters'] / 1e6:,.3g} M parameters, {provenance['world_size']} ranks, "
        f"{link(result)}. Means of {values['repetitions']} iterations with AdamW, largest of all ranks; bars: 10th to "
        f"90th percentile. {text}" + (f" Buckets: MB of xl's gradients; here {here}." if here else "")
    )


def draw(result: pd.DataFrame, batch: int) -> Figure:
    published = pick(training_times.published_times(), local_bs=batch if simulated(result) else 0)
    of_parts = {part: pick(milliseconds(result, part), local_bs=batch) for part in PARTS}
    times = of_parts[TRAIN]
    lengths = sorted({*times["seq_len"], *published["seq_len"]})
    looks = {length: style.line_look(index) for index, length in enumerate(lengths)}
    variants = [variant for variant in (*UNBUCKETED, COMPUTE) if variant in set(times["variant"])]
    sizes = sorted({*times["bucket_size_mb"], *published["bucket_size_mb"]} - {0})
    ratios = {"width_ratios": (2.4, 1), "height_ratios": (1.25, 1)}
    figure, panels = style.panels(HEIGHT, 2, 2, sharex="col", sharey="row" if published.empty else False, **ratios)
    for (buckets, others), (part, of_part) in zip(panels, of_parts.items()):
        draw_buckets(buckets, of_part[of_part["variant"] == BUCKETED], looks, marked=published.empty)
        draw_others(others, of_part, variants, looks)
        if len(published):
            draw_published(buckets, published, part, looks)
            draw_held_out(others, batch, part, variants, looks)
        elif of_part["mean"].min() >= 0:  # noise may put the Reducer's wait below
            buckets.set_ylim(bottom=0)
        buckets.set_xscale("log")
        buckets.set_xticks(sizes, map(str, sizes))
        buckets.xaxis.set_minor_locator(NullLocator())
        buckets.set_ylabel(PARTS[part][0])
        for axes in (buckets, others):
            axes.grid(axis="y")
    panels[0, 0].set_title(f"batch {batch} a {'GPU' if len(published) else 'rank'}", loc="left")
    panels[0, 1].set_title("without buckets", loc="left")
    panels[1, 0].set_xlabel("size at which a bucket closes [MB]")
    looks_of = ({"color": colour, "marker": marker} for colour, marker in looks.values())
    handles = [Line2D([], [], markersize=3.8, label=f"{n} tokens", **look) for n, look in zip(looks, looks_of)]
    if len(published):
        published_scale.add_legend(figure, handles)
        quantities = (predictions.TOTAL, predictions.ALL_REDUCE)
        cells = predictions.bucketed_ddp(result)
        published_scale.add_caption(figure, result, cells, caption(result, times), quantities)
    else:
        figure.legend(handles=handles, loc="outside upper left", ncols=len(handles), fontsize=7)
        style.add_caption(figure, caption(result, times), [result])
    return figure


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    for result in (load(file, PROGRAM) for file in files):
        for batch in sorted(result["local_bs"].unique()):
            yield script.name_of(f"bucketed_batch_size_{batch}", result), draw(result, batch)


main = script.main(__name__, __doc__, figures)
