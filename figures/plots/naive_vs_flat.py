"""Draws where a training step's time goes with naive and flat DDP, beside computing alone.

Reads result files of the benchmark naive_vs_flat, one panel for each (such as several links), all of one implementation
and preset.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import script, style
from figures.lib.result_files import Result, ResultError, load_group

PROGRAM = "naive_vs_flat"
# Facts in the title, for all panels, and at each panel.
SHARED_PARAMETERS = ("model", "parameters", "batch_size", "image_size", "steps")
PANEL_PARAMETERS = ("parameter_tensors", "rate_gbit", "latency_us")
VARIANTS = ("compute only", "naive", "flat")
PHASE_COLOURS = {
    "forward": style.SKY,
    "backward": style.BLUE,
    "communication": style.ORANGE,
    "optimizer": style.GREY,
}
LABEL_SHARE = 0.09  # of the axis: narrower parts get no label


def phase_milliseconds(result: Result, variant: str) -> dict[str, list[float]]:
    """The times of each phase, for each measured step."""
    times = {
        phase: [1e3 * value for value in result.values("s", variant=variant, phase=phase)] for phase in PHASE_COLOURS
    }
    if len({len(values) for values in times.values()}) > 1:
        raise ResultError(f"{result.file}: the phases of {variant} differ in their number of steps")
    return times


def whole_steps(times: dict[str, list[float]]) -> list[float]:
    """The sum of the phases, for each step."""
    return [sum(step) for step in zip(*times.values())]


def draw_bar(axes: Axes, row: int, times: dict[str, list[float]], axis_end: float) -> None:
    """Draws one variant: the medians of its phases, end to end, and the spread of whole steps."""
    medians = {phase: statistics.median(values) for phase, values in times.items()}
    total = sum(medians.values())
    start = 0.0
    for phase, colour in PHASE_COLOURS.items():
        width = medians[phase]
        axes.barh(row, width, left=start, height=0.62, color=colour, edgecolor="white", linewidth=0.5)
        if width > LABEL_SHARE * axis_end:
            text_colour = "white" if colour == style.BLUE else "black"
            label = f"{width:.0f} ms\n{width / total:.0%}"
            axes.text(start + width / 2, row, label, ha="center", va="center", color=text_colour, fontsize=7)
        start += width
    low, high = np.percentile(whole_steps(times), [10, 90])
    axes.plot([low, high], [row + 0.38] * 2, color="black", linewidth=1, marker="|", markersize=4)
    axes.text(total + 0.01 * axis_end, row, f"{total:.0f} ms", va="center", fontweight="bold")


def draw_panel(axes: Axes, result: Result, times: dict[str, dict[str, list[float]]], axis_end: float) -> None:
    for row, variant in enumerate(VARIANTS):
        draw_bar(axes, row, times[variant], axis_end)
    labels = ("compute only", f"naive\n{result.parameters['parameter_tensors']} all-reduces", "flat\n1 all-reduce")
    axes.set_yticks(range(len(VARIANTS)), labels)
    axes.set_xlim(0, axis_end)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_title(result.link, loc="left")


def draw(results: list[Result]) -> Figure:
    """One panel for each result, all with the same axis."""
    times = [{variant: phase_milliseconds(result, variant) for variant in VARIANTS} for result in results]
    axis_end = 1.1 * max(np.percentile(whole_steps(phases), 90) for panel in times for phases in panel.values())
    figure, panels = style.panels(0.9 + 1.5 * len(results), len(results), squeeze=False)
    for axes, result, panel_times in zip(panels[:, 0], results, times):
        draw_panel(axes, result, panel_times, axis_end)

    panels[-1, 0].set_xlabel("time of a step [ms]")
    shared, ranks = results[0].parameters, results[0].provenance["world_size"]
    figure.legend(
        [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in PHASE_COLOURS.values()], PHASE_COLOURS,
        loc="outside upper left", ncols=len(PHASE_COLOURS), fontsize=7.5, handlelength=1, alignment="left",
        title=f"{shared['model']}, {shared['parameters'] / 1e6:.1f} M parameters: {ranks} ranks, "
        f"{shared['batch_size']} images of {shared['image_size']}×{shared['image_size']} each",
        title_fontproperties={"size": 9, "weight": "bold"},
    )  # fmt: skip
    style.add_caption(
        figure,
        f"Medians of {shared['steps']} steps, slowest rank; whiskers: 10th to 90th percentile of whole steps.",
        results,
    )
    return figure


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    results = load_group(files, PROGRAM, shared=SHARED_PARAMETERS, own=PANEL_PARAMETERS)
    yield script.name_of(PROGRAM, results[0]), draw(results)


main = script.main(__name__, __doc__, figures)
