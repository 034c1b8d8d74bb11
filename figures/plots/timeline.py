"""Draws a training step: computing and communication of each rank, one variant below the other.

Reads result files of the benchmark timeline, and the Chrome trace that each of them names
(common/ddp/timeline/timeline.h); draws one figure for each.
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

from figures.lib import script, style
from figures.lib.result_files import left_out, link, load, name_of
from figures.lib.traces import COMMUNICATION, MOMENT, load_trace

PROGRAM = "timeline"
VARIANTS = ("naive", "flat", "overlapped", "bucketed", "Reducer")  # unless the result names others

FORWARD, BACKWARD, LAUNCH = style.SKY, style.BLUE, style.VERMILION
# Of operations, by how their names begin.
OPERATIONS = {"all-reduce": style.ORANGE, "reduce-scatter": style.ORANGE, "all-gather": style.GREEN}
# Around the layers: copying, waiting and everything else.
AROUND = {"forward": "#DDEFFA", "backward": "#CFE0EC", "finish": "#ECECEC"}

# Inches. All rows are made smaller if they do not fit on a page.
LANE = 0.135  # height of a row
LANE_GAP = 0.05  # between a rank's two rows: the marks of launches are there
RANK_GAP = 0.07
RANK = 2 * LANE + LANE_GAP + RANK_GAP
HEADING = 0.25  # a variant's name, and the space above it
LEFT, RIGHT = 0.45, 0.66  # beside the rows: ranks, times of steps
HEADER, FOOTER = 0.52, 0.66
TALLEST = 9.2  # of a figure on its page
CHARACTER = 0.0415  # width of a character on a box
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


def look_of(event: Any) -> tuple[str, tuple[str, ...]]:
    """A box's colour, none if there is no box, and its labels, of which the first that fits is written: of an operation
    the gradient's name, or a bucket's number; of a half of an all-reduce its name."""
    part, _, layer = event.name.partition(" ")
    if event.kind == COMMUNICATION:
        kind, size = kind_of(event.name), event.bytes
        label = "all gradients" if event.count == 1 else f"bucket {event.number:.0f}"
        if match := re.fullmatch(r"all-reduce of the gradient of (\S+)", event.name):
            label = match[1]
        elif kind != "all-reduce":
            label = kind.removeprefix("all-").removesuffix("-scatter")
        unit = f"{size / MIB:.1f} MiB" if size >= MIB / 10 else f"{size / 1024:.1f} KiB"
        return OPERATIONS[kind], (f"{label}, {unit}", label)
    if part == "launch":
        return LAUNCH, ()
    if not layer:
        return AROUND.get(part, ""), ()
    return {"forward": FORWARD, "backward": BACKWARD}.get(part, ""), (layer,)


def draw_box(axes: Axes, event: Any, inch: float, labelled: bool) -> None:
    (colour, labels), width = look_of(event), event.end - event.begin
    if not colour:
        return
    edge = 0.3 if width > NARROW * inch and labels else 0  # which would be all that is seen
    middle = event.y + LANE / 2
    axes.barh(middle, width, left=event.begin, height=LANE, color=colour, edgecolor="white", linewidth=edge)
    fitting = [label for label in labels if len(label) * CHARACTER * inch < width - 0.03 * inch]
    if fitting and labelled:
        look = {"ha": "center", "va": "center", "color": "white" if colour == BACKWARD else "black", "fontsize": 5.2}
        axes.text(event.begin + width / 2, middle + 0.005, fitting[0], **look)


def draw_variant(axes: Axes, events: pd.DataFrame, name: str, top: float, inch: float, labelled: bool) -> None:
    """Its name and operations, a pair of rows for each rank, and the end of the step; `inch` is one in milliseconds."""
    operations, ranks = events[events["kind"] == COMMUNICATION], events["rank"].max() + 1
    counts = operations["name"][operations["rank"] == 0].map(kind_of).value_counts(sort=False)
    note = ", ".join(f"{count} {kind}{'s' if count != 1 else ''}" for kind, count in counts.items())
    axes.text(0, top + HEADING - 0.05, name, va="baseline", fontweight="bold", fontsize=7.5)
    look = {"va": "baseline", "fontsize": 6.5, "color": "#555555"}
    axes.text(max(0.8, 0.08 * len(name)) * inch, top + HEADING - 0.05, note, **look)
    for rank in range(ranks):
        middle = top + HEADING + rank * RANK + LANE + LANE_GAP / 2
        axes.text(-0.06 * inch, middle, f"rank {rank}", ha="right", va="center", fontsize=6)
    rows = events.assign(
        y=top + HEADING + events["rank"] * RANK + (events["kind"] == COMMUNICATION) * (LANE + LANE_GAP)
    )
    for event in rows[rows["kind"] != MOMENT].itertuples():
        draw_box(axes, event, inch, labelled)
    mark = {"marker": "v", "markersize": 2.2, "color": "black", "markeredgewidth": 0, "linestyle": "none"}
    axes.plot(operations["launched"], rows["y"][operations.index] - LANE_GAP / 2, **mark)
    time = events["end"][events["kind"] == MOMENT].max()
    first, last = top + HEADING, top + HEADING + ranks * RANK - RANK_GAP
    axes.plot([time] * 2, [first - 0.03, last + 0.03], color="black", linewidth=1, clip_on=False)
    text = f"{time:.1f} ms" if time < 1000 else f"{time:,.0f} ms"
    axes.text(time + 0.05 * inch, (first + last) / 2, text, va="center", fontsize=7.5, fontweight="bold")


def subtitle(result: pd.DataFrame) -> str:
    values = result.attrs["parameters"]
    if values["clock"] == "virtual":
        return (
            f"virtual clock: α = {values['alpha_ns'] / 1e3:g} µs, β = {values['beta_ns_per_byte']:g} ns a byte, "
            f"o = {values['launch_overhead_ns'] / 1e3:g} µs a launch; "
            f"each rank computes {values['slower']:.0%} longer than the one before"
        )
    if values["clock"] == "cluster":
        return (
            f"simulated cluster: {values['model']}, {values['batch_size']} sequences of {values['sequence_length']} "
            f"tokens a rank, {values['gpu']} at half of its peak, {values['link']}"
        )
    backend = result.attrs["provenance"]["backend"]
    return f"real time, {backend} on {link(result)}: the step of median length of {values['steps']}"


def add_legend(figure: Figure, top: float, clock: str, kinds: set[str]) -> None:
    mark = {"color": "black", "linestyle": "", "markeredgewidth": 0}
    by_colour: dict[str, list[str]] = {}
    for kind in filter(kinds.__contains__, OPERATIONS):
        by_colour.setdefault(OPERATIONS[kind], []).append(kind)
    boxes = {
        "forward": FORWARD, "backward": BACKWARD, "around the layers": AROUND["backward"] if clock != "virtual" else "",
        "launching": LAUNCH if clock != "cluster" else "", "in finish()": AROUND["finish"],
        **{", ".join(names): colour for colour, names in by_colour.items()},
    }  # fmt: skip
    entries = {name: {"facecolor": colour} for name, colour in boxes.items() if colour} | {
        "its launch": {"marker": "v", "markersize": 3, **mark},
        "end of the step": {"marker": "|", "markersize": 8, **mark, "markeredgewidth": 1},
    }
    size, space = (6.5, 1.2) if len(kinds) == 1 else (5.8, 0.8)
    look = {"fontsize": size, "columnspacing": space, "handlelength": 1, "handletextpad": 0.5, "borderpad": 0}
    style.legend(figure, entries, "upper center", bbox_to_anchor=(0.5, top), **look)


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
    events = shown_events(result, events, variants)
    each = HEADING + ranks * RANK - RANK_GAP
    scale = min(1.0, (TALLEST - HEADER - FOOTER) / (len(variants) * each))
    rows, width = len(variants) * each * scale, style.TEXT_WIDTH - LEFT - RIGHT
    height = HEADER + rows + FOOTER
    figure = plt.figure(figsize=(style.TEXT_WIDTH, height))
    place = (LEFT / style.TEXT_WIDTH, FOOTER / height, width / style.TEXT_WIDTH, rows / height)
    axes, end = figure.add_axes(place), events["end"][events["kind"] == MOMENT].max()
    for number, name in enumerate(variants):
        draw_variant(axes, events[events["group"] == name], name, number * each, end / width, labelled=scale > 0.7)
    axes.set_xlim(0, end)
    axes.set_ylim(len(variants) * each + 0.05, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    note = left_out(variants_of(result), variants).replace(" ", "\n", 1)
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
        yield name_of(f"{PROGRAM}.{values['clock']}{part}", result), draw(result, events)


main = script.main(__name__, __doc__, figures)
