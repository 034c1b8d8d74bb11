"""What the benchmark compare_ddp measured, and the published numbers of the same experiment, in one form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from figures.lib.reference_data import load_reference
from figures.lib.result_files import Result, ResultError

PROGRAM = "compare_ddp"
REFERENCE = "compare_ddp"
PARAMETERS = (
    "parameters", "trainable_parameters", "parameter_tensors", "largest_parameter", "largest_parameter_shape",
    "largest_parameter_elements", "batch_size", "image_size", "iterations", "discarded", "rate_gbit", "latency_us",
)  # fmt: skip
M = 2**20  # elements
DIRECTIONS = ("forward", "backward")
CORE, EQUAL_BYTES, ASYNC, SYNC = MEASURED = ("core", "core, equal bytes", "async", "sync")
# At published scale async and sync are the published Python DDP, and the stage is a variant of its own.
STAGE = "stage 03"
VARIANTS = (*MEASURED, STAGE)
# Their names in the published tables.
OPTIONS = {
    CORE: "DDPOption.DDP_CPP_CORE",
    ASYNC: "DDPOption.PYTHON_DDP_ASYNC_REDUCTION",
    SYNC: "DDPOption.PYTHON_DDP_SYNC_REDUCTION",
    EQUAL_BYTES: "DDPOption.DDP_CPP_CORE_EQUAL_BYTES",  # not published
    STAGE: "stage 03",
}


@dataclass(frozen=True)
class Latency:
    """The latency of an iteration, in milliseconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float


STATISTICS = tuple(Latency.__dataclass_fields__)
PERCENTS = {"p90": 90, "p95": 95, "p99": 99}

# By buffer size in M, direction and variant. Each size has the same variants, including core.
Comparison = dict[int, dict[str, dict[str, Latency]]]


def delta(latencies: dict[str, Latency], variant: str, statistic: str = "p50") -> float:
    """How much longer a variant's latency is than core's, in percent."""
    core = getattr(latencies[CORE], statistic)
    return 100 * (getattr(latencies[variant], statistic) - core) / core


def variants_of(comparison: Comparison) -> list[str]:
    """The measured variants, in the order of VARIANTS."""
    first = next(iter(comparison.values()))[DIRECTIONS[0]]
    return [variant for variant in VARIANTS if variant in first]


def iterations_of(result: Result) -> int:
    """How many were measured, of each variant at each buffer size and in each direction."""
    return result.parameters["iterations"] - result.parameters["discarded"]


def measured_statistics(result: Result) -> list[str]:
    """Those of STATISTICS that so few iterations support: of n, at least one must lie above a percentile on average,
    which takes 10 for the 90th, 20 for the 95th and 100 for the 99th. Of fewer, it is little else than the largest.
    Simulated iterations are all alike."""
    count = iterations_of(result)
    return [name for name in STATISTICS if result.simulated or count * (100 - PERCENTS.get(name, 0)) >= 100]


def procedure_of(result: Result) -> str:
    """How it was measured, in words."""
    values = result.parameters
    missing = [name for name in ("loss", "times_of", "broadcasts_buffers") if name not in values]
    if missing:
        raise ResultError(f"{result.file}: lacks the parameter {missing[0]!r}; run the benchmark again")
    loss = {"mse": "mean squared error", "cross-entropy": "cross entropy"}[values["loss"]]
    times = {"rank0": "rank 0's times", "slowest": "times of the slowest rank"}[values["times_of"]]
    broadcasts = "broadcasts" if values["broadcasts_buffers"] else "does not broadcast"
    return f"{loss}; {times}; core {broadcasts} BatchNorm's buffers before forward"


def summarize(seconds: list[float]) -> Latency:
    values = 1e3 * np.array(seconds)
    return Latency(float(values.mean()), *map(float, np.percentile(values, [50, 90, 95, 99])))


def measured(result: Result) -> Comparison:
    comparison: Comparison = {}
    for series in result.series:
        labels = series["labels"]
        size, direction, variant = (labels.get(name) for name in ("buffer_size", "direction", "variant"))
        if not isinstance(size, int) or direction not in DIRECTIONS or variant not in VARIANTS or len(labels) != 3:
            raise ResultError(f"{result.file}: has a series of something else: {labels}; run the benchmark again")
        seconds = result.values("s", **labels)
        if min(seconds) <= 0:
            raise ResultError(f"{result.file}: an iteration of {variant} takes no time; run the benchmark again")
        comparison.setdefault(size, {}).setdefault(direction, {})[variant] = summarize(seconds)
    variants = {variant for cell in comparison.values() for latencies in cell.values() for variant in latencies}
    for size, cell in comparison.items():
        for direction in DIRECTIONS:
            missing = (variants | {CORE}) - cell.get(direction, {}).keys()
            if missing:
                lack = f"{direction} of {', '.join(sorted(missing))} at {size}M"
                raise ResultError(f"{result.file}: lacks {lack}; run the benchmark again")
    return dict(sorted(comparison.items()))


def published_rows() -> dict[tuple[int, str, str], list[float]]:
    """The ten numbers of each row, as printed, by buffer size, direction and variant."""
    names = {option: variant for variant, option in OPTIONS.items()}
    columns = [name + suffix for name in STATISTICS for suffix in ("", "_delta")]
    return {
        (int(row["buffer_size"]), row["direction"], names[row["variant"]]): [float(row[name]) for name in columns]
        for row in load_reference(REFERENCE).rows
    }


def published() -> Comparison:
    comparison: Comparison = {}
    for (size, direction, variant), row in published_rows().items():
        comparison.setdefault(size, {}).setdefault(direction, {})[variant] = Latency(*row[::2])
    return comparison
