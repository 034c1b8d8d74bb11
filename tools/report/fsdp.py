"""Predicts figures/reference/fsdp.csv anew with the program sharded_scaling, and writes its column `predicted`.

    .venv/bin/python -m tools.report.fsdp

One constant, the part of the GPU's peak that computing reaches, is fitted to the row marked as calibration.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from tools.grading.exit_codes import ending_of
from tools.report.calibrate_machine import run
from tools.report.held_out import rewrite
from tools.setup import toolchain

FILE = toolchain.ROOT / "figures" / "reference" / "fsdp.csv"
PROGRAM = toolchain.BUILD_DIR / "bin" / "sharded_scaling"
HIDDEN, LAYERS, VOCABULARY = 12288, 96, 50_000
SHAPE = (HIDDEN, 8 * HIDDEN // 3, LAYERS, 96)  # three matrices of 8/3 h have what GPT's two of 4 h have
UNITS, LATE = "fully sharded", "no prefetch"


@dataclass(frozen=True)
class Row:
    source: str
    gpus: int
    batch: int
    seq: int
    link_gb_per_s: float
    metric: str
    role: str
    published: float
    predicted: float

    @property
    def error(self) -> float:
        """In percent; of a speedup in points."""
        if self.metric == "speedup":
            return self.predicted - self.published
        return 100 * (self.predicted / self.published - 1)


def rows() -> list[Row]:
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [
        Row(
            **{name: cells[name] for name in ("source", "metric", "role")},
            **{name: int(cells[name]) for name in ("gpus", "batch", "seq")},
            **{name: float(cells[name]) for name in ("link_gb_per_s", "published", "predicted")},
        )
        for cells in csv.DictReader(lines)
    ]


def operations(row: Row) -> float:
    """Of a step on one GPU, as the sources count."""
    share = 1 + row.seq / (6 * HIDDEN) + VOCABULARY / (16 * LAYERS * HIDDEN)
    return 96 * row.batch * row.seq * LAYERS * HIDDEN**2 * share


def seconds(row: Row, efficiency: float) -> dict[tuple[str, str], float]:
    """Of a step and of its forward, by variant."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        flags = [
            "--impl=solutions", "--half", "--checkpoints", "--precision=bf16", "--shape", *SHAPE,
            "--gpus", row.gpus, "--batch-size", row.batch, "--sequence-length", row.seq,
            "--between-gb-per-s", row.link_gb_per_s, "--efficiency", efficiency, "--variants", UNITS, LATE,
        ]  # fmt: skip
        run(PROGRAM.name, list(map(str, flags)), result)
        series = json.loads(result.read_text(encoding="utf-8"))["series"]
    return {(one["labels"]["quantity"], one["labels"]["variant"]): one["values"][0]
            for one in series if one["labels"]["quantity"] in ("step", "forward")}  # fmt: skip


def predict(row: Row, efficiency: float) -> float:
    took = seconds(row, efficiency)
    if row.metric == "TFLOPS":
        return 1e-12 * operations(row) / took["step", UNITS]
    late = took["forward", UNITS] + took["step", LATE] - took["forward", LATE]  # forward prefetches in both
    return 100 * (late / took["step", UNITS] - 1)


def fitted(row: Row) -> float:
    """The efficiency with which the row is predicted as published, to four digits."""
    low, high = 0.2, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if predict(row, middle) < row.published else (low, middle)
    return round(low, 4)


def predicted() -> tuple[float, list[Row]]:
    """The efficiency, and all rows."""
    published = rows()
    efficiency = fitted(next(row for row in published if row.role == "calibration"))
    return efficiency, [replace(row, predicted=float(f"{predict(row, efficiency):.4g}")) for row in published]


def predict_all() -> int:
    efficiency, made = predicted()
    cells = ((f"{value:g}" if isinstance(value, float) else value for value in vars(row).values()) for row in made)
    rewrite(FILE, Row.__dataclass_fields__, cells)
    print(f"{efficiency:.1%} of the peak")
    for row in made:
        print(f"{row.source} {row.gpus} GPUs, batch {row.batch}: {row.metric} {row.published:g}, "
              f"predicted {row.predicted:g} ({row.error:+.1f}, {row.role})")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(ending_of("fsdp", predict_all))
