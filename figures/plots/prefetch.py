"""Draws what stage 07's prefetch saves over the speed of the link between machines, of two models.

Reads one result file of the benchmark sharded_scaling.
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from figures.lib import script, style
from figures.lib.result_files import Result, ResultError
from figures.plots.sharded_scaling import PARAMETERS, PROGRAM

STEP, COMPUTING, COMMUNICATION = "step by link", "computing by link", "communication by link"
LOOKS = ((style.VERMILION, "o"), (style.BLUE, "s"), (style.GREEN, "x"))  # by prefetch
HEIGHT = 3.0  # inches

ByLink = dict[float, float]  # seconds, by GB/s


def by_link(result: Result) -> dict[str, dict[tuple[str, int], ByLink]]:
    """By model, then by quantity and prefetch."""
    found: dict[str, dict[tuple[str, int], ByLink]] = {}
    for series in result.series:
        labels = series["labels"]
        if labels.get("quantity") in (STEP, COMPUTING, COMMUNICATION):
            lines = found.setdefault(labels["model"], {})
            line = lines.setdefault((labels["quantity"], labels["prefetch"]), {})
            line[labels["link_gb_per_s"]] = result.values("s", **labels)[0]
    if not found:
        raise ResultError(f"{result.file}: has no steps of stage 07; finish it, then run the benchmark {PROGRAM}")
    return found


def bound(lines: dict[tuple[str, int], ByLink]) -> ByLink:
    """No step is shorter than what it computes, nor than what it communicates."""
    computing, communication = lines[COMPUTING, 0], lines[COMMUNICATION, 0]
    return {speed: max(computing[speed], communication[speed]) for speed in computing}


def draw_model(axes: Axes, lines: dict[tuple[str, int], ByLink]) -> None:
    axes.plot(*zip(*sorted(bound(lines).items())), color=style.GREY, linewidth=3, alpha=0.5,
              label="max(computing, communication)")  # fmt: skip
    for prefetch, (colour, marker) in enumerate(LOOKS):
        axes.plot(*zip(*sorted(lines[STEP, prefetch].items())), color=colour, marker=marker, markersize=3.2,
                  linewidth=1, label=f"prefetch {prefetch}")  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("link between machines [GB/s]")
    axes.set_ylabel("step [s]")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid()


def most_saved(lines: dict[tuple[str, int], ByLink]) -> tuple[float, float]:
    """At which speed prefetch 1 saves most of a step, and how many percent."""
    without, with_one = lines[STEP, 0], lines[STEP, 1]
    speed = max(without, key=lambda speed: without[speed] / with_one[speed])
    return speed, 100 * (1 - with_one[speed] / without[speed])


def caption(result: Result) -> str:
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


def draw(result: Result) -> Figure:
    style.use_style()
    models = by_link(result)
    figure = plt.figure(figsize=(style.TEXT_WIDTH, HEIGHT), layout="constrained")
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, (model, lines) in zip(panels, models.items()):
        draw_model(axes, lines)
        axes.set_title(model, loc="left")
    panels[0].legend(fontsize=7)
    style.add_caption(figure, caption(result), [result])
    return figure


main = script.main(__doc__, script.one_each(PROGRAM, PARAMETERS, draw, ".prefetch"))

if __name__ == "__main__":
    sys.exit(main())
