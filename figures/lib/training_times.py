"""The measurements of the benchmark bucketed_ddp: times of an iteration, by batch, sequence and way of training."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures.lib.reference_data import load_reference
from figures.lib.result_files import Result, ResultError, load

PROGRAM = "bucketed_ddp"
PUBLISHED = "bucketed_ddp"  # figures/reference
PARAMETERS = ("model", "parameters", "d_model", "layers", "repetitions", "warmup", "interleaved", "rate_gbit",
              "latency_us")  # fmt: skip
COLUMNS = ("total time train", "total time grad all reduce", "ratio grad all reduce to train time")
BUCKETED, REDUCER, COMPUTE = "bucketed", "Reducer", "compute only"
UNBUCKETED = ("naive", "flat", "overlapped", REDUCER)
# Where the published "maximum bucket size" is shown beside sizes of stage 03.
THRESHOLD = "A bucket closes once it has reached its size, so that most are larger."
PARTS = TRAIN, BACKWARD, ALL_REDUCE = ("train", "backward", "all-reduce")


@dataclass(frozen=True)
class Way:
    """A batch, a sequence, a variant, and the size of its buckets if it has any: in MB of the published model's, and in
    bytes here."""

    local_bs: int
    seq_len: int
    variant: str
    bucket_size_mb: int | None = None
    cap_bytes: int | None = field(default=None, compare=False)
    buckets: int | None = field(default=None, compare=False)

    def name(self) -> str:
        size = "" if self.bucket_size_mb is None else f" of {self.bucket_size_mb} MB"
        return f"{self.variant}{size}, batch {self.local_bs}, sequence {self.seq_len}"


@dataclass(frozen=True)
class Times:
    """Seconds per iteration: means over the iterations, maximum over the ranks."""

    train: float
    all_reduce: float
    ratio: float


class Trainings:
    """All trainings of a result, in its order."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._seconds: dict[Way, dict[str, list[list[float]]]] = {}  # of each part, by rank
        for series in result.series:
            labels = series["labels"]
            way, part = _way_of(result, labels), labels["part"]
            self._seconds.setdefault(way, {}).setdefault(part, []).append(result.values("s", **labels))
        for way, parts in self._seconds.items():
            self._check(way, parts, 1 if result.simulated else result.provenance["world_size"])

    def _check(self, way: Way, parts: dict[str, list[list[float]]], ranks: int) -> None:
        if set(parts) != set(PARTS) or any(len(of_ranks) != ranks for of_ranks in parts.values()):
            raise self._result.error(f"lacks a part or a rank of {way.name()}")
        if len({len(values) for of_ranks in parts.values() for values in of_ranks}) > 1:
            raise ResultError(f"{self._result.file}: the number of iterations differs in {way.name()}; run it again")
        if min(min(values) for values in parts[TRAIN]) <= 0:
            raise ResultError(f"{self._result.file}: has an iteration of {way.name()} that took no time; run it again")

    def ways(self) -> list[Way]:
        return list(self._seconds)

    def batches(self) -> list[int]:
        return sorted({way.local_bs for way in self.ways()})

    def lengths(self, batch: int) -> list[int]:
        return sorted({way.seq_len for way in self.ways() if way.local_bs == batch})

    def has(self, way: Way) -> bool:
        return way in self._seconds

    def bucketed(self, batch: int, length: int) -> list[Way]:
        ways = [w for w in self.ways() if (w.local_bs, w.seq_len, w.variant) == (batch, length, BUCKETED)]
        return sorted(ways, key=lambda way: way.bucket_size_mb or 0)

    def seconds(self, way: Way, part: str) -> float:
        return max(statistics.fmean(values) for values in self._seconds[way][part])

    def iterations(self, way: Way, part: str) -> list[float]:
        """The seconds of each iteration, maximum over the ranks."""
        return [max(values) for values in zip(*self._seconds[way][part])]

    def times(self, way: Way) -> Times:
        """For the Reducer, which waits inside backward, all-reduce is the time of backward beyond computing alone."""
        train, all_reduce = self.seconds(way, TRAIN), self.seconds(way, ALL_REDUCE)
        if way.variant == REDUCER:
            compute = Way(way.local_bs, way.seq_len, COMPUTE)
            if not self.has(compute):
                raise self._result.error(f"lacks {compute.name()}")
            all_reduce = self.seconds(way, BACKWARD) - self.seconds(compute, BACKWARD)
        return Times(train, all_reduce, all_reduce / train)


def _way_of(result: Result, labels: dict[str, Any]) -> Way:
    try:
        labels["part"], labels["rank"]
        sizes = {name: labels.get(name) for name in ("bucket_size_mb", "cap_bytes", "buckets")}
        if labels["variant"] == BUCKETED and None in sizes.values():
            raise KeyError(next(name for name, size in sizes.items() if size is None))
        return Way(labels["local_bs"], labels["seq_len"], labels["variant"], **sizes)
    except KeyError as error:
        raise ResultError(f"{result.file}: has a series without {error.args[0]}; run {PROGRAM} again") from None


def load_trainings(file: Path) -> tuple[Result, Trainings]:
    result = load(file, PROGRAM, PARAMETERS)
    return result, Trainings(result)


def published_times() -> dict[Way, Times]:
    """The published table, row by row."""
    times = {}
    for row in load_reference(PUBLISHED).rows:
        way = Way(int(row["local_bs"]), int(row["seq_len"]), BUCKETED, int(row["bucket_size_mb"]))
        times[way] = Times(*(float(row[name]) for name in COLUMNS))
    return times


def size_in_words(size: float) -> str:
    """Bytes in their shortest readable form."""
    for unit, bytes_of_it in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= bytes_of_it:
            return f"{size / bytes_of_it:.3g} {unit}"
    return f"{size:.0f} B"
