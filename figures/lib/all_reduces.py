"""What figures and tables of stage 05 share: look and title of each all-reduce, times of collectives."""

from __future__ import annotations

import pandas as pd

from figures.lib import style

RING = "ring"
BACKENDS = {"gloo": "Gloo", "nccl": "NCCL"}
LOOKS = {
    RING: {"color": style.BLUE, "marker": "o"},
    "butterfly": {"color": style.ORANGE, "marker": "s"},
    "recursive doubling": {"color": style.GREEN, "marker": "^"},
    "tree": {"color": style.PURPLE, "marker": "v"},
    "all_reduce": {"color": style.VERMILION, "marker": "X"},
}
COLLECTIVES = "collectives"  # the program
COMPARED = (RING, "butterfly", "all_reduce")  # by the program


def title_of(variant: str, result: pd.DataFrame) -> str:
    """A variant's title; the group's own all-reduce is named after its backend."""
    backend = result.attrs["provenance"]["backend"]
    if variant == "all_reduce":  # of several worlds only the smaller ones may have enough GPUs
        whose = "the backend" if "," in backend else BACKENDS.get(backend, backend)
        return f"{whose}'s all_reduce"
    return variant


def bus_bandwidth(size: float, seconds: float, ranks: int) -> float:
    """GB/s as in nccl-tests: the least that each rank must send, divided by the time. Takes columns, too."""
    return 2e-9 * (ranks - 1) / ranks * size / seconds


def collectives_times(result: pd.DataFrame) -> pd.DataFrame:
    """Seconds of a call, by world size, variant and bytes: the median, and the 10th and 90th percentile, low and high.
    Variants are in the order of COMPARED."""
    ordered = result.assign(variant=pd.Categorical(result["variant"], COMPARED))
    groups = ordered.groupby(["world_size", "variant", "bytes"], observed=True)["value"]
    low, high = groups.quantile(0.1), groups.quantile(0.9)
    return pd.DataFrame({"median": groups.median(), "low": low, "high": high, "calls": groups.size()})
