"""Draws the time of an iteration over bucket size, as measured: a figure for each batch size, a line for each sequence
length, beside them the variants without buckets.

Reads a result file of the benchmark bucketed_ddp. The published numbers stand in the figures of
bucketed_ddp_published.py: this machine, with the model that fits it, need not show the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import script, style, training_times
from figures.lib.result_files import left_out, link, load
from figures.lib.training_times import ALL_REDUCE, BUCKETED, COMPUTE, REDUCER, TRAIN, UNBUCKETED

MARKED = f"{REDUCER}*"
GAP, ASIDE = 0.5, 0.12  # before the variants without buckets; between lines. A place on the axis is 1 wide.
PARTS = {TRAIN: "time of an iteration [ms]", ALL_REDUCE: "of it all-reduce in finish() [ms]"}
HEIGHT = 3.6  # inches
KEYS = ["seq_len", "place"]


def label_places(axes: Axes, caps: dict[int, int], others: list[str]) -> None:
    """Bucket sizes, then variants without buckets."""
    scaled = any(cap != size << 20 for size, cap in caps.items())
    names = [f"{size} MB" + (f"\n{training_times.size_in_words(caps[size])}" if scaled else "") for size in caps]
    names += [MARKED if variant == REDUCER else variant for variant in others]
    at = [*range(len(caps)), *(len(caps) + GAP + index for index in range(len(others)))]
    axes.set_xticks(at, names, rotation=90, fontsize=6.5)
    if caps:
        axes.set_xlabel("size of a bucket" + (": MB of xl's gradients, and here" if scaled else ""))
        axes.axvline(len(caps) - 0.5 + GAP / 2, color="#BBBBBB", linewidth=0.6, linestyle=":")
    else:
        axes.set_xlabel("without buckets")


def with_places(rows: pd.DataFrame, caps: dict[int, int], others: list[str]) -> pd.DataFrame:
    places = {BUCKETED: -1, **{variant: len(caps) + GAP + index for index, variant in enumerate(others)}}
    of_caps = rows["bucket_size_mb"].map({size: index for index, size in enumerate(caps)})
    return rows.assign(place=rows["variant"].map(places).where(rows["variant"] != BUCKETED, of_caps))


def draw_panel(axes: Axes, times: pd.DataFrame, calls: pd.DataFrame, part: str) -> None:
    """Means, and bars for the spread of what was timed: the Reducer's wait is a difference of means, without one."""
    if part == ALL_REDUCE:
        times = times[times["variant"] != COMPUTE]
    timed = calls[(calls["part"] == part) & ((calls["variant"] != REDUCER) | (part == TRAIN))]
    slowest = timed.groupby([*KEYS, "call"])["value"].max().groupby(level=KEYS)
    low, high = 1e3 * slowest.quantile(0.1), 1e3 * slowest.quantile(0.9)
    lengths = sorted(times["seq_len"].unique())
    for index, length in enumerate(lengths):
        colour, marker = style.line_look(index)
        aside = ASIDE * (index - (len(lengths) - 1) / 2)  # no bar hides another
        own = times[times["seq_len"] == length].sort_values("place")
        for buckets, look in ((True, {"label": f"{length} tokens"}), (False, {"linestyle": "none"})):
            rows = own[(own["variant"] == BUCKETED) == buckets]
            axes.plot(
                rows["place"] + aside, 1e3 * rows[part], color=colour, marker=marker, markersize=4, linewidth=1.2,
                zorder=4, **look,
            )  # fmt: skip
        places = [place for place in own["place"] if (length, place) in low.index]
        spread = [(length, place) for place in places]
        axes.vlines(
            [place + aside for place in places], low[spread], high[spread], color=colour, linewidth=0.9, alpha=0.6
        )
    axes.set_ylim(bottom=0 if times[part].min() >= 0 else None)  # noise may put the Reducer's wait below
    axes.set_ylabel(PARTS[part])
    axes.grid(axis="y")
    axes.tick_params(axis="y", labelsize=7)


def draw(result: pd.DataFrame, times: pd.DataFrame, batch: int) -> Figure:
    """The whole iteration, and beside it what of it is all-reduce."""
    times = times[times["local_bs"] == batch]
    calls = training_times.trainings(result).query("local_bs == @batch")
    bucketed = times[times["variant"] == BUCKETED].sort_values("bucket_size_mb")
    caps = dict(zip(bucketed["bucket_size_mb"], bucketed["cap_bytes"]))
    others = [variant for variant in (*UNBUCKETED, COMPUTE) if variant in set(times["variant"])]
    figure, panels = style.panels(HEIGHT, 1, 2, sharex=True)
    for axes, part in zip(panels, PARTS):
        draw_panel(axes, with_places(times, caps, others), with_places(calls, caps, others), part)
        label_places(axes, caps, others)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(handles), fontsize=7)
    values, provenance = result.attrs["parameters"], result.attrs["provenance"]
    device = "GPU" if provenance["device"] == "cuda" else "CPU"
    order = "in turns" if values["interleaved"] else "one variant after the other"
    text = (
        f"{values['model']}, {values['parameters'] / 1e6:,.3g} M parameters, batch {batch} a rank; "
        f"{provenance['world_size']} ranks ({device}), {link(result)}. Means of {values['repetitions']} iterations "
        f"with AdamW ({order}), largest of all ranks; bars: 10th to 90th percentile of the slowest rank. "
        f"{training_times.THRESHOLD}"
    )
    if REDUCER in others:
        text += f" {MARKED} waits inside backward: right, what its backward takes beyond that of computing alone."
    style.add_caption(figure, text + left_out((*UNBUCKETED, BUCKETED), set(times["variant"])), [result])
    return figure


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    for result in (load(file, training_times.PROGRAM) for file in files):
        times = training_times.times(result)
        for batch in sorted(times["local_bs"].unique()):
            yield script.name_of(f"bucketed_batch_size_{batch}", result), draw(result, times, batch)


main = script.main(__name__, __doc__, figures)
