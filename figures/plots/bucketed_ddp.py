"""Draws the time of an iteration over bucket size: a figure for each batch size, a line for each sequence length.

Reads a result file of the benchmark bucketed_ddp. Variants without buckets are reference lines, which end at their
names; the published numbers, of another machine and a larger model, have separate panels.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from figures.lib import script, style
from figures.lib.result_files import Result
from figures.lib.training_times import (
    ALL_REDUCE,
    COMPUTE,
    REDUCER,
    THRESHOLD,
    TRAIN,
    UNBUCKETED,
    Trainings,
    Way,
    load_trainings,
    published_times,
    size_in_words,
)  # fmt: skip

COLOURS = (style.VERMILION, style.BLUE, style.GREEN, style.PURPLE, style.ORANGE, style.SKY)
MARKERS = ("o", "s", "^", "D", "v", "P")
MARKED = f"{REDUCER}*"
# Places of variants without buckets on the axis: beyond the largest bucket, in decades.
GAP, STEP = 0.55, 0.42
HEIGHT, LEGEND_HEIGHT, CAPTION_HEIGHT = 5.6, 0.28, 0.58  # inches


class Panels:
    """What the four panels of a figure share: the look of each sequence length, and the place of each way."""

    def __init__(self, trainings: Trainings, batch: int) -> None:
        self.trainings, self.batch = trainings, batch
        self.published = {way: times for way, times in published_times().items() if way.local_bs == batch}
        lengths = sorted({*trainings.lengths(batch), *(way.seq_len for way in self.published)})
        self.looks = {
            length: {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)], "markersize": 4.2}
            for i, length in enumerate(lengths)
        }
        measured = {way.variant for way in trainings.ways()}
        self.others = [variant for variant in (*UNBUCKETED, COMPUTE) if variant in measured]
        self.caps = {
            way.bucket_size_mb: way.cap_bytes
            for length in trainings.lengths(batch)
            for way in trainings.bucketed(batch, length)
        }

    def position(self, variant: str) -> float:
        return math.log10(max(self.caps)) + GAP + STEP * self.others.index(variant)

    def draw_bucketed(self, axes: Axes, part: str) -> None:
        for length in self.trainings.lengths(self.batch):
            ways = self.trainings.bucketed(self.batch, length)
            at = [math.log10(way.bucket_size_mb) for way in ways]
            means = [1e3 * self.trainings.seconds(way, part) for way in ways]
            spread = [np.percentile(self.trainings.iterations(way, part), [10, 90]) for way in ways]
            axes.vlines(at, *(1e3 * np.array(spread).T), color=self.looks[length]["color"], linewidth=0.8, alpha=0.6)
            axes.plot(at, means, linewidth=1.4, zorder=4, **self.looks[length])

    def draw_others(self, axes: Axes, value_of: dict[Way, float]) -> None:
        """Draws lines from the left edge to each variant's own place, so that close lines can be told apart."""
        left = math.log10(min(self.caps)) - 0.15
        for way, value in value_of.items():
            look = self.looks[way.seq_len]
            end = self.position(way.variant)
            axes.plot([left, end], [value, value], color=look["color"], linewidth=0.6, alpha=0.35)
            axes.plot(end, value, **(look | {"markersize": 3.4, "markerfacecolor": "white"}), linestyle="none")

    def unbucketed(self, variants: list[str]) -> list[Way]:
        ways = [Way(self.batch, n, v) for n in self.trainings.lengths(self.batch) for v in variants]
        return [way for way in ways if self.trainings.has(way)]

    def draw_here(self, train: Axes, all_reduce: Axes) -> None:
        self.draw_bucketed(train, TRAIN)
        self.draw_others(train, {w: 1e3 * self.trainings.seconds(w, TRAIN) for w in self.unbucketed(self.others)})
        self.draw_bucketed(all_reduce, ALL_REDUCE)
        waiting = self.unbucketed([variant for variant in self.others if variant != COMPUTE])
        self.draw_others(all_reduce, {way: 1e3 * self.trainings.times(way).all_reduce for way in waiting})
        for axes in (train, all_reduce):
            self.label_sizes(axes)

    def label_sizes(self, axes: Axes) -> None:
        ticks = {math.log10(size): self.size_label(size, cap) for size, cap in sorted(self.caps.items())}
        for variant in self.others:
            ticks[self.position(variant)] = MARKED if variant == REDUCER else variant
        axes.set_xticks(list(ticks), list(ticks.values()))
        for label, position in zip(axes.get_xticklabels(), ticks):
            if position > math.log10(max(self.caps)):
                label.set(rotation=90, fontsize=6.5)
        axes.axvline(self.position(self.others[0]) - GAP / 2, color="#BBBBBB", linewidth=0.6, linestyle=":")
        axes.set_xlim(math.log10(min(self.caps)) - 0.15, self.position(self.others[-1]) + 0.2)

    def size_label(self, size: int, cap: int) -> str:
        return f"{size} MB" if cap == size << 20 else f"{size} MB\n{size_in_words(cap)}"

    def draw_published(self, train: Axes, all_reduce: Axes) -> None:
        for axes, value_of in ((train, lambda times: times.train), (all_reduce, lambda times: times.all_reduce)):
            for length in sorted({way.seq_len for way in self.published}):
                rows = {way.bucket_size_mb: t for way, t in self.published.items() if way.seq_len == length}
                at = [math.log10(size) for size in rows]
                axes.plot(at, [1e3 * value_of(t) for t in rows.values()], linewidth=1.2, **self.looks[length])
            sizes = sorted({way.bucket_size_mb for way in self.published})
            axes.set_xticks([math.log10(size) for size in sizes], [f"{size}" for size in sizes])
            axes.set_xlim(math.log10(sizes[0]) - 0.3, math.log10(sizes[-1]) + 0.3)


