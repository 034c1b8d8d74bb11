"""What the figures of stage 05 share: the look and title of each all-reduce, readable sizes, and the measurements of
the benchmark collectives."""

from __future__ import annotations

import pandas as pd

from figures.lib import style

RING = "ring"
BACKENDS = {"gloo": "Gloo", "nccl": "NCCL", "shm": "shared memory"}
GLOO = "gloo all_reduce"  # beside another backend's own
LOOKS = {
    RING: (style.BLUE, "o"),
    "pipelined ring": (style.SKY, "D"),
    "butterfly": (style.ORANGE, "s"),
    "recursive doubling": (style.GREEN, "^"),
    "tree": (style.PURPLE, "v"),
    "all_reduce": (style.VERMILION, "X"),
    GLOO: (style.GREY, "P"),
}
COLOURS, MARKERS = ({name: look[part] for name, look in LOOKS.items()} for part in (0, 1))
COLLECTIVES = "collectives"  # the program
COMPARED = (RING, "pipelined ring", "butterfly", "all_reduce")  # by the program
KNOWN = (*COMPARED, GLOO)


def title_of(variant: str, result: pd.DataFrame) -> str:
    """A variant's title; the group's own all-reduce is named after its backend."""
    if variant == GLOO:
        return "Gloo's all_reduce"
    if variant != "all_reduce":
        return variant
    backend = result.attrs["provenance"]["backend"]
    if "," in backend:  # several worlds, with enough GPUs only for the smaller ones
        return "the backend's all_reduce"
    return f"{BACKENDS.get(backend, backend)}'s all_reduce"


def bus_bandwidth(size: float, seconds: float, ranks: int) -> float:
    """GB/s as in nccl-tests: the least that each rank must send, divided by the time. Takes columns, too."""
    return 2e-9 * (ranks - 1) / ranks * size / seconds


def collectives_times(result: pd.DataFrame) -> pd.DataFrame:
    """Seconds of a call, by world size, variant and bytes: the median, and the 10th and 90th percentile, low and high.
    Variants are in the order of KNOWN."""
    ordered = result.assign(variant=pd.Categorical(result["variant"], KNOWN))
    groups = ordered.groupby(["world_size", "variant", "bytes"], observed=True)["value"]
    low, high = groups.quantile(0.1), groups.quantile(0.9)
    return pd.DataFrame({"median": groups.median(), "low": low, "high": high, "calls": groups.size()})


def size_label(size: float) -> str:
    """1048576 is 1 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"
