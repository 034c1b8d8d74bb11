"""Draws a training step: computing and communication of each rank, one variant below the other.

Reads result files of the benchmark timeline, and the Chrome trace that each of them names; draws one figure for each.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from figures.lib import script, style
from figures.lib.result_files import Result, ResultError
from figures.lib.result_files import load as load_result
from figures.lib.trace_files import Operation, RankTimeline, Span, load_trace

PROGRAM = "timeline"
PARAMETERS = ("clock", "trace", "parameters", "batch_size", "cap_bytes", "rate_gbit", "latency_us")
OF_CLOCK = {  # further parameters
    "virtual": ("alpha_ns", "beta_ns_per_byte", "launch_overhead_ns", "slower"),
    "cluster": ("model", "sequence_length", "gpu", "link"),
}
VARIANTS = ("naive", "flat", "overlapped", "bucketed", "Reducer")  # unless the result names others
STEP_END = "step end"

FORWARD, BACKWARD, LAUNCH = style.SKY, style.BLUE, style.VERMILION
# Of operations, by how their names begin.
COMMUNICATION = {"all-reduce": style.ORANGE, "reduce-scatter": style.ORANGE, "all-gather": style.GREEN}
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


def variants_of(result: Result) -> tuple[str, ...]:
    """Those that were asked for."""
    return tuple(filter(None, result.parameters.get("variants", "").split(", "))) or VARIANTS


def kind_of(operation: Operation) -> str:
    return next((kind for kind in COMMUNICATION if operation.name.startswith(kind)), "all-reduce")


def label_of(operation: Operation, index: int, count: int) -> str:
    """The gradient's name; for a buffer with several gradients, its number; of a half of an all-reduce its name."""
    match = re.fullmatch(r"all-reduce of the gradient of (\S+)", operation.name)
    if match:
        return match[1]
    if (kind := kind_of(operation)) != "all-reduce":
        return kind.removeprefix("all-").removesuffix("-scatter")
    return "all gradients" if count == 1 else f"bucket {index + 1}"


def counts_of(operations: list[Operation]) -> str:
    counts = Counter(map(kind_of, operations))
    return ", ".join(f"{count} {kind}{'s' if count != 1 else ''}" for kind, count in counts.items())


def size_of(operation: Operation) -> str:
    if operation.bytes >= MIB / 10:
        return f"{operation.bytes / MIB:.1f} MiB"
    return f"{operation.bytes / 1024:.1f} KiB"


def one_after_the_other(operations: list[Operation], launches_only: bool) -> list[Operation]:
    """In real time an operation's span begins at its launch, and includes waiting in a queue. Returns the part of each
    span after the end of the operations that ended before it."""
    if not launches_only:
        return operations
    shown, free = [], 0.0
    for operation in sorted(operations, key=lambda each: each.end):
        begin = min(max(operation.launched, free), operation.end)
        shown.append(Operation(operation.name, begin, operation.end, operation.launched, operation.bytes))
        free = operation.end
    return shown


class Picture:
    """The rows, from the top down; y in inches, x in milliseconds."""

    def __init__(self, axes: Axes, inch: float, scale: float, real: bool) -> None:
        self._axes = axes
        self._inch = inch  # in milliseconds
        self._scale = scale
        self._real = real
        self._y = 0.0

    def variant(self, name: str, ranks: list[RankTimeline]) -> None:
        heading = self._y + (HEADING - 0.05) * self._scale
        self._axes.text(0, heading, name, va="baseline", fontweight="bold", fontsize=7.5)
        note = counts_of(ranks[0].communication)
        self._axes.text(
            max(0.8, 0.08 * len(name)) * self._inch, heading, note, va="baseline", fontsize=6.5, color="#555555"
        )
        self._y += HEADING * self._scale
        top = self._y
        for rank, timeline in enumerate(ranks):
            self._rank(rank, timeline)
            self._y += (RANK_GAP if rank + 1 < len(ranks) else 0) * self._scale
        self._step_end(top, max(timeline.moments[STEP_END] for timeline in ranks))

    def _rank(self, rank: int, timeline: RankTimeline) -> None:
        lane, gap = LANE * self._scale, LANE_GAP * self._scale
        middle = self._y + lane + gap / 2
        self._axes.text(-0.06 * self._inch, middle, f"rank {rank}", ha="right", va="center", fontsize=6)
        for span in timeline.compute:
            self._compute(span, lane)
        self._y += lane + gap
        shown = one_after_the_other(timeline.communication, self._real)
        by_launch = sorted(shown, key=lambda operation: operation.launched)
        for operation in shown:
            label = label_of(operation, by_launch.index(operation), len(shown))
            self._box(operation, lane, COMMUNICATION[kind_of(operation)], (f"{label}, {size_of(operation)}", label))
            self._axes.plot(
                operation.launched, self._y - gap / 2, marker="v", markersize=2.2, color="black", markeredgewidth=0
            )
        self._y += lane

    def _compute(self, span: Span, lane: float) -> None:
        part, _, layer = span.name.partition(" ")
        if part in AROUND and not layer:
            self._box(span, lane, AROUND[part], (), edge=0)
        elif part == "launch":
            self._box(span, lane, LAUNCH, (), edge=0)
        elif part in ("forward", "backward"):
            self._box(span, lane, FORWARD if part == "forward" else BACKWARD, (layer,))

    def _box(self, span: Span, lane: float, colour: str, labels: tuple[str, ...], edge: float = 0.3) -> None:
        width = span.end - span.begin
        middle = self._y + lane / 2
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


