"""What the figures of stage 05 share: the look, title and cost of each all-reduce, readable sizes, and the measurements
of the benchmark collectives."""

from __future__ import annotations

import math

from figures.lib import style
from figures.lib.result_files import Result

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


def title_of(variant: str, result: Result) -> str:
    """A variant's title; the group's own all-reduce is named after its backend."""
    if variant == GLOO:
        return "Gloo's all_reduce"
    if variant != "all_reduce":
        return variant
    backend = result.provenance["backend"]
    if "," in backend:  # several worlds, with enough GPUs only for the smaller ones
        return "the backend's all_reduce"
    return f"{BACKENDS.get(backend, backend)}'s all_reduce"


COLLECTIVES = "collectives"  # the program
PARAMETERS = ("rate_gbit", "latency_us")
COMPARED = (RING, "pipelined ring", "butterfly", "all_reduce")  # by the program
KNOWN = (*COMPARED, GLOO)

Times = dict[str, dict[int, list[float]]]  # seconds of each call in one world, by variant and bytes


def bus_bandwidth(size: float, seconds: float, ranks: int) -> float:
    """GB/s as in nccl-tests: the least that each rank must send, divided by the time."""
    return 2e-9 * (ranks - 1) / ranks * size / seconds


def times_by_world(result: Result) -> dict[int, Times]:
    """The measurements of the program collectives, by world size; variants that were left out are missing."""
    worlds: dict[int, Times] = {}
    for series in result.series:
        labels = series["labels"]
        if labels.keys() != {"world_size", "bytes", "variant"} or labels["variant"] not in KNOWN:
            raise result.error("has series of something else")
        times = worlds.setdefault(labels["world_size"], {})
        times.setdefault(labels["variant"], {})[labels["bytes"]] = result.values("s", **labels)
    for world, times in worlds.items():
        if RING not in times:
            raise result.error(f"lacks the variant {RING!r}")
        if any(by_size.keys() != times[RING].keys() for by_size in times.values()):
            problem = f"{world} ranks have not measured each variant at the same sizes"
            raise result.error(f"{problem}")
    return {
        world: {variant: worlds[world][variant] for variant in KNOWN if variant in worlds[world]}
        for world in sorted(worlds)
    }


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
