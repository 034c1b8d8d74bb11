"""What the benchmark compare_ddp measured, and the published numbers of the same experiment, in one form."""

from __future__ import annotations

import pandas as pd

from figures.lib.result_files import load_reference, pick, simulated

PROGRAM = "compare_ddp"
KEYS = ["buffer_size", "direction", "variant"]
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
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def measured(result: pd.DataFrame) -> pd.DataFrame:
    """The latency of an iteration in milliseconds, by KEYS: for each of STATISTICS a column, and another, such as
    mean_delta, that says how much longer it is than core's, in percent."""
    values = pick(result.assign(value=1e3 * result["value"])).groupby(KEYS)["value"]
    of_calls = values.describe(percentiles=[0.5, 0.9, 0.95, 0.99])
    of_calls = of_calls.rename(columns=lambda name: f"p{name[:-1]}" if name.endswith("%") else name)
    core = of_calls.xs(CORE, level="variant").reindex(of_calls.index.droplevel("variant")).set_axis(of_calls.index)
    deltas = (100 * (of_calls - core) / core).add_suffix("_delta")
    both = pd.concat([of_calls, deltas], axis="columns")
    return both[[name + suffix for name in STATISTICS for suffix in ("", "_delta")]]


def published() -> pd.DataFrame:
    """The same, as printed."""
    names = {option: variant for variant, option in OPTIONS.items()}
    return load_reference(PROGRAM).replace({"variant": names}).set_index(KEYS).sort_index()


def variants_of(latencies: pd.DataFrame) -> list[str]:
    there = latencies.index.get_level_values("variant")
    return [variant for variant in VARIANTS if variant in there]


def supported(result: pd.DataFrame) -> list[str]:
    """Those of STATISTICS that so few iterations support: of n, at least one must lie above a percentile on average.
    Simulated iterations are all alike."""
    above = {"p90": 10, "p95": 5, "p99": 1}  # percent
    count = iterations_of(result)
    return [name for name in STATISTICS if simulated(result) or count * above.get(name, 100) >= 100]


def iterations_of(result: pd.DataFrame) -> int:
    """How many were measured, of each variant at each buffer size and in each direction."""
    return result.attrs["parameters"]["iterations"] - result.attrs["parameters"]["discarded"]
