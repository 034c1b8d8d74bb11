"""Draws how the throughput of DDP scales with the number of ranks, for four ResNets, beside the published suite.

Above: ex/sec of each rank; below: the same as a share of the round without DDP. Reads one result file of the benchmark
ddp_suite for each figure.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.lib import script, style, suite_data
from figures.lib.reference_data import load_reference
from figures.lib.result_files import ResultError, link
from figures.lib.suite_data import NO_DDP_ROUND, PROGRAM, PUBLISHED, ROUND, VARIANTS

COLOURS = {"bucketed": style.BLUE, "Reducer": style.ORANGE}
MARKERS = {"bucketed": "o", "Reducer": "s"}
PUBLISHED_STYLE = {"color": style.GREY, "marker": "D", "linestyle": "--", "linewidth": 0.9, "markersize": 3}
OWN_STYLE = {"linewidth": 1.1, "markersize": 3.8}
HEIGHT = 4.3  # inches


def own_rates(result: pd.DataFrame, variant: str) -> pd.DataFrame:
    """Examples a second of each rank, at the median and where the slowest twentieth begins."""
    seconds = suite_data.rounds(result, variant, suite_data.bucket_sizes(result)[0], 50, 95)
    return seconds.assign(**{str(p): result.attrs["parameters"]["batch_size"] / seconds[p] for p in (50, 95)})


def published_rates() -> pd.DataFrame:
    rates = load_reference(PROGRAM).pivot_table("ex/sec", ROUND, "percentile", sort=False)
    return rates.rename(columns=str).reset_index()


def with_places(rates: pd.DataFrame) -> pd.DataFrame:
    """Where on the axis a round stands: the one without DDP first, then by the number of ranks."""
    return rates.assign(place=rates["gpus"].where(rates["round"] != NO_DDP_ROUND, 0))


def draw_line(axes: Axes, places: list[int], rates: pd.DataFrame, shift: float, **look: Any) -> None:
    at = [places.index(place) + shift for place in rates["place"]]
    axes.vlines(at, rates["95"], rates["50"], color=look["color"], linewidth=0.8)
    axes.plot(at, rates["50"], **look)


def draw_column(rate: Axes, share: Axes, lines: list[tuple[pd.DataFrame, dict[str, Any]]], places: list[int]) -> None:
    for shift, (rates, look) in zip((0, -0.09, 0.09), lines):
        if len(rates):
            draw_line(rate, places, rates, shift, **look)
            alone = rates["50"].iloc[0]
            draw_line(share, places, rates.assign(**{p: 100 * rates[p] / alone for p in ("50", "95")}), shift, **look)
    rate.set_yscale("log")
    style.write_plain_numbers(rate.yaxis, decades=4)
    share.axhline(100, color="black", linewidth=0.6)
    for axes in (rate, share):
        axes.grid(axis="y")
        axes.set_xticks(range(len(places)), [str(place) if place else "no\nDDP" for place in places], fontsize=7)
        axes.set_xlim(-0.5, len(places) - 0.5)
    share.set_xlabel("ranks, or GPUs")


def caption(result: pd.DataFrame) -> str:
    values = result.attrs["parameters"]
    cpu, side = result.attrs["provenance"]["device"] == "cpu", values["image_size"]
    kind = "ranks of one thread each" if cpu else "ranks with a GPU each"
    return (
        f"Here: {kind}, {link(result)}, batch {values['batch_size']} of {side}×{side} images, buckets of "
        f"{suite_data.bucket_sizes(result)[0]} MB; published: 32 of 224×224, 25 MB. Medians of all ranks' iterations; "
        "lines go to the slowest 5 % of them. Efficiency: relative to one rank without DDP, others idle."
    )


def draw(result: pd.DataFrame) -> Figure:
    """A column for each model; rows: ex/sec, efficiency."""
    if len(suite_data.bucket_sizes(result)) > 1:
        raise ResultError("the result has several bucket sizes; set it with figures.tables.ddp_suite_ab")
    models = list(result["model"].unique())
    figure, panels = style.panels(HEIGHT, 2, len(models), sharex=True, sharey="row", squeeze=False)
    lines = [(published_rates(), PUBLISHED_STYLE)]
    for variant in VARIANTS:
        lines.append((own_rates(result, variant), OWN_STYLE | {"color": COLOURS[variant], "marker": MARKERS[variant]}))
    lines = [(with_places(rates[rates["model"].isin(models)]), look) for rates, look in lines]
    places = sorted({place for rates, _ in lines for place in rates["place"]})
    for model, column in zip(models, panels.T):
        draw_column(*column, [(rates[rates["model"] == model], look) for rates, look in lines], places)
        column[0].set_title(model, loc="left", fontsize=8)
    panels[0, 0].set_ylabel("examples/s of a rank")
    panels[1, 0].set_ylabel("scaling efficiency [%]")
    panels[1, 0].set_ylim(bottom=0)
    names = (f"published: {PUBLISHED}", *VARIANTS.values())
    handles = [Line2D([], [], label=name, **look) for (_, look), name in zip(lines, names)]
    figure.legend(
        handles=[*handles[1:], handles[0]], loc="outside upper left", ncols=3, fontsize=7, columnspacing=1.3,
        handlelength=1.8,
    )  # fmt: skip
    style.add_caption(figure, caption(result), [result])
    return figure


main = script.main(__name__, __doc__, script.one_each(PROGRAM, draw))
