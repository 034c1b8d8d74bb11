"""What the scripts of ddp_suite share: its rounds, and the published numbers."""

from __future__ import annotations

import pandas as pd

from figures.lib.result_files import load_reference, pick

PROGRAM = "ddp_suite"
NO_DDP, NO_DDP_ROUND = "compute only", "no ddp"  # the variant, and the name of its round
# The variants that use DDP, with the names that readers see.
VARIANTS = {"bucketed": "stage 03", "Reducer": "c10d::Reducer"}
PUBLISHED = "PyTorch 1.4, V100 GPUs, NCCL"  # how the published numbers were measured
ROUND = ["model", "round", "gpus"]


def bucket_sizes(result: pd.DataFrame) -> list[int]:
    return list(result["bucket_size"].dropna().unique())


def rounds(result: pd.DataFrame, variant: str, bucket_size: int, *percents: int) -> pd.DataFrame:
    """Seconds of an iteration at these percentiles, over all ranks: a row for each model's round without DDP, which is
    of every variant, and for those of this variant and bucket size, in the order of measurement."""
    chosen = (result["variant"] == variant) & (result["bucket_size"] == bucket_size)
    own = pick(result[chosen | (result["variant"] == NO_DDP)].rename(columns={"ranks": "gpus"}))
    quantiles = own.groupby(ROUND, sort=False)["value"].quantile([percent / 100 for percent in percents]).unstack()
    quantiles.columns = list(percents)
    return quantiles.loc[list(own.groupby(ROUND, sort=False).groups)].reset_index()


def published_rounds() -> pd.DataFrame:
    """The published seconds in the same form."""
    return load_reference(PROGRAM).pivot_table("sec/iter", ROUND, "percentile", sort=False).reset_index()


def diffs(result: pd.DataFrame, variant: str, percent: int) -> pd.Series:
    """By model and ranks: how much faster the second bucket size is than the first, in percent, as PyTorch's diff.py
    computes it."""
    then, now = (
        own[own["round"] != NO_DDP_ROUND].set_index(["model", "gpus"])[percent]
        for own in (rounds(result, variant, size, percent) for size in bucket_sizes(result))
    )
    return -100 * (now - then) / then


def published_diffs(percent: int) -> pd.Series:
    return pick(load_reference("ddp_suite_diff"), percentile=percent).set_index(["model", "gpus"])["diff"]
