"""Draws what a GPU holds at most within a step, by kind: parameters, gradients, optimizer state and activations.

Reads one result file of the benchmark memory_per_gpu, of a model with activations.
"""

from __future__ import annotations

import re

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import script, style
from figures.lib.result_files import Result, ResultError
from figures.plots.memory_per_gpu import CARD_GB, LOOKS, PROGRAM
from figures.plots.memory_per_gpu import PARAMETERS as OF_PROGRAM

PARAMETERS = (*OF_PROGRAM, "tokens", "blocks")
KINDS = {
    "parameters": style.BLUE, "gradients": style.VERMILION, "optimizer state": style.ORANGE,
    "activations": style.GREY,
}  # fmt: skip
HEIGHT = 3.0  # inches

Bar = tuple[str, dict[str, float]]  # the moment of the most, and GB by kind


def bars(result: Result) -> dict[str, dict[int, Bar]]:
    """By stage and GPUs, of the smallest model."""
    smallest = min((series["labels"]["parameters"] for series in result.series), default=0)
    found: dict[str, dict[int, Bar]] = {}
    for series in result.series:
        labels = series["labels"]
        match = re.fullmatch(r"(.+) at most in (.+)", labels["quantity"])
        if match and labels["parameters"] == smallest:
            _, kinds = found.setdefault(labels["stage"], {}).setdefault(labels["world_size"], (match[2], {}))
            kinds[match[1]] = 1e-9 * result.values("bytes", **labels)[0]
    if not found:
        raise ResultError(f"{result.file}: lacks what is held by kind; run the benchmark {PROGRAM} again")
    return found


def draw_stage(axes: Axes, by_gpus: dict[int, Bar]) -> None:
    for place, (_, (moment, kinds)) in enumerate(sorted(by_gpus.items())):
        below = 0.0
        for kind, colour in KINDS.items():
            axes.bar(place, kinds[kind], bottom=below, color=colour, width=0.75, label=kind if place == 0 else None)
            below += kinds[kind]
        axes.text(place, below + 2, moment, ha="center", va="bottom", fontsize=6, color="#333333", rotation=90)
    axes.axhline(CARD_GB, color="black", linestyle=":", linewidth=1)
    axes.set_xticks(range(len(by_gpus)), [f"{gpus:,}" for gpus in sorted(by_gpus)], fontsize=7)
    axes.set_xlabel("GPUs")
    axes.grid(axis="y")


def draw(result: Result) -> Figure:
    stages = bars(result)
    figure, (panels,) = style.panels(HEIGHT, 1, len(stages), sharey=True, squeeze=False)
    for axes, (stage, by_gpus) in zip(panels, stages.items()):
        draw_stage(axes, by_gpus)
        axes.set_title(LOOKS[stage][1], loc="left")
    panels[0].set_ylabel("GB at most within a step")
    panels[0].set_ylim(0, 1.4 * max(sum(kinds.values()) for bars_ in stages.values() for _, kinds in bars_.values()))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(KINDS), fontsize=7)
    parameters = min(series["labels"]["parameters"] for series in result.series)
    values = result.parameters
    text = (
        f"{1e-9 * parameters:g} billion parameters in half precision, AdamW with float32 copies of them, "
        f"{values['tokens']:,} tokens on each GPU; above each bar the moment in which a step holds most. Counted while "
        "the code ran, on tensors that have shapes and no memory: a storage is what it was made for, and what is "
        f"gathered are parameters, what is reduced gradients. Activations as ZeRO estimates them (section 3.2) for "
        f"{values['blocks']} layers, kept from forward to backward. Dotted: a card of {CARD_GB} GB."
    )
    style.add_caption(figure, text, [result])
    return figure


main = script.main(__name__, __doc__, script.one_each(PROGRAM, PARAMETERS, draw, f"{PROGRAM}.kinds"))
