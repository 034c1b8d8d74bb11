"""Draws the time of an iteration over bucket size, as measured: a figure for each batch size, a line for each sequence
length, beside them the variants without buckets.

Reads a result file of the benchmark bucketed_ddp. The published numbers stand in the figures of
bucketed_ddp_published.py: this machine, with the model that fits it, need not show the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import script, style, training_times
from figures.lib.result_files import Result, left_out
from figures.lib.training_times import ALL_REDUCE, BUCKETED, COMPUTE, REDUCER, TRAIN, UNBUCKETED, Trainings, Way

MARKED = f"{REDUCER}*"
GAP, ASIDE = 0.5, 0.12  # before the variants without buckets; between lines. A place on the axis is 1 wide.
PARTS = {TRAIN: "time of an iteration [ms]", ALL_REDUCE: "of it all-reduce in finish() [ms]"}
HEIGHT = 3.6  # inches


class Places:
    """The places on the axis of both panels: bucket sizes, then variants without buckets."""

    def __init__(self, trainings: Trainings, batch: int) -> None:
        ways = [way for way in trainings.ways() if way.local_bs == batch]
        self.caps = {way.bucket_size_mb: way.cap_bytes for way in ways if way.bucket_size_mb is not None}
        here = {way.variant for way in ways}
        self.others = [variant for variant in (*UNBUCKETED, COMPUTE) if variant in here]
        self.scaled = any(cap != size << 20 for size, cap in self.caps.items())

    def of(self, way: Way) -> float:
        if way.bucket_size_mb is not None:
            return sorted(self.caps).index(way.bucket_size_mb)
        return len(self.caps) + GAP + self.others.index(way.variant)

    def label(self, axes: Axes) -> None:
        caps = {size: f"\n{training_times.size_in_words(cap)}" for size, cap in self.caps.items()}
        names = [f"{size} MB{caps[size] if self.scaled else ''}" for size in sorted(caps)]
        names += [MARKED if variant == REDUCER else variant for variant in self.others]
        at = [*range(len(self.caps)), *(len(self.caps) + GAP + index for index in range(len(self.others)))]
        axes.set_xticks(at, names, rotation=90, fontsize=6.5)
        if not self.caps:
            return axes.set_xlabel("without buckets")
        axes.set_xlabel("size of a bucket" + (": MB of xl's gradients, and here" if self.scaled else ""))
        axes.axvline(len(self.caps) - 0.5 + GAP / 2, color="#BBBBBB", linewidth=0.6, linestyle=":")


def seconds(trainings: Trainings, way: Way, part: str) -> float:
    return trainings.seconds(way, TRAIN) if part == TRAIN else trainings.times(way).all_reduce


def draw_ways(axes: Axes, trainings: Trainings, part: str, at: dict[Way, float], look: dict[str, Any]) -> None:
    """Means, and bars for the spread of what was timed: the Reducer's wait is a difference of means, without one."""
    means = [1e3 * seconds(trainings, way, part) for way in at]
    axes.plot(list(at.values()), means, markersize=4, linewidth=1.2, zorder=4, **look)
    for way, x in at.items():
        if part == TRAIN or way.variant != REDUCER:
            low, high = np.percentile(trainings.iterations(way, part), [10, 90])
            axes.vlines(x, 1e3 * low, 1e3 * high, color=look["color"], linewidth=0.9, alpha=0.6)


def draw_panel(axes: Axes, trainings: Trainings, batch: int, part: str, places: Places) -> None:
    lengths = trainings.lengths(batch)
    for index, length in enumerate(lengths):
        look = dict(zip(("color", "marker"), style.line_look(index)))
        aside = ASIDE * (index - (len(lengths) - 1) / 2)  # no bar hides another
        waiting = [variant for variant in places.others if (variant, part) != (COMPUTE, ALL_REDUCE)]
        others = [way for way in (Way(batch, length, variant) for variant in waiting) if trainings.has(way)]
        lines = (trainings.bucketed(batch, length), {"label": f"{length} tokens"}), (others, {"linestyle": "none"})
        for ways, kind in lines:
            draw_ways(axes, trainings, part, {way: places.of(way) + aside for way in ways}, look | kind)
    places.label(axes)
    least = min(seconds(trainings, way, part) for way in trainings.ways() if way.local_bs == batch)
    axes.set_ylim(bottom=0 if least >= 0 else None)  # noise may put the Reducer's wait below
    axes.set_ylabel(PARTS[part])
    axes.grid(axis="y")
    axes.tick_params(axis="y", labelsize=7)


def draw(result: Result, trainings: Trainings, batch: int) -> Figure:
    """The whole iteration, and beside it what of it is all-reduce."""
    places = Places(trainings, batch)
    figure, panels = style.panels(HEIGHT, 1, 2, sharex=True)
    for axes, part in zip(panels, PARTS):
        draw_panel(axes, trainings, batch, part, places)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(handles), fontsize=7)
    add_caption(figure, result, batch, places)
    return figure


def add_caption(figure: Figure, result: Result, batch: int, places: Places) -> None:
    values, ranks = result.parameters, result.provenance["world_size"]
    device = "GPU" if result.provenance["device"] == "cuda" else "CPU"
    order = "in turns" if values["interleaved"] else "one variant after the other"
    text = (
        f"{values['model']}, {values['parameters'] / 1e6:,.3g} M parameters, batch {batch} a rank; {ranks} ranks "
        f"({device}), {result.link}. Means of {values['repetitions']} iterations with AdamW ({order}), largest of all "
        f"ranks; bars: 10th to 90th percentile of the slowest rank. {training_times.THRESHOLD}"
    )
    if REDUCER in places.others:
        text += f" {MARKED} waits inside backward: right, what its backward takes beyond that of computing alone."
    there = [*places.others, *([BUCKETED] if places.caps else [])]
    style.add_caption(figure, text + left_out((*UNBUCKETED, BUCKETED), there), [result])


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    for file in files:
        result, trainings = training_times.load_trainings(file)
        for batch in trainings.batches():
            yield script.name_of(f"bucketed_batch_size_{batch}", result), draw(result, trainings, batch)


main = script.main(__name__, __doc__, figures)
