"""Draws weak scaling from naive to fully sharded on the simulated cluster, and what prefetch saves over a link's speed.

Reads one result file of the benchmark sharded_scaling.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import script, style
from figures.lib.result_files import Result, ResultError, load
from figures.plots.memory_per_gpu import CARD_GB
from figures.plots.scaling import COMPUTE, HARDWARE, finish_axes
from figures.plots.scaling import LOOKS as AVERAGING

PROGRAM = "sharded_scaling"
PARAMETERS = ("batch_size", "sequence_length", "link_gpus", *HARDWARE)
LOOKS = {**AVERAGING, "sharded": (style.SKY, "v"), "fully sharded": ("black", "P")}
HEIGHT, PREFETCH_HEIGHT = 3.3, 3.0  # inches

STEP, COMPUTING, COMMUNICATION = "step by link", "computing by link", "communication by link"
OF_PREFETCH = ((style.VERMILION, "o"), (style.BLUE, "s"), (style.GREEN, "x"))  # by prefetch

ByLink = dict[float, float]  # seconds, by GB/s
ByVariant = dict[str, dict[int, float]]  # by GPUs


def values_of(result: Result, quantity: str, unit: str) -> dict[str, ByVariant]:
    """By model, then by variant."""
    found = result.first_values(unit, "model", "variant", "world_size", quantity=quantity)
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
    steps, most = values_of(result, "step", "s"), values_of(result, "most", "bytes")
    figure, (panels,) = style.panels(HEIGHT, 1, len(steps), squeeze=False)
    for axes, (model, variants) in zip(panels, steps.items()):
        draw_model(axes, variants, most[model])
        finish_axes(axes, sorted({gpus for values in variants.values() for gpus in values}))
        axes.set_title(model, loc="left")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=7, fontsize=7)
    style.add_caption(figure, caption(result), [result])
    return figure


def by_link(result: Result) -> dict[str, dict[tuple[str, int], ByLink]]:
    """By model, then by quantity and prefetch."""
    found: dict[str, dict[tuple[str, int], ByLink]] = {}
    for quantity in (STEP, COMPUTING, COMMUNICATION):
        values = result.first_values("s", "model", "prefetch", "link_gb_per_s", quantity=quantity)
        for model, lines in values.items():
            found.setdefault(model, {}).update({(quantity, prefetch): line for prefetch, line in lines.items()})
    return found


def bound(lines: dict[tuple[str, int], ByLink]) -> ByLink:
    """No step is shorter than what it computes, nor than what it communicates."""
    computing, communication = lines[COMPUTING, 0], lines[COMMUNICATION, 0]
    return {speed: max(computing[speed], communication[speed]) for speed in computing}


def draw_links(axes: Axes, lines: dict[tuple[str, int], ByLink]) -> None:
    axes.plot(*zip(*sorted(bound(lines).items())), color=style.GREY, linewidth=3, alpha=0.5,
              label="max(computing, communication)")  # fmt: skip
    for prefetch, (colour, marker) in enumerate(OF_PREFETCH):
        axes.plot(*zip(*sorted(lines[STEP, prefetch].items())), color=colour, marker=marker, markersize=3.2,
                  linewidth=1, label=f"prefetch {prefetch}")  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("link between machines [GB/s]")
    axes.set_ylabel("step [s]")
    for axis in (axes.xaxis, axes.yaxis):
        style.write_plain_numbers(axis)
    axes.grid()


def most_saved(lines: dict[tuple[str, int], ByLink]) -> tuple[float, float]:
    """At which speed prefetch 1 saves most of a step, and how many percent."""
    without, with_one = lines[STEP, 0], lines[STEP, 1]
    speed = max(without, key=lambda speed: without[speed] / with_one[speed])
    return speed, 100 * (1 - with_one[speed] / without[speed])


def links_in_words(result: Result) -> str:
    values = result.parameters
    saved = ", ".join(
        f"{model} {percent:.0f} % at {speed:.0f} GB/s"
        for model, (speed, percent) in ((model, most_saved(lines)) for model, lines in by_link(result).items())
    )
    return (
        f"Stage 07 on {values['link_gpus']} {values['gpu']}, {values['gpus_per_node']} in a machine by "
        f"{values['link']}; {values['batch_size']} sequences of {values['sequence_length']} tokens on each. Simulated "
        "cluster. Grey: what forward and backward take alone, or gathers and reduce-scatters one after the other, "
        f"whichever is longer: no order makes a step shorter. Prefetch 1 saves most where both are alike: {saved}. "
        "Prefetch 2 saves no more, since units are of one size but the first and the last. What is left above the grey "
        "line where computing is longer: a first gather and a last reduce-scatter, the update, and "
        f"computing that takes {values['slowdown_beside_communication'] - 1:.0%} longer beside communication."
    )


def draw_prefetch(result: Result) -> Figure:
    models = by_link(result)
    figure, (panels,) = style.panels(PREFETCH_HEIGHT, 1, len(models), squeeze=False)
    for axes, (model, lines) in zip(panels, models.items()):
        draw_links(axes, lines)
        axes.set_title(model, loc="left")
    panels[0].legend(fontsize=7)
    style.add_caption(figure, links_in_words(result), [result])
    return figure


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    for file in files:
        result = load(file, PROGRAM, PARAMETERS)
        yield script.name_of(PROGRAM, result), draw(result)
        if by_link(result):
            yield script.name_of(f"{PROGRAM}.prefetch", result), draw_prefetch(result)


main = script.main(__name__, __doc__, figures)
