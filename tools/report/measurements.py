"""Reads a reader's measurements for `make calibrate`, and says which of them describe the machine."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from figures.lib import held_out
from figures.lib.held_out import AFTER, ALL_REDUCE, BOTH, FORWARD, ONE_GPU, OPTIMIZER, STEP, Row
from figures.lib.training_times import BUCKETED
from tools.setup.toolchain import LabError

NAMES = ("source", "gpus", "model", "batch", "seq", "method", "bucket_mb", "metric")
BACKWARD = "backward"  # becomes forward + backward, with the forward of the same run
METRICS = {
    "step time": STEP, "rate": STEP, "all-reduce time (after backward)": AFTER, BACKWARD: BOTH,
    **{metric: metric for metric in (STEP, AFTER, FORWARD, BOTH, OPTIMIZER, ALL_REDUCE)},
}  # fmt: skip
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
SHAPES = {
    "small": "768,3072,12,12", "medium": "1024,4096,24,16", "large": "1280,5120,36,20", "xl": "1600,6400,48,25",
    "2.7b": "2560,10240,32,32", "10b": "4608,12288,50,36",
}  # fmt: skip
HOST_BOUND = 512  # tokens of a step up to which a GPU waits for its host, and
LONG = 512  # those of a sequence from which attention's passes count
LINK, BETWEEN = "link_bytes_per_second", "link_between_bytes_per_second"
COMPUTING = ("forward_efficiency", "backward_efficiency", "efficiency")


def _tokens(row: Row) -> int:
    return int(row.batch) * int(row.seq)


def shape_of(row: Row) -> str:
    return SHAPES.get(row.model, row.model)


def _elements(row: Row) -> int:
    """About; of a model's layers."""
    width, inner, layers, _ = map(int, shape_of(row).split(","))
    return layers * width * (4 * width + 3 * inner)


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
    texts["bucket_mb"] = re.sub(r"\D.*", "", texts["bucket_mb"])  # "25 (default)"
    texts["metric"] = METRICS[texts["metric"]]
    row = held_out.row_of({**texts, "role": cells.get("role", ""), "published": str(_seconds(cells)), "predicted": "0"})
    needed = [float(row.model)] if row.metric == ALL_REDUCE else [int(row.batch), int(row.seq)]
    needed += [int(row.bucket_mb)] if row.method == BUCKETED else []
    if not all(0 < number < math.inf for number in (row.published, row.gpus, *needed)):
        raise ValueError(f"not all numbers are above 0: {', '.join(filter(None, cells.values()))}")
    if row.metric != ALL_REDUCE and not is_resnet(row) and not re.fullmatch(r"\d+(,\d+){3}", shape_of(row)):
        raise ValueError(f"{row.model} is none of {', '.join(SHAPES)}, nor d_model,d_ff,layers,heads")
    return row


def _cell(row: Row) -> tuple[object, ...]:
    return row.source, row.gpus, row.model, row.batch, row.seq, row.method


def _whole(cells: list[dict[str, str]]) -> Iterator[Row]:
    """The rows; a backward pass without its sum with forward becomes it, as it is easily told."""
    rows = [_row(one) for one in cells]
    known = {(_cell(row), row.metric): row.published for row, one in zip(rows, cells) if one["metric"] != BACKWARD}
    for row, one in zip(rows, cells):
        if one["metric"] != BACKWARD:
            yield row
        elif (_cell(row), BOTH) not in known and (_cell(row), FORWARD) in known:
            yield replace(row, published=row.published + known[_cell(row), FORWARD])


def _tied_by_link(rows: list[Row], per_node: int) -> Iterator[tuple[str, Row]]:
    reduced = sorted((row for row in rows if row.metric == ALL_REDUCE), key=lambda row: (row.gpus, float(row.model)))
    for name, within in ((LINK, True), (BETWEEN, False)):
        side = [row for row in reduced if (row.gpus <= per_node) == within]
        yield from ((name, row) for row in [row for row in side if row.gpus == side[0].gpus][-1:])
    if len(reduced) > 1:
        yield "all_reduce_overhead_s", reduced[0]
    if not reduced:
        yield from ((LINK, row) for row in rows if row.method == "naive" and row.metric == AFTER)


def _tied_by_one_gpu(alone: list[Row]) -> Iterator[tuple[str, Row]]:
    few = [row for row in alone if row.model == "small" and _tokens(row) <= HOST_BOUND]
    for name, metric in (("forward_host_s", FORWARD), ("backward_host_s", BOTH)):
        yield from ((name, row) for row in sorted(few, key=_tokens, reverse=True) if row.metric == metric)
    long = [row for row in alone if int(row.seq) > LONG and row.metric == BOTH]
    for row in sorted(long, key=lambda row: (-_elements(row), int(row.seq))):
        yield "memory_efficiency", row
    whole = [row for row in alone if row not in few]
    if whole:
        largest = _cell(max(whole, key=lambda row: (int(row.seq) <= LONG, _elements(row), _tokens(row))))
        of = {row.metric: row for row in whole if _cell(row) == largest}
        if FORWARD in of:
            yield "forward_efficiency", of[FORWARD]
        if rest := of.get(BOTH) or of.get(STEP):
            yield "backward_efficiency" if FORWARD in of else "efficiency", rest


def tied(rows: list[Row], per_node: int) -> dict[str, Row]:
    """Each constant that the rows say something about, and the row that it follows from: the last one named."""
    updates = [row for row in rows if row.metric == OPTIMIZER and not is_resnet(row)]
    alone = [row for row in rows if row.method == ONE_GPU and not is_resnet(row) and row not in updates]
    found = dict([*_tied_by_link(rows, per_node), *_tied_by_one_gpu(alone)])
    if updates:
        found["update_elements"] = max(updates, key=_elements)
    naive = sorted((row for row in rows if row.method == "naive" and row.metric == STEP), key=_tokens)
    if naive and not found.keys() & {*COMPUTING}:
        found["efficiency"] = naive[-1]
    elif naive:
        of_most = found.setdefault("update_elements", naive[-1])
        if _tokens(naive[0]) <= HOST_BOUND and naive[0] is not of_most and "forward_host_s" not in found:
            found["host_s"] = naive[0]
    return found | {f"compute_s.{row.model}": row for row in rows if is_resnet(row) and row.method == ONE_GPU}


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
        rows = list(dict.fromkeys(_whole(known)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LabError(f"{file}: a row does not fit ({error}); its columns are those of {form}") from None
    if known and "role" not in known[0]:
        chosen = tied(rows, per_node).values()
        rows = [replace(row, fitted=row in chosen) for row in rows]
    if not any(row.fitted for row in rows):
        raise LabError(f"{file}: no row describes the machine; {form} shows which do, by role calibration")
    return rows
