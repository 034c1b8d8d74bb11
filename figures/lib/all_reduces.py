"""What the figures of stage 05 share: the look, title and cost of each all-reduce, readable sizes, and the measurements
of the benchmark collectives."""

from __future__ import annotations

import math

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


# Costs of all-reduces in the alpha-beta model: a message of n bytes takes alpha + n * beta, and each rank has one
# outgoing and one incoming port, which work at the same time.
ALGORITHMS = ("ring", "butterfly", "recursive doubling", "tree")


def messages(algorithm: str, world: int) -> tuple[int, float]:
    """The number of consecutive messages, and the part of the tensor in each."""
    if world == 1:
        return 0, 1
    below, above = math.floor(math.log2(world)), math.ceil(math.log2(world))
    return {
        "ring": (2 * (world - 1), 1 / world),
        "butterfly": (2 * (world - 1), 1 / world),
        "recursive doubling": (below if below == above else below + 2, 1),
        "tree": (2 * above, 1),
    }[algorithm]


def formula_seconds(algorithm: str, world: int, size: float, network: dict[str, float]) -> float:
    """Exact if the world size divides the number of elements."""
    count, part = messages(algorithm, world)
    return 1e-9 * count * (network["alpha_ns"] + part * size * network["beta_ns_per_byte"])


def crossover(one: str, other: str, world: int, network: dict[str, float]) -> float | None:
    """The bytes for which two all-reduces take equally long; None if one is never slower."""
    (count, part), (other_count, other_part) = messages(one, world), messages(other, world)
    latencies, bytes_moved = other_count - count, count * part - other_count * other_part
    if latencies * bytes_moved <= 0 or not network["beta_ns_per_byte"]:
        return None
    return latencies * network["alpha_ns"] / (bytes_moved * network["beta_ns_per_byte"])
