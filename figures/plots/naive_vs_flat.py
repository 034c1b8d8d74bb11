"""Draws where a training step's time goes with naive and flat DDP, beside computing alone.

Reads result files of the benchmark step_time with --apart, one panel for each (such as several links), all of one
implementation and preset.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import script, style
from figures.lib.result_files import link, load, name_of

NAME, PROGRAM = "naive_vs_flat", "step_time"
VARIANTS = ("compute only", "naive", "flat")
PHASE_COLOURS = {
    "forward": style.SKY, "backward": style.BLUE, "communication": style.ORANGE, "optimizer": style.GREY,
}  # fmt: skip
LABEL_SHARE = 0.09  # of the axis: narrower parts get no label


def milliseconds(result: pd.DataFrame) -> pd.DataFrame:
    """A row for each step, by variant and call; a column for each phase, and for the whole."""
    steps = 1e3 * result.pivot(index=["variant", "call"], columns="part", values="value")[list(PHASE_COLOURS)]
    return steps.assign(whole=steps.sum(axis="columns"))


def draw_bar(axes: Axes, row: int, steps: pd.DataFrame, axis_end: float) -> None:
    """Draws one variant: the medians of its phases, end to end, and the spread of whole steps."""
    medians = steps[list(PHASE_COLOURS)].median()
    total, start = medians.sum(), 0.0
    for phase, colour in PHASE_COLOURS.items():
        width = medians[phase]
        axes.barh(row, width, left=start, height=0.62, color=colour, edgecolor="white", linewidth=0.5)
        if width > LABEL_SHARE * axis_end:
            text_colour = "white" if colour == style.BLUE else "black"
            label = f"{width:.0f} ms\n{width / total:.0%}"
            axes.text(start + width / 2, row, label, ha="center", va="center", color=text_colour, fontsize=7)
        start += width
    low, high = steps["whole"].quantile([0.1, 0.9])
    axes.plot([low, high], [row + 0.38] * 2, color="black", linewidth=1, marker="|", markersize=4)
    axes.text(total + 0.01 * axis_end, row, f"{total:.0f} ms", va="center", fontweight="bold")


def draw(results: list[pd.DataFrame]) -> Figure:
    """One panel for each result, all with the same axis."""
    steps = list(map(milliseconds, results))
    axis_end = 1.1 * max(one["whole"].groupby(level="variant").quantile(0.9).max() for one in steps)
    figure, panels = style.panels(0.9 + 1.5 * len(results), len(results), squeeze=False)
    for axes, result, one in zip(panels[:, 0], results, steps):
        for row, variant in enumerate(VARIANTS):
            draw_bar(axes, row, one.loc[variant], axis_end)
        tensors = result.attrs["parameters"]["parameter_tensors"]
        labels = ("compute only", f"naive\n{tensors} all-reduces", "flat\n1 all-reduce")
        axes.set_yticks(range(len(VARIANTS)), labels)
        axes.set_xlim(0, axis_end)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        style.dress(axes, link(result), "time of a step [ms]" if one is steps[-1] else "", grid="x")
    shared, ranks = results[0].attrs["parameters"], results[0].attrs["provenance"]["world_size"]
    entries = {phase: {"facecolor": colour} for phase, colour in PHASE_COLOURS.items()}
    title = f"{shared['model']}, {shared['parameters'] / 1e6:.1f} M parameters: {ranks} ranks, "
    title += f"{shared['batch_size']} images of {shared['image_size']}×{shared['image_size']} each"
    bold = {"title_fontproperties": {"size": 9, "weight": "bold"}, "alignment": "left"}
    style.legend(figure, entries, fontsize=7.5, columnspacing=2, handlelength=1, title=title, **bold)
    text = f"Medians of {shared['steps']} steps, slowest rank; whiskers: 10th to 90th percentile of whole steps."
    return style.add_caption(figure, text, results)


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    results = [load(file, PROGRAM) for file in files]
    yield name_of(NAME, results[0]), draw(results)


main = script.main(__name__, __doc__, figures)