def subtitle(result: Result) -> str:
    values = result.parameters
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
    backend = {"shm": "shared memory"}.get(result.provenance["backend"], result.provenance["backend"])
    return f"real time, {backend} on {result.link}: the step of median length of {values['steps']}"


def draw(result: Result, trace: dict[str, list[RankTimeline]]) -> Figure:
    style.use_style()
    variants = [name for name in variants_of(result) if name in trace]
    ranks = result.provenance["world_size"]
    lanes, scale = heights(len(variants), ranks)
    height = HEADER + lanes + FOOTER
    figure = plt.figure(figsize=(style.TEXT_WIDTH, height))
    width = style.TEXT_WIDTH - LEFT - RIGHT
    axes = figure.add_axes((LEFT / style.TEXT_WIDTH, FOOTER / height, width / style.TEXT_WIDTH, lanes / height))
    end = max(timeline.moments[STEP_END] for name in variants for timeline in trace[name])

    real = result.parameters["clock"] == "real"
    picture = Picture(axes, end / width, scale, real)
    for name in variants:
        picture.variant(name, trace[name])
    axes.set_xlim(0, end)
    axes.set_ylim(lanes + 0.05, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x")
    missing = [name for name in variants_of(result) if name not in trace]
    note = f"\nleft out: unfinished: {', '.join(missing)}" if missing else ""
    axes.set_xlabel(f"time since the step began on all ranks [ms]{note}", fontsize=7)
    axes.tick_params(axis="x", labelsize=7)

    cap = result.parameters["cap_bytes"] / MIB
    top = 1 - 0.07 / height
    size = f"{result.parameters['parameters'] / 1e6:.1f} M parameters"
    title = f"One training step of {ranks} ranks, {size}, buckets of {cap:g} MiB"
    figure.text(0.5, top, title, ha="center", va="top", fontsize=9, fontweight="bold")
    figure.text(0.5, top - 0.17 / height, subtitle(result), ha="center", va="top", fontsize=6.5, color="#333333")
    kinds = {kind_of(each) for name in variants for timeline in trace[name] for each in timeline.communication}
    add_legend(figure, 1 - 0.36 / height, result.parameters["clock"], kinds)
    style.add_provenance(figure, [result])
    return figure


def add_legend(figure: Figure, top: float, clock: str, kinds: set[str]) -> None:
    by_colour: dict[str, list[str]] = {}
    for kind, colour in COMMUNICATION.items():
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


def load(file: Path) -> tuple[Result, dict[str, list[RankTimeline]]]:
    result = load_result(file, PROGRAM, PARAMETERS)
    load_result(file, PROGRAM, OF_CLOCK.get(result.parameters["clock"], ()))
    path = file.parent / result.parameters["trace"]
    trace = load_trace(path)
    measured = [series["labels"].get("variant") for series in result.series]
    for variant in measured:
        ranks = trace.get(variant, [])
        if len(ranks) != result.provenance["world_size"]:
            raise ResultError(
                f"{path}: has {len(ranks)} ranks of {variant}; {file} speaks of "
                f"{result.provenance['world_size']}. Run the benchmark again"
            )
        if not all(STEP_END in timeline.moments and timeline.compute for timeline in ranks):
            raise ResultError(f"{path}: does not say when steps of {variant} end; run the benchmark again")
        drawn = max(timeline.moments[STEP_END] for timeline in ranks)
        times = [1e3 * value for value in result.values("s", variant=variant)]
        if abs(drawn - statistics.median_low(times)) > 1e-3:
            raise ResultError(f"{path}: is of another run than {file}; run the benchmark again")
    return result, trace


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    """One figure for each file."""
    for file in files:
        result, trace = load(file)
        part = "" if set(variants_of(result)) <= set(VARIANTS) else ".sharded"
        yield script.name_of(f"{PROGRAM}.{result.parameters['clock']}{part}", result), draw(result, trace)


main = script.main(__name__, __doc__, figures)
