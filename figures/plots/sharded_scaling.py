"""Draws weak scaling from naive to fully sharded on the simulated cluster: efficiency over GPUs, of two models.

Reads one result file of the benchmark sharded_scaling.
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import script, style
from figures.lib.result_files import Result, ResultError
from figures.plots.memory_per_gpu import CARD_GB
from figures.plots.scaling import COMPUTE, HARDWARE, finish_axes
from figures.plots.scaling import LOOKS as AVERAGING

PROGRAM = "sharded_scaling"
PARAMETERS = ("batch_size", "sequence_length", "link_gpus", *HARDWARE)
LOOKS = {**AVERAGING, "sharded": (style.SKY, "v"), "fully sharded": ("black", "P")}
HEIGHT = 3.3  # inches

ByVariant = dict[str, dict[int, float]]  # by GPUs


def values_of(result: Result, quantity: str, unit: str) -> dict[str, ByVariant]:
    """By model, then by variant."""
    found: dict[str, ByVariant] = {}
    for series in result.series:
        labels = series["labels"]
        if labels.get("quantity") == quantity:
            variants = found.setdefault(labels["model"], {})
            variants.setdefault(labels["variant"], {})[labels["world_size"]] = result.values(unit, **labels)[0]
    if not found or not all(variants.get(COMPUTE) for variants in found.values()):
        raise ResultError(f"{result.file}: lacks {COMPUTE}; run the benchmark {PROGRAM} again")
    return found


def efficiencies(steps: ByVariant) -> ByVariant:
    """In percent: forward and backward alone on one GPU, over the step, which has AdamW's update, too."""
    alone = steps[COMPUTE][min(steps[COMPUTE])]
    return {name: {gpus: 100 * alone / step for gpus, step in steps[name].items()} for name in LOOKS if name in steps}


def fits(bytes_at_most: float) -> bool:
    return bytes_at_most <= 1e9 * CARD_GB


def draw_model(axes: Axes, steps: ByVariant, most: ByVariant) -> None:
    for name, values in efficiencies(steps).items():
        colour, marker = LOOKS[name]
        gpus, percents = zip(*sorted(values.items()))
        inside = [fits(most[name][count]) for count in gpus]
        axes.plot(gpus, percents, color=colour, linewidth=1)
        for fill, shown in ((colour, True), ("white", False)):
            points = [(count, percent) for count, percent, inner in zip(gpus, percents, inside) if inner == shown]
            axes.plot(*zip(*points) if points else ([], []), color=colour, marker=marker, markersize=3.8,
                      markerfacecolor=fill, markeredgewidth=0.8, linestyle="none",
                      label=name if shown else None)  # fmt: skip
    axes.set_ylim(0, 105)
    axes.set_ylabel("efficiency [%]")


def caption(result: Result) -> str:
    values = result.parameters
    return (
        f"{values['batch_size']} sequences of {values['sequence_length']} tokens on each GPU, float32; {values['gpu']} "
        f"at {values['efficiency']:.0%} of its peak, {values['gpus_per_node']} in a machine by {values['link']}, "
        f"machines by {values['link_between']}. Forward and backward alone on one GPU, over the step, in which AdamW "
        "updates what the rank has: everything, or an N-th. Hollow: a GPU would hold more than "
        f"{CARD_GB} GB within the step, counted with activations while the code ran. Simulated cluster, collectives by "
        "NCCL's model: all-reduces may take a tree, whose latency grows with log N; gathers and reduce-scatters go "
        "around a ring, with N - 1 latencies for each unit."
    )


def draw(result: Result) -> Figure:
    style.use_style()
    steps, most = values_of(result, "step", "s"), values_of(result, "most", "bytes")
    figure = plt.figure(figsize=(style.TEXT_WIDTH, HEIGHT), layout="constrained")
    panels = figure.subplots(1, len(steps), squeeze=False)[0]
    for axes, (model, variants) in zip(panels, steps.items()):
        draw_model(axes, variants, most[model])
        finish_axes(axes, sorted({gpus for values in variants.values() for gpus in values}))
        axes.set_title(model, loc="left")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=7, fontsize=7)
    style.add_caption(figure, caption(result), [result])
    return figure


main = script.main(__doc__, script.one_each(PROGRAM, PARAMETERS, draw))

if __name__ == "__main__":
    sys.exit(main())
