"""Published cells beside what the simulated cluster says of them, how far apart they are, and how figures show both.

A few cells of each experiment were used to fit its constants; all others are predictions. Cells are a table: quantity,
place, published, predicted, fitted, and baseline: what somebody would say who knows the fitted cells alone, their mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.lib import ddp_comparison, style, suite_data, training_times
from figures.lib.training_times import WAY

FITTED_SIZES = (3, 12, 25)  # of compare_ddp, in M elements
FITTED_WAYS = [(2, 128, 1), (2, 128, 1000), (2, 512, 100), (4, 256, 100), (4, 512, 1), (4, 512, 1000)]
FITTED_MODEL = "resnet50"  # of ddp_suite: all its rounds, with buckets of 25 MB and of 1 MB
# PyTorch's own implementation, which was measured for the suite.
SUITE_VARIANT, SUITE_BUCKET, AB_PERCENT, LARGEST_AB = "Reducer", 25, 75, 8

TIMES_ONLY = "The simulation computes times only; make test checks values."
TOTAL, ALL_REDUCE = "total time", "all-reduce time"
ITERATION, OVERHEAD, AB = "sec/iter", "overhead over no DDP", "1 MB against 25 MB"


def error_of(cells: pd.DataFrame, guess: str = "predicted") -> pd.Series:
    """In percent of the published number; of the A/B, whose numbers are percentages, in points."""
    value, published = cells[guess], cells["published"]
    return (value - published).where(cells["quantity"] == AB, 100 * (value / published - 1))


def compare_ddp(result: pd.DataFrame) -> pd.DataFrame:
    published = ddp_comparison.published()["p50"].rename("published")
    predicted = ddp_comparison.measured(result)["p50"].rename("predicted")
    order, groups = [*ddp_comparison.DIRECTIONS, *ddp_comparison.OPTIONS], ["direction", "variant"]
    cells = pd.concat([published, predicted], axis="columns", join="inner").reset_index()
    cells = cells.sort_values(groups, key=lambda names: names.map(order.index), kind="stable")
    fitted = published[published.index.isin(FITTED_SIZES, level="buffer_size")]
    return cells.join(fitted.groupby(groups).mean().rename("baseline"), on=groups).assign(
        quantity=cells["direction"] + " of " + cells["variant"],
        place=cells["buffer_size"].astype(str) + "M",
        fitted=cells["buffer_size"].isin(FITTED_SIZES),
    )


def is_fitted(ways: pd.DataFrame) -> pd.Series:
    return pd.MultiIndex.from_frame(ways[["local_bs", "seq_len", "bucket_size_mb"]]).isin(FITTED_WAYS)


def bucketed_ddp(result: pd.DataFrame) -> pd.DataFrame:
    published = training_times.published_times()
    published = published.assign(fitted=is_fitted(published), place=published.apply(training_times.name_of, axis=1))
    both = published.merge(training_times.times(result), on=WAY, suffixes=(" published", " predicted"))
    return pd.concat(
        both[["place", "fitted"]].assign(
            quantity=quantity,
            published=both[f"{part} published"],
            predicted=both[f"{part} predicted"],
            baseline=published[part][published["fitted"]].mean(),
        )
        for quantity, part in ((TOTAL, training_times.TRAIN), (ALL_REDUCE, training_times.ALL_REDUCE))
    )


def ddp_suite(result: pd.DataFrame) -> pd.DataFrame:
    """Beyond one machine the published differences of buckets follow no pattern (-3.8, -0.1, -1.9, -0.7), and are left
    out."""
    both = suite_data.published_rounds().merge(
        suite_data.rounds(result, SUITE_VARIANT, SUITE_BUCKET, 50), on=suite_data.ROUND, suffixes=(" published", "")
    )
    without = both["round"] == suite_data.NO_DDP_ROUND
    alone_of = both[without].set_index("model")["50 published"]
    both = both[~without]
    published, predicted, alone = both["50 published"], both["50"], both["model"].map(alone_of)
    fitted = both["model"] == FITTED_MODEL
    share = (published / alone - 1)[fitted].mean()  # what DDP adds to that model
    base = pd.DataFrame({"place": both["model"] + ", " + both["gpus"].astype(str) + " GPUs", "fitted": fitted})
    steps = base.assign(quantity=ITERATION, published=published, predicted=predicted, baseline=alone * (1 + share))
    values = {"published": published - alone, "predicted": predicted - alone, "baseline": alone * share}
    added = base.assign(quantity=OVERHEAD, **values)
    cells = pd.concat([steps, added]).sort_index(kind="stable")
    return pd.concat([cells, _ab(result)]) if len(suite_data.bucket_sizes(result)) == 2 else cells


def _ab(result: pd.DataFrame) -> pd.DataFrame:
    published = suite_data.published_diffs(AB_PERCENT).rename("published")
    published = published[published.index.get_level_values("gpus") <= LARGEST_AB]
    predicted = suite_data.diffs(result, SUITE_VARIANT, AB_PERCENT).rename("predicted")
    both = pd.concat([published, predicted], axis="columns", join="inner").reset_index()
    return both.assign(
        quantity=AB,
        place=both["model"] + ", " + both["gpus"].astype(str) + " GPUs",
        baseline=published[FITTED_MODEL].mean(),
        fitted=both["model"] == FITTED_MODEL,
    )


EXPERIMENTS = {"compare_ddp": compare_ddp, "bucketed_ddp": bucketed_ddp, "ddp_suite": ddp_suite}


def errors(cells: pd.DataFrame) -> pd.DataFrame:
    """Sizes of errors over predicted cells, in percent or points, by quantity; `correlation` is of predicted with
    published numbers."""
    held = cells[~cells["fitted"]]
    held = held.assign(error=error_of(held).abs(), baseline_error=error_of(held, "baseline").abs())
    groups = held.groupby("quantity", sort=False)
    return groups.agg(cells=("error", "size"), mean=("error", "mean"), largest=("error", "max")).assign(
        correlation=pd.Series({quantity: _correlation(rows) for quantity, rows in groups}, dtype=float),
        baseline_mean=groups["baseline_error"].mean(),
        baseline_largest=groups["baseline_error"].max(),
    )


def _correlation(cells: pd.DataFrame) -> float:
    pairs = cells[["predicted", "published"]]
    return 0.0 if len(pairs) < 2 or np.ptp(pairs, axis=0).min() < 1e-9 else float(np.corrcoef(pairs.T)[0, 1])


def best_sizes(cells: pd.DataFrame) -> tuple[int, int]:
    """In how many panels of bucketed_ddp, a batch and a sequence each, the predicted best size is the published one;
    and how many panels there are."""
    total = cells[cells["quantity"] == TOTAL].reset_index()
    best = total.groupby(total["place"].str.partition(", ")[2])[["predicted", "published"]].idxmin()
    return int((best["predicted"] == best["published"]).sum()), len(best)


def percent(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.2g}"


def in_words(quantity: str, found: pd.Series) -> str:
    own = f"mean error {percent(found['mean'])}, largest {percent(found['largest'])} {unit_of(quantity)}"
    baseline = f"{percent(found['baseline_mean'])} and {percent(found['baseline_largest'])}"
    return f"{quantity}: {own} over {found['cells']:.0f} predicted cells (baseline {baseline})"


def unit_of(quantity: str) -> str:
    return "points" if quantity == AB else "%"


def document(program: str, cells: pd.DataFrame) -> dict[str, Any]:
    """What figures/reference/calibration.json says of the cells, rounded to what is worth reading."""
    fitted = cells[cells["fitted"]]
    places = fitted["quantity"] + ", " + fitted["place"]
    made: dict[str, Any] = {
        "fitted": dict(zip(places, map(float, error_of(fitted).round(3)))),
        "predicted": errors(cells).round(3).to_dict(orient="index"),
    }
    if program == training_times.PROGRAM:
        made["best_sizes_as_published"] = "{} of {}".format(*best_sizes(cells))
    return made


def draw_published(axes: Axes, points: pd.Series, fitted: Iterable[bool], color: str, marker: str) -> None:
    """Published numbers over their index. Those to which constants were fitted are filled."""
    for (x, y), filled in zip(points.items(), fitted):
        axes.plot(
            x, y, color=color, marker=marker, markersize=3.8, linestyle="none", zorder=4,
            markerfacecolor=color if filled else "white", markeredgewidth=0.8, markeredgecolor=color,
        )  # fmt: skip


def add_legend(figure: Figure, entries: dict[str, dict[str, Any]], loc: str = "outside upper left") -> None:
    """`entries`, then those for predictions and for the two kinds of published numbers."""
    look = {"color": "#444444", "markersize": 3.8, "linestyle": "none", "marker": "o", "markeredgewidth": 0.8}
    kinds = {
        "simulated": {"color": "#444444", "linewidth": 1.2},
        "published, predicted": {**look, "markerfacecolor": "white"},
        "published, fitted": look,
    }
    style.legend(figure, entries | kinds, loc, ncols=3, handlelength=1.8)


def setup_in_words(result: pd.DataFrame) -> str:
    values, gpus = result.attrs["parameters"], result.attrs["provenance"]["world_size"]
    return (
        f"Simulated cluster: {gpus} GPUs ({values['gpu']}), {min(gpus, values['gpus_per_node'])} a machine, links of "
        f"{values['link_gb_per_s']:.3g} GB/s"
    )


def add_caption(
    figure: Figure, result: pd.DataFrame, cells: pd.DataFrame, text: str, quantities: Iterable[str]
) -> Figure:
    """The set-up, `text`, and how far predictions are from the published numbers."""
    found = errors(cells)
    words = [in_words(quantity, found.loc[quantity]) for quantity in quantities if quantity in found.index]
    sentences = [f"{setup_in_words(result)}.", text, *(f"{one[0].upper()}{one[1:]}." for one in words), TIMES_ONLY]
    return style.add_caption(figure, " ".join(sentences), [result])
