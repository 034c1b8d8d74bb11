"""What the figures of stage 05 share: the look and title of each all-reduce, readable sizes, and the measurements of
the benchmark collectives."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from figures.lib import style
from figures.lib.result_files import Result, ResultError, load_group

RING = "ring"
BACKENDS = {"gloo": "Gloo", "nccl": "NCCL", "shm": "shared memory"}
GLOO = "gloo all_reduce"  # beside another backend's own
COLOURS = {
    RING: style.BLUE,
    "pipelined ring": style.SKY,
    "butterfly": style.ORANGE,
    "recursive doubling": style.GREEN,
    "tree": style.PURPLE,
    "all_reduce": style.VERMILION,
    GLOO: style.GREY,
}
MARKERS = {
    RING: "o",
    "pipelined ring": "D",
    "butterfly": "s",
    "recursive doubling": "^",
    "tree": "v",
    "all_reduce": "X",
    GLOO: "P",
}


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
COMPARED = (RING, "pipelined ring", "butterfly", "all_reduce")  # by the program
KNOWN = (*COMPARED, GLOO)

Times = dict[str, dict[int, list[float]]]  # seconds of each call in one world, by variant and bytes


def bus_bandwidth(size: float, seconds: float, ranks: int) -> float:
    """GB/s as in nccl-tests: the least that each rank must send, divided by the time."""
    return 2e-9 * (ranks - 1) / ranks * size / seconds


def load_collectives(file: Path) -> Result:
    (result,) = load_group(
        [file],
        COLLECTIVES,
        shared=(),
        own=(
            "rate_gbit",
            "latency_us",
        ),
    )
    return result


def times_by_world(result: Result) -> dict[int, Times]:
    """The measurements of the program collectives, by world size; variants that were left out are missing."""
    worlds: dict[int, Times] = {}
    for series in result.series:
        labels = series["labels"]
        if labels.keys() != {"world_size", "bytes", "variant"} or labels["variant"] not in KNOWN:
            raise ResultError(f"{result.file}: has series of something else; delete it and run the benchmark again")
        times = worlds.setdefault(labels["world_size"], {})
        times.setdefault(labels["variant"], {})[labels["bytes"]] = result.values("s", **labels)
    for world, times in worlds.items():
        if RING not in times:
            raise ResultError(f"{result.file}: lacks the variant {RING!r}; delete it and run the benchmark again")
        if any(by_size.keys() != times[RING].keys() for by_size in times.values()):
            problem = f"{world} ranks have not measured each variant at the same sizes"
            raise ResultError(f"{result.file}: {problem}; delete it and run the benchmark again")
    return {
        world: {variant: worlds[world][variant] for variant in KNOWN if variant in worlds[world]}
        for world in sorted(worlds)
    }


def left_out(times: Times) -> str:
    """A sentence for the caption about the missing variants."""
    missing = [variant for variant in COMPARED if variant not in times]
    return f" Left out: unfinished: {', '.join(missing)}." if missing else ""


def size_label(size: float) -> str:
    """1048576 is 1 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"


def write_plain_numbers(axis: Axis) -> None:
    """Labels a logarithmic axis of a few decades with 0.5 instead of 5 × 10⁻¹."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
