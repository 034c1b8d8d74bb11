"""Draws weak scaling from naive to fully sharded on the simulated cluster, and what prefetch saves over a link's speed.

Reads one result file of the benchmark `cluster sharded_scaling`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import script, style
from figures.lib.result_files import load, name_of, pick
from figures.plots.memory_per_gpu import CARD_GB
from figures.plots.scaling import LOOKS as AVERAGING
from figures.plots.scaling import efficiencies, finish_axes, hardware_in_words

PROGRAM = "sharded_scaling"
LOOKS = {**AVERAGING, "sharded": (style.SKY, "v"), "fully sharded": ("black", "P")}
STEP, COMPUTING, COMMUNICATION = "step by link", "computing by link", "communication by link"
OF_PREFETCH = ((style.VERMILION, "o"), (style.BLUE, "s"), (style.GREEN, "x"))  # by prefetch


def fits(result: pd.DataFrame) -> pd.DataFrame:
    """By GPUs, a column for each variant: whether a card holds the step. Efficiencies are of forward and backward alone
    on one GPU, over the step, which has AdamW's update, too."""
    most = pick(result, quantity="most").pivot(index="world_size", columns="variant", values="value")
    return most <= 1e9 * CARD_GB


def draw_model(axes: Axes, result: pd.DataFrame) -> None:
    shown, inside = efficiencies(result), fits(result)
    for name, (colour, marker) in LOOKS.items():
        if name not in shown:
            continue
        percents = shown[name].dropna()
        axes.plot(percents, color=colour, linewidth=1)
        for fill, wanted in ((colour, True), ("white", False)):
            points = percents[inside[name][percents.index] == wanted]
            axes.plot(points, color=colour, marker=marker, markersize=3.8, markerfacecolor=fill, markeredgewidth=0.8,
                      linestyle="none", label=name if wanted else None)  # fmt: skip
    finish_axes(axes, shown.index, result["model"].iloc[0])


def draw(result: pd.DataFrame) -> Figure:
    models = result["model"].unique()
    figure, (panels,) = style.panels(3.3, 1, len(models), squeeze=False)
    for axes, model in zip(panels, models):
        draw_model(axes, pick(result, model=model))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=7, fontsize=7)
    text = (
        f"{hardware_in_words(result)} Forward and backward alone on one GPU, over the step, which has AdamW, "
        f"too. Hollow: a GPU would hold more than {CARD_GB} GB within the step. All-reduces may take a tree, "
        "whose latency grows with log N; gathers and reduce-scatters go around a ring."
    )
    return style.add_caption(figure, text, [result])


def by_link(result: pd.DataFrame, model: str) -> pd.DataFrame:
    """Seconds by the link's GB/s, a column for each quantity and prefetch; empty if none was measured."""
    rows = pick(result[result["quantity"].isin((STEP, COMPUTING, COMMUNICATION))], model=model)
    return rows.pivot(index="link_gb_per_s", columns=["quantity", "prefetch"], values="value") if len(rows) else rows


def bound(seconds: pd.DataFrame) -> pd.Series:
    """No step is shorter than what it computes, nor than what it communicates."""
    return seconds[[(COMPUTING, 0), (COMMUNICATION, 0)]].max(axis="columns")


def draw_links(axes: Axes, seconds: pd.DataFrame) -> None:
    axes.plot(bound(seconds), color=style.GREY, linewidth=3, alpha=0.5, label="max(computing, communication)")
    for prefetch, (colour, marker) in enumerate(OF_PREFETCH):
        axes.plot(seconds[STEP, prefetch], color=colour, marker=marker, markersize=3.2, linewidth=1,
                  label=f"prefetch {prefetch}")  # fmt: skip
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        style.write_plain_numbers(axis)


def most_saved(seconds: pd.DataFrame) -> tuple[float, float]:
    """At which speed prefetch 1 saves most of a step, and how many percent."""
    saved = 100 * (1 - seconds[STEP, 1] / seconds[STEP, 0])
    return saved.idxmax(), saved.max()


def draw_prefetch(result: pd.DataFrame, models: dict[str, pd.DataFrame]) -> Figure:
    figure, (panels,) = style.panels(3.0, 1, len(models), squeeze=False)
    for axes, (model, seconds) in zip(panels, models.items()):
        draw_links(axes, seconds)
        style.dress(axes, model, "link between machines [GB/s]", "step [s]")
    panels[0].legend(fontsize=7)
    values = result.attrs["parameters"]
    most = ((model, *most_saved(seconds)) for model, seconds in models.items())
    saved = ", ".join(f"{model} {percent:.0f} % at {speed:.0f} GB/s" for model, speed, percent in most)
    text = (
        f"Stage 07 on {values['link_gpus']} {values['gpu']}, {values['gpus_per_node']} in a machine by "
        f"{values['link']}; {values['batch_size']} sequences of {values['sequence_length']} tokens on each. Simulated "
        "cluster. Grey: what computing takes alone, or communication, whichever is longer. Prefetch 1 saves most where "
        f"both are alike: {saved}. Beside communication computing takes "
        f"{values['slowdown_beside_communication'] - 1:.0%} longer."
    )
    return style.add_caption(figure, text, [result])


def figures(files: list[Path]) -> Iterator[tuple[str, Figure]]:
    for result in (load(file, PROGRAM) for file in files):
        yield name_of(PROGRAM, result), draw(result)
        models = {model: by_link(result, model) for model in result["model"].unique()}
        models = {model: seconds for model, seconds in models.items() if len(seconds)}
        if models:
            yield name_of(f"{PROGRAM}.prefetch", result), draw_prefetch(result, models)


main = script.main(__name__, __doc__, figures)
