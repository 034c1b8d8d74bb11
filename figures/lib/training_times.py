"""The measurements of the benchmark bucketed_ddp: times of an iteration, by batch, sequence and way of training."""

from __future__ import annotations

import pandas as pd

from figures.lib.result_files import load_reference
from figures.lib.style import size_in_words

PROGRAM = "bucketed_ddp"
BUCKETED, REDUCER, COMPUTE = "bucketed", "Reducer", "compute only"
UNBUCKETED = ("naive", "flat", "overlapped", REDUCER)
# Where the published "maximum bucket size" is shown beside sizes of stage 03.
THRESHOLD = "A bucket closes once it has reached its size, so that most are larger."
# What tells one training from another. Sizes of buckets are MB of the published model's; 0: there are no buckets.
WAY = ["local_bs", "seq_len", "variant", "bucket_size_mb"]
TRAIN, ALL_REDUCE, BACKWARD = "train", "all-reduce", "backward"
# Names of the published columns.
PUBLISHED = {
    TRAIN: "total time train",
    ALL_REDUCE: "total time grad all reduce",
    "ratio": "ratio grad all reduce to train time",
}


def trainings(result: pd.DataFrame) -> pd.DataFrame:
    """A row for each value, with WAY; cap_bytes is a bucket's size here."""
    sizes = {"bucket_size_mb": 0, "cap_bytes": 0}
    return result.assign(**{name: 0 for name in sizes if name not in result}).fillna(sizes).infer_objects()


def times(result: pd.DataFrame) -> pd.DataFrame:
    """Seconds of an iteration, means over the iterations, the largest of the ranks: a row for each training. Columns
    are WAY, cap_bytes, the parts, and the all-reduce's ratio. The Reducer waits inside backward: its all-reduce is the
    time of backward beyond computing alone."""
    means = trainings(result).groupby([*WAY, "cap_bytes", "part", "rank"], sort=False)["value"].mean().reset_index()
    table = means.pivot_table("value", [*WAY, "cap_bytes"], "part", "max", sort=False).reset_index()
    alone = table[table["variant"] == COMPUTE].set_index(["local_bs", "seq_len"])[BACKWARD].rename("alone")
    waits = table["variant"] == REDUCER
    if waits.any():
        beyond = table[BACKWARD] - table.join(alone, on=["local_bs", "seq_len"])["alone"]
        table[ALL_REDUCE] = table[ALL_REDUCE].mask(waits, beyond)
    table["ratio"] = table[ALL_REDUCE] / table[TRAIN]
    return table


def published_times() -> pd.DataFrame:
    """The published table: WAY, and the columns of times()."""
    table = load_reference(PROGRAM).rename(columns={name: part for part, name in PUBLISHED.items()})
    return table.assign(variant=BUCKETED)


def name_of(way: pd.Series) -> str:
    size = f" of {way['bucket_size_mb']} MB" if way["bucket_size_mb"] else ""
    return f"{way['variant']}{size}, batch {way['local_bs']}, sequence {way['seq_len']}"


def caps_in_words(times: pd.DataFrame) -> str:
    """A sentence for a caption: what buckets hold here, if that is another size than the published one."""
    caps = dict(sorted(zip(times["bucket_size_mb"], times["cap_bytes"])))
    here = ", ".join(f"{size} MB is {size_in_words(cap)}" for size, cap in caps.items() if size)
    alike = all(cap == size << 20 for size, cap in caps.items())
    return "" if alike else f" Buckets are as large a part of the gradients as the published ones of xl's: {here}."
