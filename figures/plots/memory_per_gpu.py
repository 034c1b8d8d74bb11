"""Draws what a GPU holds of a large model over the number of GPUs, with stages 03, 06 and 07, beside ZeRO's table 1.

Reads one result file of the benchmark memory_per_gpu.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from figures.lib import script, style
from figures.lib.reference_data import load_reference
from figures.lib.result_files import pick

PROGRAM = "memory_per_gpu"
LOOKS = {
    "03_bucketed_ddp": (style.VERMILION, "stage 03"),
    "06_sharded_optimizer": (style.BLUE, "stage 06"),
    "07_fully_sharded": (style.GREEN, "stage 07"),
}
TERMS = {"06_sharded_optimizer": "os+g", "07_fully_sharded": "os+g+p"}  # what they divide, as ZeRO calls it
PUBLISHED = {"os": ("^", "state divided"), "os+g": ("o", "and gradients"), "os+g+p": ("v", "and parameters")}
CARD_GB = 80
HEIGHT = 4.7  # inches


def gigabytes(result: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """By the model's parameters and GPUs, a column for each stage: "held" between steps, or the "most" within one."""
    wide = pick(result, quantity=quantity).pivot(index=["parameters", "world_size"], columns="stage", values="value")
    return 1e-9 * wide


def published(parameters: int) -> pd.DataFrame:
    """ZeRO's table 1 for a model of that size, by GPUs, a column for what is divided; empty if it has none."""
    table = load_reference(PROGRAM)
    return table[table["billions"] == parameters / 1e9].set_index("gpus")[list(PUBLISHED)]


def largest_error(held: pd.DataFrame) -> float:
    """In percent: of stages 06 and 07 on more than one GPU, from what is published of what they divide, from 1 GB on:
    the table has three digits there."""
    errors = [0.0]
    for parameters, here in held.groupby(level="parameters"):
        here, there = here.droplevel("parameters"), published(parameters)
        for stage, term in TERMS.items():
            known = there[term][(there.index > 1) & (there[term] >= 1)]
            if stage in here:
                errors.append((here[stage] / known - 1).abs().max())
    return 100 * max(error for error in errors if error == error)


def largest_model(most: pd.DataFrame) -> pd.DataFrame:
    """Billions of parameters whose step a card holds, by GPUs and stage: the smallest model's bytes each, scaled up."""
    parameters = most.index.unique("parameters").min()
    return 1e-9 * parameters * CARD_GB / most.loc[parameters]


def over_gpus(axes: Axes, gpus: pd.Index) -> None:
    style.log_axis(axes, gpus, base=4)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlabel("GPUs")
    axes.grid()


def draw_size(axes: Axes, parameters: int, held: pd.DataFrame) -> None:
    for stage, (colour, name) in LOOKS.items():
        if stage in held:
            axes.plot(held[stage], color=colour, linewidth=1.2, label=name)
    for term, values in published(parameters).items():
        marker, text = PUBLISHED[term]
        axes.plot(values, color="#444444", marker=marker, markersize=3.8, markerfacecolor="white", linestyle="none",
                  label=f"ZeRO: {text}")  # fmt: skip
    axes.axhline(CARD_GB, color=style.GREY, linestyle=":", linewidth=1)
    over_gpus(axes, held.index)
    axes.set_title(f"{parameters / 1e9:,g} billion", loc="left")
    axes.set_ylabel("GB on each GPU")


def draw_largest(axes: Axes, billions: pd.DataFrame) -> None:
    for stage in billions:
        axes.plot(billions[stage], color=LOOKS[stage][0], linewidth=1.2)
    over_gpus(axes, billions.index)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(FixedLocator([2**power for power in range(12)]))
    axes.set_title(f"the largest model in {CARD_GB} GB", loc="left")
    axes.set_ylabel("billion parameters")


def draw(result: pd.DataFrame) -> Figure:
    held, most = gigabytes(result, "held"), gigabytes(result, "most")
    sizes = held.index.unique("parameters")
    figure, all_panels = style.panels(HEIGHT, len(sizes) // 2 + 1, 2, squeeze=False)
    *panels, last = all_panels.flat
    for axes, parameters in zip(panels, sizes):
        draw_size(axes, parameters, held.loc[parameters])
    for axes in panels[len(sizes) :]:
        axes.set_axis_off()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=7)
    draw_largest(last, largest_model(most))
    text = (
        "Bytes between steps, without activations, of a model in half precision with AdamW and float32 copies of the "
        f"parameters; within a step up to {(most / held).max().max():.1f} times as much. Stages 06 and 07 differ from "
        f"ZeRO's table 1 by at most {largest_error(held):.1f} %. Dotted: a card of {CARD_GB} GB. Last: the largest "
        "model of which such a card holds a step."
    )
    style.add_caption(figure, text, [result])
    return figure


main = script.main(__name__, __doc__, script.one_each(PROGRAM, draw))
