"""Draws what a GPU holds of a large model with stages 03, 06 and 07: over the number of GPUs, beside ZeRO's table 1.

Reads one result file of `cluster memory_per_gpu`. Of a model with activations (--tokens) it draws the most that a step
holds, by kind: parameters, gradients, optimizer state and activations.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from figures.lib import script, style
from figures.lib.result_files import load, load_reference, name_of, pick

PROGRAM = "memory_per_gpu"
LOOKS = {
    "03_bucketed_ddp": (style.VERMILION, "stage 03"),
    "06_sharded_optimizer": (style.BLUE, "stage 06"),
    "07_fully_sharded": (style.GREEN, "stage 07"),
}
TERMS = {"06_sharded_optimizer": "os+g", "07_fully_sharded": "os+g+p"}  # what they divide, as ZeRO calls it
PUBLISHED = {"os": ("^", "state divided"), "os+g": ("o", "and gradients"), "os+g+p": ("v", "and parameters")}
KINDS = {
    "parameters": style.BLUE, "gradients": style.VERMILION, "optimizer state": style.ORANGE, "activations": style.GREY,
}  # fmt: skip
CARD_GB = 80


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


def by_kind(result: pd.DataFrame) -> pd.DataFrame:
    """GB of the smallest model by stage, GPUs and the moment in which a step holds most; a column for each of KINDS."""
    smallest = pick(result, parameters=result["parameters"].min())
    parts = smallest["quantity"].str.extract(r"(?P<kind>.+) at most in (?P<moment>.+)")
    held = smallest.join(parts).dropna(subset="kind")
    return 1e-9 * held.pivot(index=["stage", "world_size", "moment"], columns="kind", values="value")[list(KINDS)]


def draw_gpus(axes: Axes, columns: pd.DataFrame, title: str, y: str) -> None:
    for stage, (colour, name) in LOOKS.items():
        if stage in columns:
            axes.plot(columns[stage], color=colour, linewidth=1.2, label=name)
    style.log_axis(axes, columns.index, base=4)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    style.dress(axes, title, "GPUs", y)


def draw_sizes(result: pd.DataFrame) -> Figure:
    held, most = gigabytes(result, "held"), gigabytes(result, "most")
    sizes = held.index.unique("parameters")
    figure, all_panels = style.panels(4.7, len(sizes) // 2 + 1, 2, squeeze=False)
    *panels, last = all_panels.flat
    for axes, parameters in zip(panels, sizes):
        draw_gpus(axes, held.loc[parameters], f"{parameters / 1e9:,g} billion", "GB on each GPU")
        for term, values in published(parameters).items():
            marker, text = PUBLISHED[term]
            axes.plot(values, color="#444444", marker=marker, markersize=3.8, markerfacecolor="white",
                      linestyle="none", label=f"ZeRO: {text}")  # fmt: skip
        axes.axhline(CARD_GB, color=style.GREY, linestyle=":", linewidth=1)
    for axes in panels[len(sizes) :]:
        axes.set_axis_off()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=7)
    draw_gpus(last, largest_model(most), f"the largest model in {CARD_GB} GB", "billion parameters")
    last.yaxis.set_minor_formatter(NullFormatter())
    last.yaxis.set_major_locator(FixedLocator([2**power for power in range(12)]))
    text = (
        "Bytes between steps, without activations, of a model in half precision with AdamW and float32 copies of the "
        f"parameters; within a step up to {(most / held).max().max():.1f} times as much. Stages 06 and 07 differ from "
        f"ZeRO's table 1 by at most {largest_error(held):.1f} %. Dotted: a card of {CARD_GB} GB."
    )
    return style.add_caption(figure, text, [result])


def draw_kinds(result: pd.DataFrame) -> Figure:
    of_all, values = by_kind(result), result.attrs["parameters"]
    stages = of_all.index.unique("stage")
    figure, (panels,) = style.panels(3.0, 1, len(stages), sharey=True, squeeze=False)
    for axes, stage in zip(panels, stages):
        kinds = of_all.loc[stage]
        tops, places = kinds.cumsum(axis="columns"), range(len(kinds))
        for kind, colour in KINDS.items():
            axes.bar(places, kinds[kind], bottom=tops[kind] - kinds[kind], color=colour, width=0.75)
        for place, (moment, top) in enumerate(zip(kinds.index.get_level_values("moment"), tops.iloc[:, -1])):
            axes.text(place, top + 2, moment, ha="center", va="bottom", fontsize=6, color="#333333", rotation=90)
        axes.axhline(CARD_GB, color="black", linestyle=":", linewidth=1)
        axes.set_xticks(places, kinds.index.get_level_values("world_size").map("{:,}".format), fontsize=7)
        style.dress(axes, LOOKS[stage][1], "GPUs", "GB at most within a step" if axes is panels[0] else "", grid="y")
    panels[0].set_ylim(0, 1.4 * of_all.sum(axis="columns").max())
    entries = {kind: {"facecolor": colour} for kind, colour in KINDS.items()}
    style.legend(figure, entries, "outside upper center")
    text = (
        f"{1e-9 * result['parameters'].min():g} billion parameters in half precision, AdamW with float32 copies of "
        f"them, {values['tokens']:,} tokens on each GPU; above each bar the moment in which a step holds most. "
        f"Activations: ZeRO's estimate (section 3.2) for {values['blocks']} layers. Dotted: a card of {CARD_GB} GB."
    )
    return style.add_caption(figure, text, [result])


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    for result in (load(file, PROGRAM) for file in files):
        with_activations = result.attrs["parameters"]["tokens"] > 0
        draw, name = (draw_kinds, f"{PROGRAM}.kinds") if with_activations else (draw_sizes, PROGRAM)
        yield name_of(name, result), draw(result)


main = script.main(__name__, __doc__, figures)