def finish_axes(panels: np.ndarray, caption: str) -> None:
    for axes in panels[0]:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.tick_params(axis="y", which="minor", length=0)
    for axes in panels[1]:
        low, high = min(0, axes.get_ylim()[0]), axes.get_ylim()[1]
        axes.set_ylim(low, high + 0.04 * (high - low))
    for axes in panels.flat:
        axes.grid(axis="y")
        axes.tick_params(labelsize=7)
    panels[0, 0].set_ylabel("time of an iteration [ms]")
    panels[1, 0].set_ylabel("of it all-reduce in finish() [ms]")
    panels[1, 0].set_xlabel(caption, loc="left")
    panels[1, 1].set_xlabel("size of a bucket [MB]")


def draw(result: Result, trainings: Trainings, batch: int) -> Figure:
    """Columns: here, published. Rows: the whole iteration, its all-reduce."""
    style.use_style()
    panels_of = Panels(trainings, batch)
    width = [2.1, 1] if panels_of.published else [1, 0.001]
    figure, panels = plt.subplots(
        2, 2, figsize=(style.TEXT_WIDTH, HEIGHT), width_ratios=width, height_ratios=[1.25, 1], layout="constrained"
    )
    rect = (0, CAPTION_HEIGHT / HEIGHT, 1, 1 - (CAPTION_HEIGHT + LEGEND_HEIGHT) / HEIGHT)
    figure.get_layout_engine().set(rect=rect)
    panels_of.draw_here(panels[0, 0], panels[1, 0])
    if panels_of.published:
        panels_of.draw_published(panels[0, 1], panels[1, 1])
        panels[0, 1].set_title("published: xl, 2 GPUs", loc="left")
    else:
        for axes in panels[:, 1]:
            axes.set_axis_off()
    values = result.parameters
    scaled = any(cap != size << 20 for size, cap in panels_of.caps.items())
    finish_axes(panels, "size of a bucket: MB of xl's gradients, and here" if scaled else "size of a bucket")
    device = "GPU" if result.provenance["device"] == "cuda" else "CPU"
    panels[0, 0].set_title(
        f"{values['model']}, {values['parameters'] / 1e6:,.3g} M parameters, batch {batch} a rank, {device}", loc="left"
    )
    add_legend(figure, panels_of)
    add_caption(figure, result, panels_of)
    return figure


def add_legend(figure: Figure, panels: Panels) -> None:
    handles = [Line2D([], [], linewidth=1.4, label=f"{n} tokens", **look) for n, look in panels.looks.items()]
    look = {"color": "#666666", "linewidth": 0.6, "marker": "o", "markersize": 3.4, "markerfacecolor": "white"}
    handles.append(Line2D([], [], label="without buckets", **look))
    figure.legend(
        handles=handles, loc="upper left", ncols=len(handles), fontsize=6.5, columnspacing=1, handlelength=1.5
    )


def add_caption(figure: Figure, result: Result, panels: Panels) -> None:
    values, ranks = result.parameters, result.provenance["world_size"]
    link = f"link limited to {values['rate_gbit']:g} Gbit/s" if values["rate_gbit"] else "the machine's own link"
    order = "in turns" if values["interleaved"] else "one variant after the other"
    text = (
        f"{ranks} ranks, {link}; means of {values['repetitions']} iterations with AdamW ({order}), "
        f"largest of all ranks; bars: "
        f"10th to 90th percentile\nof the slowest rank. {THRESHOLD}"
    )
    if REDUCER in panels.others:
        text += f"\n{MARKED} waits inside backward: below, what its backward takes beyond that of computing alone."
    missing = [variant for variant in UNBUCKETED if variant not in panels.others]
    if missing:
        text += f"\nLeft out: unfinished: {', '.join(missing)}."
    style.add_caption(figure, text, [result])


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    for file in files:
        result, trainings = load_trainings(file)
        for batch in trainings.batches():
            yield script.name_of(f"bucketed_batch_size_{batch}", result), draw(result, trainings, batch)


def main(arguments: list[str] | None = None) -> int:
    return script.run(__doc__.splitlines()[0], figures, arguments)


if __name__ == "__main__":
    sys.exit(main())
