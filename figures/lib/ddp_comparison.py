"""What the benchmark compare_ddp measured, and the published numbers of the same experiment, in one form."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from figures.lib import style
from figures.lib.reference_data import load_reference
from figures.lib.result_files import link, pick, simulated

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
COLOURS = {CORE: style.GREY, EQUAL_BYTES: style.PURPLE, ASYNC: style.BLUE, SYNC: style.VERMILION, STAGE: style.GREEN}
MARKERS = {CORE: "o", EQUAL_BYTES: "D", ASYNC: "s", SYNC: "^", STAGE: "v"}


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


def iterations_of(result: pd.DataFrame) -> int:
    """How many were measured, of each variant at each buffer size and in each direction."""
    values = result.attrs["parameters"]
    return values["iterations"] - values["discarded"]


def supported(result: pd.DataFrame) -> list[str]:
    """Those of STATISTICS that so few iterations support: of n, at least one must lie above a percentile on average,
    which takes 10 for the 90th, 20 for the 95th and 100 for the 99th. Of fewer, it is little else than the largest.
    Simulated iterations are all alike."""
    above = {"p90": 10, "p95": 5, "p99": 1}  # percent
    return [
        name for name in STATISTICS if simulated(result) or iterations_of(result) * above.get(name, 100) >= 100
    ]  # fmt: skip


def procedure_of(result: pd.DataFrame) -> str:
    """How it was measured, in words."""
    values = result.attrs["parameters"]
    loss = {"mse": "mean squared error", "cross-entropy": "cross entropy"}[values["loss"]]
    times = {"rank0": "rank 0's times", "slowest": "times of the slowest rank"}[values["times_of"]]
    broadcasts = "broadcasts" if values["broadcasts_buffers"] else "does not broadcast"
    return f"{loss}; {times}; core {broadcasts} BatchNorm's buffers before forward"


def configuration(result: pd.DataFrame) -> str:
    values = result.attrs["parameters"]
    return f"batch {values['batch_size']}, {values['image_size']}x{values['image_size']}, {link(result)}"


def mark_whole_model(axes: Axes, result: pd.DataFrame, named: bool) -> None:
    """Draws a line at the buffer size that holds all gradients."""
    size = result.attrs["parameters"]["parameters"] / M
    axes.axvline(size, color="black", linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    if named:
        axes.annotate(
            f"all {size:.2f}M", (size, 1), (-3, -3), xycoords=axes.get_xaxis_transform(),
            textcoords="offset points", ha="right", va="top", fontsize=6.5,
        )  # fmt: skip
