"""Draws a training step: computing and communication of each rank, one variant below the other.

Reads result files of the benchmark timeline, and the Chrome trace that each of them names; draws one figure for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from figures.lib import script, style
from figures.lib.result_files import link, load
from figures.lib.trace_files import COMMUNICATION, COMPUTE, MOMENT, load_trace

PROGRAM = "timeline"
VARIANTS = ("naive", "flat", "overlapped", "bucketed", "Reducer")  # unless the result names others

FORWARD, BACKWARD, LAUNCH = style.SKY, style.BLUE, style.VERMILION
# Of operations, by how their names begin.
OPERATIONS = {"all-reduce": style.ORANGE, "reduce-scatter": style.ORANGE, "all-gather": style.GREEN}
# Around the layers: copying, waiting and everything else.
AROUND = {"forward": "#DDEFFA", "backward": "#CFE0EC", "finish": "#ECECEC"}

# Inches.
LANE = 0.135  # height of a row
LANE_GAP = 0.05  # between a rank's two rows: the marks of launches are there
RANK_GAP = 0.07
HEADING = 0.25  # a variant's name, and the space above it
LEFT, RIGHT = 0.45, 0.66  # beside the rows: ranks, times of steps
HEADER, FOOTER = 0.52, 0.66
TALLEST = 9.2  # of a figure on its page
LABEL_SIZE = 5.2
CHARACTER = 0.0415  # width of a character at that size
NARROW = 0.03  # width of a box too narrow for an edge
MIB = 1 << 20


def variants_of(result: pd.DataFrame) -> tuple[str, ...]:
    """Those that were asked for."""
    return tuple(filter(None, result.attrs["parameters"].get("variants", "").split(", "))) or VARIANTS


def kind_of(operation: str) -> str:
    return next((kind for kind in OPERATIONS if operation.startswith(kind)), "all-reduce")


def labels_of(operation: Any, number: int, count: int) -> tuple[str, str]:
    """What is written on a box, and what if that is too long: the gradient's name; for a buffer with several gradients,
    its number; of a half of an all-reduce its name."""
    kind = kind_of(operation.name)
    if match := re.fullmatch(r"all-reduce of the gradient of (\S+)", operation.name):
        label = match[1]
    elif kind != "all-reduce":
        label = kind.removeprefix("all-").removesuffix("-scatter")
    else:
        label = "all gradients" if count == 1 else f"bucket {number + 1}"
    size = operation.bytes
    return f"{label}, " + (f"{size / MIB:.1f} MiB" if size >= MIB / 10 else f"{size / 1024:.1f} KiB"), label


def one_after_the_other(operations: pd.DataFrame) -> pd.DataFrame:
    """In real time an operation's span begins at its launch, and includes waiting in a queue. Returns the part of each
    span after the end of the operations that ended before it."""
    ordered = operations.sort_values("end", kind="stable")
    begin = np.maximum(ordered["launched"], ordered["end"].shift(fill_value=0))
    return ordered.assign(begin=np.minimum(begin, ordered["end"]))


class Picture:
    """The rows, from the top down; y in inches, x in milliseconds."""

    def __init__(self, axes: Axes, inch: float, scale: float, real: bool) -> None:
        self._axes = axes
        self._inch = inch  # in milliseconds
        self._scale = scale
        self._real = real
        self._y = 0.0

    def variant(self, name: str, events: pd.DataFrame) -> None:
        heading = self._y + (HEADING - 0.05) * self._scale
        self._axes.text(0, heading, name, va="baseline", fontweight="bold", fontsize=7.5)
        first = events[(events["rank"] == 0) & (events["kind"] == COMMUNICATION)].sort_values(["begin", "end"])
        counts = first["name"].map(kind_of).value_counts(sort=False)
        note = ", ".join(f"{count} {kind}{'s' if count != 1 else ''}" for kind, count in counts.items())
        place = max(0.8, 0.08 * len(name)) * self._inch
        self._axes.text(place, heading, note, va="baseline", fontsize=6.5, color="#555555")
        self._y += HEADING * self._scale
        top = self._y
        for rank, own in events.groupby("rank"):
            self._y += (RANK_GAP if rank else 0) * self._scale
            self._rank(rank, own)
        self._step_end(top, events["end"][events["kind"] == MOMENT].max())

    def _rank(self, rank: int, events: pd.DataFrame) -> None:
        lane, gap = LANE * self._scale, LANE_GAP * self._scale
        middle = self._y + lane + gap / 2
        self._axes.text(-0.06 * self._inch, middle, f"rank {rank}", ha="right", va="center", fontsize=6)
        for span in events[events["kind"] == COMPUTE].itertuples():
            part, _, layer = span.name.partition(" ")
            if part in AROUND and not layer:
                self._box(span, lane, AROUND[part], (), edge=0)
            elif part == "launch":
                self._box(span, lane, LAUNCH, (), edge=0)
            elif part in ("forward", "backward"):
                self._box(span, lane, FORWARD if part == "forward" else BACKWARD, (layer,))
        self._y += lane + gap
        operations = events[events["kind"] == COMMUNICATION].sort_values(["begin", "end"], kind="stable")
        shown = one_after_the_other(operations) if self._real else operations
        numbers = shown["launched"].rank(method="first").astype(int) - 1
        for number, operation in zip(numbers, shown.itertuples()):
            labels = labels_of(operation, number, len(shown))
            self._box(operation, lane, OPERATIONS[kind_of(operation.name)], labels)
            self._axes.plot(
                operation.launched, self._y - gap / 2, marker="v", markersize=2.2, color="black", markeredgewidth=0
            )
        self._y += lane

    def _box(self, span: Any, lane: float, colour: str, labels: tuple[str, ...], edge: float = 0.3) -> None:
        width, middle = span.end - span.begin, self._y + lane / 2
        edge = edge if width > NARROW * self._inch else 0  # which would be all that is seen
        self._axes.barh(middle, width, left=span.begin, height=lane, color=colour, edgecolor="white", linewidth=edge)
        for label in labels:  # the first that fits
            if len(label) * CHARACTER * self._inch < width - 0.03 * self._inch and self._scale > 0.7:
                text_colour = "white" if colour == BACKWARD else "black"
                look = {"ha": "center", "va": "center", "fontsize": LABEL_SIZE, "color": text_colour}
                self._axes.text(span.begin + width / 2, middle + 0.005, label, **look)
                return

    def _step_end(self, top: float, time: float) -> None:
        self._axes.plot([time] * 2, [top - 0.03, self._y + 0.03], color="black", linewidth=1, clip_on=False)
        text = f"{time:.1f} ms" if time < 1000 else f"{time:,.0f} ms"
        place = (time + 0.05 * self._inch, (top + self._y) / 2)
        self._axes.text(*place, text, va="center", fontsize=7.5, fontweight="bold")


def heights(variants: int, ranks: int) -> tuple[float, float]:
    """The height of all rows in inches, and the scale that makes them fit on a page."""
    rank = 2 * LANE + LANE_GAP
    lanes = variants * (HEADING + ranks * rank + (ranks - 1) * RANK_GAP)
    scale = min(1.0, (TALLEST - HEADER - FOOTER) / lanes)
    return lanes * scale, scale


def subtitle(result: pd.DataFrame) -> str:
    values = result.attrs["parameters"]
    if values["clock"] == "virtual":
        return (
            f"virtual clock: latency α = {values['alpha_ns'] / 1e3:g} µs, "
            f"β = {values['beta_ns_per_byte']:g} ns a byte, "
            f"o = {values['launch_overhead_ns'] / 1e3:g} µs a launch; "
            f"each rank computes {values['slower']:.0%} longer than the one before"
        )
    if values["clock"] == "cluster":
        return (
            f"simulated cluster: {values['model']}, {values['batch_size']} sequences of {values['sequence_length']} "
            f"tokens a rank, {values['gpu']} at half of its peak, {values['link']}"
        )
    backend = result.attrs["provenance"]["backend"].replace("shm", "shared memory")
    return f"real time, {backend} on {link(result)}: the step of median length of {values['steps']}"


def add_legend(figure: Figure, top: float, clock: str, kinds: set[str]) -> None:
    by_colour: dict[str, list[str]] = {}
    for kind, colour in OPERATIONS.items():
        by_colour.setdefault(colour, []).extend([kind] if kind in kinds else [])
    handles = [
        Patch(color=FORWARD, label="forward"),
        Patch(color=BACKWARD, label="backward"),
        *([Patch(color=AROUND["backward"], label="around the layers")] if clock != "virtual" else []),
        *([Patch(color=LAUNCH, label="launching")] if clock != "cluster" else []),
        Patch(color=AROUND["finish"], label="in finish()"),
        *(Patch(color=colour, label=", ".join(names)) for colour, names in by_colour.items() if names),
        Line2D([], [], marker="v", color="black", linestyle="", markersize=3, markeredgewidth=0, label="its launch"),
        Line2D([], [], marker="|", color="black", linestyle="", markersize=8, label="end of the step"),
    ]
    size, space = (6.5, 1.2) if len(kinds) == 1 else (5.8, 0.8)
    figure.legend(
        handles=handles, loc="upper center", bbox_to_anchor=(0.5, top), ncols=len(handles), fontsize=size,
        columnspacing=space, handlelength=1, handletextpad=0.5, borderpad=0,
    )  # fmt: skip


def draw(result: pd.DataFrame, events: pd.DataFrame) -> Figure:
    style.use_style()
    values, ranks = result.attrs["parameters"], result.attrs["provenance"]["world_size"]
    variants = [name for name in variants_of(result) if name in set(events["group"])]
    missing = [name for name in variants_of(result) if name not in variants]
    lanes, scale = heights(len(variants), ranks)
    height = HEADER + lanes + FOOTER
    figure = plt.figure(figsize=(style.TEXT_WIDTH, height))
    width = style.TEXT_WIDTH - LEFT - RIGHT
    axes = figure.add_axes((LEFT / style.TEXT_WIDTH, FOOTER / height, width / style.TEXT_WIDTH, lanes / height))
    shown = events[events["group"].isin(variants)]
    end = shown["end"][shown["kind"] == MOMENT].max()
    picture = Picture(axes, end / width, scale, values["clock"] == "real")
    for name in variants:
        picture.variant(name, events[events["group"] == name])
    axes.set_xlim(0, end)
    axes.set_ylim(lanes + 0.05, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    note = f"\nleft out: unfinished: {', '.join(missing)}" if missing else ""
    axes.set_xlabel(f"time since the step began on all ranks [ms]{note}", fontsize=7)
    axes.tick_params(axis="x", labelsize=7)

    top, size = 1 - 0.07 / height, f"{values['parameters'] / 1e6:.1f} M parameters"
    title = f"One training step of {ranks} ranks, {size}, buckets of {values['cap_bytes'] / MIB:g} MiB"
    figure.text(0.5, top, title, ha="center", va="top", fontsize=9, fontweight="bold")
    figure.text(0.5, top - 0.17 / height, subtitle(result), ha="center", va="top", fontsize=6.5, color="#333333")
    kinds = set(shown["name"][shown["kind"] == COMMUNICATION].map(kind_of))
    add_legend(figure, 1 - 0.36 / height, values["clock"], kinds)
    style.add_provenance(figure, [result])
    return figure


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    """One figure for each file."""
    for file in files:
        result = load(file, PROGRAM)
        values = result.attrs["parameters"]
        part = "" if set(variants_of(result)) <= set(VARIANTS) else ".sharded"
        events = load_trace(file.parent / values["trace"])
        yield script.name_of(f"{PROGRAM}.{values['clock']}{part}", result), draw(result, events)


main = script.main(__name__, __doc__, figures)
