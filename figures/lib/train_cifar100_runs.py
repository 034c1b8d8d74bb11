"""The measurements of the benchmark train_cifar100, for its figure and tables: trainings by implementation and seed.

Quantities per epoch: "running loss" and "batch accuracy", which the published program prints (of rank 0: losses added
up and divided by the number of micro-batches; and the last one's accuracy), "validation loss" and "validation
accuracy"; per epoch and rank: "train time"; per rank: "peak memory".
"""

from __future__ import annotations

import pandas as pd

from figures.lib.result_files import pick

PROGRAM = "train_cifar100"
IMPLEMENTATIONS = ("selfmade", "pytorch")
PUBLISHED_RUN = {"data": "CIFAR-100", "train_size": 50_000, "epochs": 16, "batch_size": 256, "grad_accum_steps": 4,
                 "learning_rate": 0.01, "momentum": 0.5}  # fmt: skip
PUBLISHED_RANKS = 2
STAGES = {"naive": "01", "flat": "01", "overlapped": "02", "bucketed": "03"}


def as_published(result: pd.DataFrame) -> bool:
    """Whether the loss and accuracy of the published run can be compared with these."""
    same_ranks = result.attrs["provenance"]["world_size"] == PUBLISHED_RANKS
    return same_ranks and PUBLISHED_RUN.items() <= result.attrs["parameters"].items()


def implementations_of(result: pd.DataFrame) -> list[str]:
    return [name for name in IMPLEMENTATIONS if name in set(result["distributed_impl"])]


def name_of(implementation: str, result: pd.DataFrame) -> str:
    if implementation == "pytorch":
        return "pytorch: c10d::Reducer, port of nn.SyncBatchNorm"
    ddp = result.attrs["parameters"]["ddp"]
    return f"selfmade: {ddp} DDP (stage {STAGES.get(ddp, '?')}), SyncBatchNorm (stage 04)"


def curves(result: pd.DataFrame, implementation: str, quantity: str) -> pd.DataFrame:
    """A row for each seed, a column for each epoch, counted from 0."""
    rows = pick(result, distributed_impl=implementation, quantity=quantity)
    return rows.pivot(index="seed", columns="call", values="value")


def costs(result: pd.DataFrame, implementation: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training time of all epochs in seconds, and peak memory in bytes: a row for each seed, a column for each rank."""
    seconds, allocated = (
        pick(result, distributed_impl=implementation, quantity=quantity).groupby(["seed", "rank"])["value"]
        for quantity in ("train time", "peak memory")
    )
    return seconds.sum().unstack(), allocated.max().unstack()
