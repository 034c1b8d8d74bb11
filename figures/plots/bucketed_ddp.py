"""Draws the time of an iteration over bucket size, and sets it as the published experiment prints it.

Reads result files of the benchmark bucketed_ddp. There is a figure for each batch size, with a colour for each sequence
length; variants without buckets stand beside the axis. Published numbers are drawn beside its simulated runs alone:
this machine, with the model that fits it, need not show the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from figures.lib import held_out, predictions, script, style, training_times
from figures.lib.predictions import TIMES_ONLY, setup_in_words
from figures.lib.result_files import left_out, link, load, name_of, pick, simulated
from figures.lib.tables import Table, side_by_side
from figures.lib.training_times import ALL_REDUCE, BUCKETED, COMPUTE, PROGRAM, PUBLISHED, REDUCER, TRAIN, WAY

# Of a part the axis, and the held-out measurements of it.
PARTS = {
    TRAIN: ("time of an iteration [ms]", held_out.STEP),
    ALL_REDUCE: ("of it in finish() [ms]", held_out.AFTER),
}
LOOKS = style.LINE_LOOKS  # of sequence lengths
MARK = "*"  # at times that are not those of finish()
NUMBERS = list(PUBLISHED)
OTHERS = (*training_times.UNBUCKETED, COMPUTE)


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


def draw_buckets(axes: Axes, times: pd.DataFrame, published: pd.DataFrame, part: str, lengths: list[int]) -> None:
    for index, (length, look) in enumerate(zip(lengths, LOOKS)):
        line = times[times["seq_len"] == length].sort_values("bucket_size_mb")
        points = published[published["seq_len"] == length] if len(published) else published
        shown = {"color": look["color"]} if len(published) else {**look, "markersize": 3.8}
        beside = line["bucket_size_mb"] * (1 if len(published) else 1.04**index)  # no bar hides another
        axes.plot(beside, line["mean"], linewidth=1.3, **shown)
        axes.vlines(beside, line["low"], line["high"], color=look["color"], linewidth=0.9, alpha=0.6)
        if len(points):
            by_size = 1e3 * points.set_index("bucket_size_mb")[part]
            predictions.draw_published(axes, by_size, predictions.is_fitted(points), **look)
    sizes = sorted({*times["bucket_size_mb"], *(published["bucket_size_mb"] if len(published) else ())})
    axes.set_xscale("log")
    axes.set_xticks(sizes, map(str, sizes))
    axes.xaxis.set_minor_locator(NullLocator())


def draw_others(axes: Axes, times: pd.DataFrame, known: pd.DataFrame, variants: list[str], lengths: list[int]) -> None:
    """Variants without buckets, each at a place of its own, and what is `known` of them."""
    for row in times[times["variant"].isin(variants)].itertuples():
        index, place = lengths.index(row.seq_len), variants.index(row.variant)
        aside, colour = place + 0.1 * (index - (len(lengths) - 1) / 2), LOOKS[index]["color"]
        axes.hlines(row.mean, place - 0.35, place + 0.35, color=colour, linewidth=1.3)
        axes.vlines(aside, row.low, row.high, color=colour, linewidth=0.9, alpha=0.6)
    for row in known[known["method"].isin(variants)].itertuples():
        point = pd.Series({variants.index(row.method): 1e3 * row.published})
        look = dict(zip(map(str, lengths), LOOKS)).get(row.seq, {"color": style.GREY, "marker": "o"})
        predictions.draw_published(axes, point, [False], **look)
    names = [variant + ("*" if variant == REDUCER else "") for variant in variants]
    axes.set_xticks(range(len(variants)), names, rotation=90, fontsize=6.5)
    axes.set_xlim(-0.6, len(variants) - 0.4)


def caption(result: pd.DataFrame, times: pd.DataFrame) -> str:
    values, ranks = result.attrs["parameters"], result.attrs["provenance"]["world_size"]
    model = f"{values['model']}, {values['parameters'] / 1e6:,.4g} M parameters"
    text = (
        f"* The Reducer waits inside backward; below: beyond computing alone. {training_times.THRESHOLD}"
        f"{left_out((BUCKETED, *training_times.UNBUCKETED), set(result['variant']))}"
    )
    if simulated(result):
        return f"{model}. {text} The scales do not begin at 0."
    here = training_times.caps_in_words(times)
    return (
        f"{model}, {ranks} ranks, {link(result)}. Means of {values['repetitions']} iterations with AdamW, largest of "
        f"all ranks; bars: 10th to 90th percentile. {text}{here}"
    )


def draw(result: pd.DataFrame, batch: int) -> Figure:
    published = pick(training_times.published_times(), local_bs=batch if simulated(result) else 0)
    of_parts = {part: pick(milliseconds(result, part), local_bs=batch) for part in PARTS}
    times = of_parts[TRAIN]
    lengths = sorted({*times["seq_len"], *published["seq_len"]})
    variants = [variant for variant in (*training_times.UNBUCKETED, COMPUTE) if variant in set(times["variant"])]
    ratios = {"width_ratios": (2.4, 1), "height_ratios": (1.25, 1)}
    figure, panels = style.panels(5.4, 2, 2, sharex="col", sharey="row" if published.empty else False, **ratios)
    for (buckets, others), (part, of_part), (label, metric) in zip(panels, of_parts.items(), PARTS.values()):
        known = pick(held_out.rows(), source="A" if len(published) else "", batch=str(batch), metric=metric)
        draw_buckets(buckets, of_part[of_part["variant"] == BUCKETED], published, part, lengths)
        draw_others(others, of_part, known, variants, lengths)
        if published.empty and of_part["mean"].min() >= 0:  # noise may put the Reducer's wait below
            buckets.set_ylim(bottom=0)
        style.dress(buckets, y=label, grid="y")
        others.grid(axis="y")
    panels[0, 0].set_title(f"batch {batch} a {'GPU' if len(published) else 'rank'}", loc="left")
    panels[0, 1].set_title("without buckets", loc="left")
    panels[1, 0].set_xlabel("size at which a bucket closes [MB]")
    entries = {f"{length} tokens": {**look, "markersize": 3.8} for length, look in zip(lengths, LOOKS)}
    if published.empty:
        style.legend(figure, entries)
        return style.add_caption(figure, caption(result, times), [result])
    predictions.add_legend(figure, entries)
    quantities = (predictions.TOTAL, predictions.ALL_REDUCE)
    cells = predictions.bucketed_ddp(result)
    return predictions.add_caption(figure, result, cells, caption(result, times), quantities)


def marked(variant: str) -> str:
    return variant + (MARK if variant == REDUCER else "")


def grid(times: pd.DataFrame) -> pd.DataFrame:
    """For a page: a row for each batch and sequence, a column for each bucket size or variant without buckets."""
    total, waited = (1e3 * times[part] for part in (TRAIN, ALL_REDUCE))
    cells = total.map("{:.1f}".format) + waited.map(" ({:.1f})".format).where(times["variant"] != COMPUTE, "")
    sizes = times["bucket_size_mb"].map("{} MB".format)
    column = times["variant"].map(marked).where(times["variant"] != BUCKETED, sizes)
    wide = times.assign(cell=cells, column=column).pivot(index=["local_bs", "seq_len"], columns="column", values="cell")
    names = [f"{size} MB" for size in sorted(times["bucket_size_mb"].unique())] + [
        marked(variant) for variant in OTHERS
    ]
    wide = wide[[name for name in names if name in wide]].fillna("-").reset_index().astype(str)
    return wide.rename(columns={"local_bs": "batch", "seq_len": "tokens"})


def note_of(result: pd.DataFrame, bucketed: pd.DataFrame) -> str:
    values, ranks = result.attrs["parameters"], result.attrs["provenance"]["world_size"]
    model = f"{values['model']}, {values['parameters']:,} parameters"
    waits = (
        f"{MARK} The Reducer waits inside backward: what that takes beyond computing alone. {training_times.THRESHOLD}"
    )
    if simulated(result):
        return f"{setup_in_words(result)}; {model}. {waits} {TIMES_ONLY}"
    means = f"Means of {values['repetitions']} iterations, the largest of all ranks."
    return f"{ranks} ranks, {link(result)}; {model}. {means} {waits}{training_times.caps_in_words(bucketed)}"


def make(files: list[Path]) -> Iterator[tuple[str, Figure | Table]]:
    for result in (load(file, PROGRAM) for file in files):
        for batch in sorted(result["local_bs"].unique()):
            yield name_of(f"bucketed_batch_size_{batch}", result), draw(result, batch)
        times = training_times.times(result)
        bucketed, page = times[times["variant"] == BUCKETED], grid(times)
        note = note_of(result, bucketed)
        title = "Time of a training iteration, in parentheses of the gradient all-reduce [ms]"
        table = Table(title, list(page.columns), page.to_numpy().tolist(), [result], note)
        yield name_of(PROGRAM, result), table
        keys = ["local_bs", "seq_len", "bucket_size_mb"]
        own = bucketed[keys + NUMBERS].rename(columns=PUBLISHED)
        yield from side_by_side(PROGRAM, table, PROGRAM, keys, own)


main = script.main(__name__, __doc__, make)
