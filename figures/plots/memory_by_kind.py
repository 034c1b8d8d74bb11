"""Draws what a GPU holds at most within a step, by kind: parameters, gradients, optimizer state and activations.

Reads one result file of the benchmark memory_per_gpu, of a model with activations.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import script, style
from figures.lib.result_files import pick
from figures.plots.memory_per_gpu import CARD_GB, LOOKS, PROGRAM

KINDS = {
    "parameters": style.BLUE, "gradients": style.VERMILION, "optimizer state": style.ORANGE,
    "activations": style.GREY,
}  # fmt: skip
HEIGHT = 3.0  # inches


def by_kind(result: pd.DataFrame) -> pd.DataFrame:
    """GB of the smallest model by stage, GPUs and the moment in which a step holds most; a column for each of KINDS."""
    smallest = pick(result, parameters=result["parameters"].min())
    parts = smallest["quantity"].str.extract(r"(?P<kind>.+) at most in (?P<moment>.+)")
    held = smallest.join(parts).dropna(subset="kind")
    return 1e-9 * held.pivot(index=["stage", "world_size", "moment"], columns="kind", values="value")[list(KINDS)]


def draw_stage(axes: Axes, kinds: pd.DataFrame) -> None:
    tops = kinds.cumsum(axis="columns")
    for kind, colour in KINDS.items():
        axes.bar(
            range(len(kinds)), kinds[kind], bottom=tops[kind] - kinds[kind], color=colour, width=0.75, label=kind
        )  # fmt: skip
    for place, (moment, top) in enumerate(zip(kinds.index.get_level_values("moment"), tops.iloc[:, -1])):
        axes.text(place, top + 2, moment, ha="center", va="bottom", fontsize=6, color="#333333", rotation=90)
    axes.axhline(CARD_GB, color="black", linestyle=":", linewidth=1)
    axes.set_xticks(range(len(kinds)), kinds.index.get_level_values("world_size").map("{:,}".format), fontsize=7)
    axes.set_xlabel("GPUs")
    axes.grid(axis="y")


def draw(result: pd.DataFrame) -> Figure:
    kinds = by_kind(result)
    stages = kinds.index.unique("stage")
    figure, (panels,) = style.panels(HEIGHT, 1, len(stages), sharey=True, squeeze=False)
    for axes, stage in zip(panels, stages):
        draw_stage(axes, kinds.loc[stage])
        axes.set_title(LOOKS[stage][1], loc="left")
    panels[0].set_ylabel("GB at most within a step")
    panels[0].set_ylim(0, 1.4 * kinds.sum(axis="columns").max())
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(KINDS), fontsize=7)
    values = result.attrs["parameters"]
    text = (
        f"{1e-9 * result['parameters'].min():g} billion parameters in half precision, AdamW with float32 copies of "
        f"them, {values['tokens']:,} tokens on each GPU; above each bar the moment in which a step holds most. "
        "Activations as ZeRO estimates them (section 3.2) for "
        f"{values['blocks']} layers, kept from forward to backward. Dotted: a card of {CARD_GB} GB."
    )
    style.add_caption(figure, text, [result])
    return figure


main = script.main(__name__, __doc__, script.one_each(PROGRAM, draw, f"{PROGRAM}.kinds"))
