"""Reads a reader's measurements for `make calibrate`, and says which of them describe the machine."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from figures.lib import held_out
from figures.lib.held_out import AFTER, ALL_REDUCE, BOTH, FORWARD, ONE_GPU, STEP, Row
from figures.lib.training_times import BUCKETED
from tools.setup.toolchain import LabError

NAMES = ("source", "gpus", "model", "batch", "seq", "method", "bucket_mb", "metric")
METRICS = {
    "step time": STEP, "rate": STEP, "all-reduce time (after backward)": AFTER,
    **{metric: metric for metric in (STEP, AFTER, FORWARD, BOTH, ALL_REDUCE)},
}  # fmt: skip
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
HOST_BOUND, LONG = "small", 512  # a model whose layers wait for the host, and tokens from which they do not


def is_resnet(row: Row) -> bool:
    return row.model.startswith("resn")


def _seconds(cells: dict[str, str]) -> float:
    if "published" in cells:
        return float(cells["published"])
    if cells["unit"] == "images/s":
        return int(cells["batch"]) * int(cells["gpus"]) / float(cells["value"])
    return float(cells["value"]) * UNITS[cells["unit"]]


def _row(cells: dict[str, str]) -> Row:
    texts = {name: (cells.get(name) or "").strip() for name in NAMES}
    size = texts["model"].removeprefix("transformer ").removeprefix("float32 tensor ").removesuffix(" MiB")
    texts["model"] = size.lower()
    texts["method"] = ONE_GPU if texts["method"] == "no DDP" else texts["method"]
    texts["bucket_mb"] = texts["bucket_mb"].split(" ")[0]  # "25 (default)"
    texts["metric"] = METRICS[texts["metric"]]
    row = held_out.row_of({**texts, "role": cells.get("role", ""), "published": str(_seconds(cells)), "predicted": "0"})
    needed = [row.model] if row.metric == ALL_REDUCE else [row.batch, row.seq]
    needed += [row.bucket_mb] if row.method == BUCKETED else []
    if not all(0 < number < math.inf for number in (row.published, row.gpus, *map(float, needed))):
        raise ValueError(f"not all numbers are above 0: {', '.join(filter(None, cells.values()))}")
    return row


def describing(rows: list[Row], per_node: int) -> Iterator[Row]:
    """As in the list of tools/report/calibrate_machine.py."""
    reduced = sorted((row for row in rows if row.metric == ALL_REDUCE), key=lambda row: (row.gpus, float(row.model)))
    fewest = [row for row in reduced if row.gpus == reduced[0].gpus]
    between = [row for row in reduced if row.gpus > per_node]
    yield from fewest[:1] + fewest[-1:] + [row for row in between if row.gpus == between[0].gpus][-1:]
    alone = [row for row in rows if row.method == ONE_GPU and not is_resnet(row)]
    small = [row for row in alone if row.model == HOST_BOUND]
    if small:
        fewest, most = (pick(int(row.seq) for row in small) for pick in (min, max))
        yield from (row for row in small if int(row.seq) == fewest)
        yield from (row for row in small if int(row.seq) == most > LONG and row.metric == BOTH)
    large = [row for row in alone if row.model != HOST_BOUND]
    for row in large:
        chosen = max((other.model == "xl", int(other.seq) <= LONG, int(other.seq), other.model) for other in large)
        if (row.model == "xl", int(row.seq) <= LONG, int(row.seq), row.model) == chosen:
            yield row
    yield from [row for row in rows if row.method == "naive" and row.metric == STEP][:1]
    if not reduced:
        yield from [row for row in rows if row.method == "naive" and row.metric == AFTER][:1]
    yield from (row for row in rows if is_resnet(row) and row.method == ONE_GPU)


def read(file: Path, per_node: int) -> list[Row]:
    form = f"figures/reference/{held_out.NAME}.csv"
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{file}: cannot be read ({error}); give FROM= a file like {form}") from None
    table = list(csv.DictReader(lines))
    known = [cells for cells in table if cells.get("metric") in METRICS]
    if len(known) < len(table):
        print(f"Left out: {len(table) - len(known)} rows whose metric is none of {', '.join(METRICS)}")
    try:
        rows = list(dict.fromkeys(_row(cells) for cells in known))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LabError(f"{file}: a row does not fit ({error}); its columns are those of {form}") from None
    if known and "role" not in known[0]:
        chosen = {id(row) for row in describing(rows, per_node)}
        rows = [replace(row, fitted=id(row) in chosen) for row in rows]
    if not any(row.fitted for row in rows):
        raise LabError(f"{file}: no row describes the machine; {form} shows which do, by role calibration")
    return rows
