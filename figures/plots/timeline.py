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
from figures.lib.trace_files import COMMUNICATION, MOMENT, load_trace

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


def one_after_the_other(operations: pd.DataFrame) -> pd.DataFrame:
    """In real time an operation's span begins at its launch, and includes waiting in a queue. Returns the part of each
    span after the end of the operations of its rank that ended before it."""
    ordered = operations.sort_values("end", kind="stable")
    before = ordered.groupby(["group", "rank"])["end"].shift(fill_value=0)
    return ordered.assign(begin=np.minimum(np.maximum(ordered["launched"], before), ordered["end"]))


def labels_of(operation: Any) -> tuple[str, str]:
    """What is written on a box, and what if that is too long: the gradient's name; for a buffer with several gradients,
    its number; of a half of an all-reduce its name."""
    kind, size = kind_of(operation.name), operation.bytes
    if match := re.fullmatch(r"all-reduce of the gradient of (\S+)", operation.name):
        label = match[1]
    elif kind != "all-reduce":
        label = kind.removeprefix("all-").removesuffix("-scatter")
    else:
        label = "all gradients" if operation.count == 1 else f"bucket {operation.number:.0f}"
    return f"{label}, " + (f"{size / MIB:.1f} MiB" if size >= MIB / 10 else f"{size / 1024:.1f} KiB"), label


def look_of(event: Any) -> tuple[str, tuple[str, ...]]:
    """A box's colour, none if there is no box, and its labels."""
    part, _, layer = event.name.partition(" ")
    if event.kind == COMMUNICATION:
        return OPERATIONS[kind_of(event.name)], labels_of(event)
    if part == "launch":
        return LAUNCH, ()
    if not layer:
        return AROUND.get(part, ""), ()
    return {"forward": FORWARD, "backward": BACKWARD}.get(part, ""), (layer,)


class Picture:
    """The rows, from the top down: y in inches, which are made smaller until all fit on a page; x in milliseconds."""

    def __init__(self, variants: int, ranks: int) -> None:
        self._rank = 2 * LANE + LANE_GAP + RANK_GAP
        self._variant = HEADING + ranks * self._rank - RANK_GAP
        self._scale = min(1.0, (TALLEST - HEADER - FOOTER) / (variants * self._variant))
        self.height = variants * self._variant * self._scale

    def draw(self, axes: Axes, events: pd.DataFrame, variants: list[str], inch: float) -> None:
        """`inch` is one in milliseconds."""
        lane, gap = LANE * self._scale, LANE_GAP * self._scale
        tops = events["group"].map(variants.index) * self._variant + HEADING + events["rank"] * self._rank
        below = (events["kind"] == COMMUNICATION) * (LANE + LANE_GAP)
        events = events.assign(y=(tops + below) * self._scale)
        for (name, rank), rows in events.groupby(["group", "rank"]):
            middle = rows["y"].min() + lane + gap / 2
            axes.text(-0.06 * inch, middle, f"rank {rank}", ha="right", va="center", fontsize=6)
            if rank == 0:
                self._heading(axes, name, rows, variants.index(name) * self._variant * self._scale, inch)
        for event in events[events["kind"] != MOMENT].itertuples():
            self._box(axes, event, inch)
        operations = events[events["kind"] == COMMUNICATION]
        mark = {"marker": "v", "markersize": 2.2, "color": "black", "markeredgewidth": 0, "linestyle": "none"}
        axes.plot(operations["launched"], operations["y"] - gap / 2, **mark)
        for number, name in enumerate(variants):
            top = (number * self._variant + HEADING) * self._scale
            bottom = (number + 1) * self._variant * self._scale
            self._step_end(axes, events[events["group"] == name], top, bottom, inch)

    def _heading(self, axes: Axes, name: str, rows: pd.DataFrame, y: float, inch: float) -> None:
        y += (HEADING - 0.05) * self._scale
        axes.text(0, y, name, va="baseline", fontweight="bold", fontsize=7.5)
        counts = rows["name"][rows["kind"] == COMMUNICATION].map(kind_of).value_counts(sort=False)
        note = ", ".join(f"{count} {kind}{'s' if count != 1 else ''}" for kind, count in counts.items())
        axes.text(max(0.8, 0.08 * len(name)) * inch, y, note, va="baseline", fontsize=6.5, color="#555555")

    def _box(self, axes: Axes, event: Any, inch: float) -> None:
        (colour, labels), width, lane = look_of(event), event.end - event.begin, LANE * self._scale
        if not colour:
            return
        edge = 0.3 if width > NARROW * inch and labels else 0  # which would be all that is seen
        middle = event.y + lane / 2
        axes.barh(middle, width, left=event.begin, height=lane, color=colour, edgecolor="white", linewidth=edge)
        fitting = [label for label in labels if len(label) * CHARACTER * inch < width - 0.03 * inch]
        if fitting and self._scale > 0.7:
            look = {"ha": "center", "va": "center", "fontsize": LABEL_SIZE}
            look["color"] = "white" if colour == BACKWARD else "black"
            axes.text(event.begin + width / 2, middle + 0.005, fitting[0], **look)

    def _step_end(self, axes: Axes, events: pd.DataFrame, top: float, bottom: float, inch: float) -> None:
        time = events["end"][events["kind"] == MOMENT].max()
        axes.plot([time] * 2, [top - 0.03, bottom + 0.03], color="black", linewidth=1, clip_on=False)
        text = f"{time:.1f} ms" if time < 1000 else f"{time:,.0f} ms"
        axes.text(time + 0.05 * inch, (top + bottom) / 2, text, va="center", fontsize=7.5, fontweight="bold")


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


def shown_events(result: pd.DataFrame, events: pd.DataFrame, variants: list[str]) -> pd.DataFrame:
    """Those of the variants; an operation has its number among those of its rank, and their count."""
    events = events[events["group"].isin(variants)]
    operations = events[events["kind"] == COMMUNICATION]
    if result.attrs["parameters"]["clock"] == "real":
        operations = one_after_the_other(operations)
    launches = operations.groupby(["group", "rank"])["launched"]
    operations = operations.assign(number=launches.rank(method="first"), count=launches.transform("size"))
    return pd.concat([events[events["kind"] != COMMUNICATION], operations])


def draw(result: pd.DataFrame, events: pd.DataFrame) -> Figure:
    style.use_style()
    values, ranks = result.attrs["parameters"], result.attrs["provenance"]["world_size"]
    variants = [name for name in variants_of(result) if name in set(events["group"])]
    missing = [name for name in variants_of(result) if name not in variants]
    events = shown_events(result, events, variants)
    picture = Picture(len(variants), ranks)
    height = HEADER + picture.height + FOOTER
    figure = plt.figure(figsize=(style.TEXT_WIDTH, height))
    width = style.TEXT_WIDTH - LEFT - RIGHT
    place = (LEFT / style.TEXT_WIDTH, FOOTER / height, width / style.TEXT_WIDTH, picture.height / height)
    axes, end = figure.add_axes(place), events["end"][events["kind"] == MOMENT].max()
    picture.draw(axes, events, variants, end / width)
    axes.set_xlim(0, end)
    axes.set_ylim(picture.height + 0.05, 0)
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
    kinds = set(events["name"][events["kind"] == COMMUNICATION].map(kind_of))
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
