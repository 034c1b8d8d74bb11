"""Draws PyTorch's suite for DDP, four ResNets on more and more ranks, and sets it in the form of the published tables.

Reads result files of the benchmark ddp_suite. Measured: examples a second of each rank, and the same as a share of the
round without DDP. Simulated: seconds of an iteration, what DDP adds to it, and buckets of 1 MB against 25 MB. A
measured result with two bucket sizes gives the table of their comparison alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from figures.lib import predictions, script, style, suite_data
from figures.lib.predictions import AB_PERCENT, SUITE_BUCKET, TIMES_ONLY, setup_in_words
from figures.lib.result_files import link, load, load_reference, name_of, simulated
from figures.lib.suite_data import NO_DDP_ROUND, PROGRAM, ROUND, VARIANTS
from figures.lib.tables import Table, side_by_side
from tools.report import ddp_diff

LOOKS = {
    "bucketed": {"color": style.BLUE, "marker": "o", "linewidth": 1.1, "markersize": 3.8},
    "Reducer": {"color": style.ORANGE, "marker": "s", "linewidth": 1.1, "markersize": 3.8},
}
PUBLISHED_LOOK = {"color": style.GREY, "marker": "D", "linestyle": "--", "linewidth": 0.9, "markersize": 3}
ROWS = ("iteration [ms]", "DDP adds [ms]", "1 against 25 MB [%]")
Lines = list[tuple[pd.DataFrame, dict[str, Any]]]  # rates, and their look
PUBLISHED_BUCKET = 25  # MB
PERCENTS = (50, 75, 90, 95)
COLUMNS = ["model", "GPUs", "round", *(f"p{percent} {unit}" for percent in PERCENTS for unit in ("sec/iter", "ex/sec"))]
COMPARED = ["sec/iter", "ex/sec", "diff"]


def rates_of(result: pd.DataFrame) -> Lines:
    """Examples a second of each rank, at the median and where the slowest twentieth begins: published, and measured.
    On the axis stands the round without DDP first, then those by the number of ranks."""
    published = load_reference(PROGRAM).pivot_table("ex/sec", ROUND, "percentile", sort=False)
    lines = [(published.rename(columns=str).reset_index(), PUBLISHED_LOOK)]
    for variant, look in LOOKS.items():
        seconds = suite_data.rounds(result, variant, suite_data.bucket_sizes(result)[0], 50, 95)
        batch = result.attrs["parameters"]["batch_size"]
        lines.append((seconds.assign(**{str(p): batch / seconds[p] for p in (50, 95)}), look))
    return [(rates.assign(place=rates["gpus"].where(rates["round"] != NO_DDP_ROUND, 0)), look) for rates, look in lines]


def draw_rates(rate: Axes, share: Axes, lines: Lines, places: list[int]) -> None:
    for shift, (rates, look) in zip((0, -0.09, 0.09), lines):
        if rates.empty:
            continue
        at = [places.index(place) + shift for place in rates["place"]]
        for axes, scale in ((rate, 1), (share, 100 / rates["50"].iloc[0])):
            axes.vlines(at, scale * rates["95"], scale * rates["50"], color=look["color"], linewidth=0.8)
            axes.plot(at, scale * rates["50"], **look)
    rate.set_yscale("log")
    style.write_plain_numbers(rate.yaxis, decades=4)
    share.axhline(100, color="black", linewidth=0.6)
    for axes in (rate, share):
        axes.set_xticks(range(len(places)), [str(place) if place else "no\nDDP" for place in places], fontsize=7)
        axes.set_xlim(-0.5, len(places) - 0.5)


def draw_measured(result: pd.DataFrame) -> Figure:
    models, values = list(result["model"].unique()), result.attrs["parameters"]
    figure, panels = style.panels(4.3, 2, len(models), sharex=True, sharey="row", squeeze=False)
    lines = [(rates[rates["model"].isin(models)], look) for rates, look in rates_of(result)]
    places = sorted({place for rates, _ in lines for place in rates["place"]})
    for model, (rate, share) in zip(models, panels.T):
        draw_rates(rate, share, [(rates[rates["model"] == model], look) for rates, look in lines], places)
        style.dress(rate, y="examples/s of a rank" if rate is panels[0, 0] else "", grid="y")
        style.dress(share, x="ranks, or GPUs", y="scaling efficiency [%]" if rate is panels[0, 0] else "", grid="y")
        rate.set_title(model, loc="left", fontsize=8)
    panels[1, 0].set_ylim(bottom=0)
    entries = {name: LOOKS[variant] for variant, name in VARIANTS.items()}
    published = {f"published: {suite_data.PUBLISHED}": PUBLISHED_LOOK}
    style.legend(figure, entries | published, handlelength=1.8)
    text = (
        f"Here: {link(result)}, batch {values['batch_size']} of {values['image_size']}×{values['image_size']} images, "
        f"buckets of {suite_data.bucket_sizes(result)[0]} MB; published: 32 of 224×224, 25 MB. Medians of all ranks' "
        "iterations; lines go to the slowest 5 % of them. Efficiency: relative to one rank without DDP, others idle."
    )
    return style.add_caption(figure, text, [result])


def milliseconds(rounds: pd.DataFrame, model: str) -> tuple[pd.Series, pd.Series]:
    """Of an iteration, and what DDP adds to that, by the number of GPUs."""
    own = rounds[rounds["model"] == model]
    with_ddp = own["round"] != NO_DDP_ROUND
    steps = 1e3 * own[with_ddp].set_index("gpus")[50]
    return steps, steps - 1e3 * own[~with_ddp][50].iloc[0]


def draw_model(column: list[Axes], result: pd.DataFrame, model: str) -> None:
    several = len(suite_data.bucket_sizes(result)) == 2
    for variant, look in LOOKS.items():
        lines = milliseconds(suite_data.rounds(result, variant, SUITE_BUCKET, 50), model)
        diffs = [suite_data.diffs(result, variant, AB_PERCENT)[model]] if several else []
        for axes, line in zip(column, [*lines, *diffs]):
            axes.plot(line, color=look["color"], linewidth=1.2)
    published = (*milliseconds(suite_data.published_rounds(), model), suite_data.published_diffs(AB_PERCENT)[model])
    for axes, points in zip(column, published):
        fitted = (model == predictions.FITTED_MODEL) & (
            (points.index <= predictions.LARGEST_AB) | (axes is not column[2])
        )
        predictions.draw_published(axes, points, fitted, style.GREY, "D")
        axes.set_xscale("log", base=2)
        axes.set_xticks(points.index, map(str, points.index))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(axis="y")
    column[0].set_title(model, loc="left", fontsize=8)
    column[0].margins(y=0.15)
    column[1].set_ylim(bottom=0)
    column[2].axhline(0, color="black", linewidth=0.6)
    column[2].set_xlabel("GPUs")


def draw_simulated(result: pd.DataFrame) -> Figure:
    models = result["model"].unique()
    figure, panels = style.panels(5.8, len(ROWS), len(models), sharex=True, squeeze=False)
    for model, column in zip(models, panels.T):
        draw_model(list(column), result, model)
    for axes, label in zip(panels[:, 0], ROWS):
        axes.set_ylabel(label)
    predictions.add_legend(figure, {name: {"color": LOOKS[variant]["color"]} for variant, name in VARIANTS.items()})
    text = (
        f"Batch {result.attrs['parameters']['batch_size']} a GPU, buckets of 25 MB. Rounds without DDP are given; what "
        "DDP adds is predicted from ResNet-50's. Below zero 1 MB is slower; beyond one machine it is not counted."
    )
    cells = predictions.ddp_suite(result)
    return predictions.add_caption(
        figure, result, cells, text, (predictions.ITERATION, predictions.OVERHEAD, predictions.AB)
    )


def as_printed(seconds: pd.DataFrame, batch_size: int) -> pd.DataFrame:
    """Rounds with their published cells, such as "50 sec/iter": ex/sec are truncated, not rounded."""
    cells = seconds[ROUND].astype(str)
    for percent in PERCENTS:
        cells[f"{percent} sec/iter"] = seconds[percent].map("{:.3f}".format)
        cells[f"{percent} ex/sec"] = (batch_size / seconds[percent]).astype(int).astype(str)
    return cells


def of_size(result: pd.DataFrame, variant: str, size: int, several: bool) -> Iterator[tuple[str, Table]]:
    values, seconds = result.attrs["parameters"], suite_data.rounds(result, variant, size, *PERCENTS)
    cells = as_printed(seconds, values["batch_size"])
    rows = cells[["model", "gpus", "round", *cells.columns[len(ROUND) :]]].to_numpy().tolist()
    side, cpu = values["image_size"], result.attrs["provenance"]["device"] == "cpu"
    note = f"Images of {side}x{side}. Percentiles over all ranks' iterations together; ex/sec of one rank."
    note += " What is called a GPU is a rank with one thread of the CPU." if cpu else ""
    if simulated(result):
        note = f"{setup_in_words(result)}. All iterations take the same, so that all percentiles do. {TIMES_ONLY}"
    title = f"{VARIANTS[variant]}, buckets of {size} MB"
    table = Table(title, COLUMNS, rows, [result], note)
    name = f"{PROGRAM}.{variant}" + (f"_{size}MB" if several else "")
    yield name_of(name, result), table
    if size == PUBLISHED_BUCKET:
        own = seconds.melt(ROUND, PERCENTS, "percentile", "sec/iter")
        own["ex/sec"] = values["batch_size"] / own["sec/iter"]
        yield from side_by_side(name, table, PROGRAM, ("model", "gpus", "round", "percentile"), own)


def report(result: pd.DataFrame, variant: str, bucket_size: int) -> ddp_diff.Suite:
    """What step ddp_suite --json writes about a variant with one bucket size."""
    values, provenance = result.attrs["parameters"], result.attrs["provenance"]
    chosen = result[(result["variant"] == variant) & (result["bucket_size"] == bucket_size)]
    benchmarks = {
        (model, values["batch_size"]): {ranks: np.asarray(s) for ranks, s in own.groupby("ranks", sort=False)["value"]}
        for model, own in chosen.groupby("model", sort=False)
    }
    facts = {"pytorch_version": provenance["torch"], "cuda_version": values.get("cuda_version") or None,
             "distributed_backend": provenance["backend"], "bucket_size": bucket_size}  # fmt: skip
    return ddp_diff.Suite(facts, benchmarks)


def of_both_sizes(result: pd.DataFrame, variant: str) -> Iterator[tuple[str, Table]]:
    before, after = suite_data.bucket_sizes(result)
    baseline, test = (report(result, variant, size) for size in (before, after))
    own = ddp_diff.compare(baseline, test).drop(columns="batch_size").rename(columns={"ranks": "gpus"})
    texts = own["sec/iter"].map("{:.3f}".format) + " " + own["ex/sec"].astype(str) + " "
    texts += own["diff"].map("{:+.1f}%".format)
    rows = [
        [model, str(gpus), *" ".join(cells).split()]
        for (model, gpus), cells in texts.groupby([own["model"], own["gpus"]], sort=False)
    ]
    columns = ["model", "GPUs", *(f"p{percent} {what}" for percent in ddp_diff.PERCENTS for what in COMPARED)]
    title, name = f"{VARIANTS[variant]}, buckets of {after} MB against {before} MB", f"{PROGRAM}_ab.{variant}"
    note = f"The numbers of {after} MB; diff: against {before} MB, in percent of sec/iter, negative is slower. "
    note += f"{setup_in_words(result)}. {TIMES_ONLY}" if simulated(result) else "They took turns."
    table = Table(title, columns, rows, [result], note)
    yield name_of(name, result), table
    yield from side_by_side(name, table, "ddp_suite_diff", ["model", "gpus", "percentile"], own)


def make(files: list[Path]) -> Iterator[tuple[str, Figure | Table]]:
    for result in (load(file, PROGRAM) for file in files):
        sizes = suite_data.bucket_sizes(result)
        if simulated(result) or len(sizes) == 1:
            yield name_of(PROGRAM, result), draw_simulated(result) if simulated(result) else draw_measured(result)
            for size, variant in product(sizes, VARIANTS):
                yield from of_size(result, variant, size, several=len(sizes) > 1)
        for variant in VARIANTS if len(sizes) == 2 else ():
            yield from of_both_sizes(result, variant)


main = script.main(__name__, __doc__, make)
