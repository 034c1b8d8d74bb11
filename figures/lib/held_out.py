"""Published measurements of several sources beside what the simulated cluster says of them: held_out.csv.

Rows of a source that describe its machine, or to which something was fitted, are calibration; errors are counted over
the others alone.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from figures.lib.result_files import load_reference

NAME = "held_out"
STEP, AFTER, FORWARD, BOTH, OPTIMIZER, ALL_REDUCE, AB = (
    "step", "after backward", "forward", "forward + backward", "optimizer", "time", "A/B"
)  # fmt: skip
ONE_GPU = "compute only"
SOURCES = {
    "A": "A, 2 GPUs, PCIe", "B": "B, 2 H20", "C": "C, 2 T4", "suite": "PyTorch's suite, 64 V100",
    "D": "D, 2 H100, FP32", "D, TF32": "D, 1 H100, TF32", "D, BF16": "D, 1 H100, BF16",
    "E": "E, 2 RTX PRO 6000", "F": "F, 32 V100", "G": "G, 2 A800, PCIe",
}  # fmt: skip
COLUMNS = ["source", "quantity", "held-out cells", "mean error", "largest", "baseline mean", "baseline largest"]


def rows() -> pd.DataFrame:
    """The table, in seconds, or points for an A/B; what a program takes as a flag is text, as in the file."""
    numbers = {"gpus": int, "published": float, "predicted": float}
    return load_reference(NAME, as_printed=True).astype(numbers)


def with_errors(table: pd.DataFrame) -> pd.DataFrame:
    """The table, with whether a row was `fitted`, its `quantity` (errors are counted over a quantity's rows together),
    its `error` in percent, of an A/B in points, and the error of a `baseline`: of somebody who knows the mean of the
    source's numbers of the same kind, and no model."""
    metric = table["metric"]
    quantity = table["method"].replace("Reducer", "bucketed") + ": " + metric
    quantity = quantity.mask(metric.isin([FORWARD, BOTH]), metric + ", 1 GPU")
    quantity = quantity.mask(metric.isin([OPTIMIZER, AB]), metric).mask(metric == ALL_REDUCE, "all-reduce")
    table = table.assign(quantity=quantity, fitted=table["role"] == "calibration")
    guess = table.groupby(["source", "quantity"])["published"].transform("mean")

    def error(value: pd.Series) -> np.ndarray:
        published = table["published"]
        return np.where(metric == AB, value - published, 100 * (value / published - 1))

    return table.assign(error=error(table["predicted"]), baseline=error(guess))


def errors(table: pd.DataFrame) -> pd.DataFrame:
    """Over the held-out rows of each source and quantity."""
    held = with_errors(table)
    held = held[~held["fitted"]]
    sizes = held.assign(error=held["error"].abs(), baseline=held["baseline"].abs())
    return sizes.groupby(["source", "quantity"], sort=False)[["error", "baseline"]].agg(["size", "mean", "max"])


def lines(table: pd.DataFrame) -> list[list[str]]:
    """In COLUMNS."""
    made = []
    for (source, quantity), found in errors(table).iterrows():
        unit = "points" if quantity == AB else "%"
        values = [f"{found[whose][kind]:.1f} {unit}" for whose in ("error", "baseline") for kind in ("mean", "max")]
        made.append([SOURCES[source], quantity, f"{found['error']['size']:.0f}", *values])
    return made
