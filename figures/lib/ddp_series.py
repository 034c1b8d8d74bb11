"""How the figures of the experiment compare_ddp draw their variants."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import ddp_comparison, style
from figures.lib.ddp_comparison import ASYNC, CORE, EQUAL_BYTES, MEASURED, STAGE, SYNC, Comparison, M, variants_of
from figures.lib.result_files import Result, left_out

COLOURS = {CORE: style.GREY, EQUAL_BYTES: style.PURPLE, ASYNC: style.BLUE, SYNC: style.VERMILION, STAGE: style.GREEN}
MARKERS = {CORE: "o", EQUAL_BYTES: "D", ASYNC: "s", SYNC: "^", STAGE: "v"}
NAMES = {
    CORE: "core (c10d::Reducer)",
    EQUAL_BYTES: "core, equal bytes",
    ASYNC: "async (stage 03)",
    SYNC: "sync (stage 03, overlap = false)",
}


def mark_whole_model(axes: Axes, elements: int, named: bool) -> None:
    """Draws a line at the buffer size that holds all gradients."""
    axes.axvline(elements / M, color="black", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    if named:
        axes.annotate(
            f"all {elements / M:.2f}M", (elements / M, 1), (-3, -3), xycoords=axes.get_xaxis_transform(),
            textcoords="offset points", ha="right", va="top", fontsize=6.5,
        )  # fmt: skip


def beside_each_other(comparison: Comparison, number: int) -> list[float]:
    """The buffer sizes, for the variant of this number a little to the right of the one before: whiskers stay apart."""
    step = max(comparison) / 120
    return [size + step * (number - 1.5) for size in comparison]


def configuration(result: Result) -> str:
    values = result.parameters
    return f"batch {values['batch_size']}, {values['image_size']}x{values['image_size']}, {result.link}"


def add_caption(figure: Figure, result: Result, comparison: Comparison, caption: str) -> None:
    ranks = result.provenance["world_size"]
    text = f"ResNet-50, {ranks} rank{'s' if ranks != 1 else ''}, {configuration(result)}, "
    text += f"n = {ddp_comparison.iterations_of(result)} iterations; {ddp_comparison.procedure_of(result)}. {caption}"
    style.add_caption(figure, text + left_out(MEASURED, variants_of(comparison)), [result])


def add_legend(figure: Figure, variants: list[str]) -> None:
    handles = [
        plt.Line2D([], [], color=COLOURS[each], marker=MARKERS[each], markersize=4, linewidth=1.2, label=NAMES[each])
        for each in variants
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), fontsize=7, columnspacing=1.3, handlelength=1.8
    )
