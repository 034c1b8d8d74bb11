"""Predicts figures/reference/held_out.csv anew with the programs, writes its column `predicted`, and prints all errors.

    .venv/bin/python -m tools.report.held_out

Each source's machine is calibrated by its own calibration rows alone, as `make calibrate FROM=measurements.csv` does it
for a reader's (tools/report/calibrate_machine.py); A's are those of figures/reference/calibration.json.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tabulate import tabulate

from figures.lib import held_out
from figures.lib.held_out import Row
from figures.lib.reference_data import FOLDER
from tools.grading.exit_codes import ending_of
from tools.report import calibrate_machine
from tools.report.calibrate_machine import Machine

FILE = FOLDER / f"{held_out.NAME}.csv"
MACHINES = {
    "A": Machine(),
    "B": Machine(("--gpu", "H20", "--precision", "fp32", "--link", "nvlink4")),
    "C": Machine(("--gpu", "T4", "--link", "pcie3")),
    "suite": Machine(),
    "D": Machine(("--gpu", "H100", "--precision", "fp32", "--link", "nvswitch4")),
    "D, TF32": Machine(("--gpu", "H100", "--precision", "tf32", "--link", "nvswitch4")),
    "D, BF16": Machine(("--gpu", "H100", "--precision", "bf16", "--link", "nvswitch4")),
    "E": Machine(("--gpu", "RTX_PRO_6000", "--precision", "fp32", "--link", "pcie5")),
    "F": Machine(("--gpu", "V100", "--link", "nvlink2", "--gpus-per-node", "8", "--link-between", "infiniband100")),
    "G": Machine(("--gpu", "A100", "--precision", "fp32", "--link", "pcie4")),
}


def predicted(sources: Iterable[str] = held_out.SOURCES) -> list[Row]:
    made = []
    published = held_out.rows()
    for source in sources:
        rows = [row for row in published if row.source == source]
        machine = MACHINES[source]
        constants = calibrate_machine.fitted_to_machine("bucketed_ddp")
        if machine.flags:
            constants = calibrate_machine.calibrate(machine, [row for row in rows if row.fitted], constants)
        made += calibrate_machine.predict(machine, rows, constants)
    return made


def rewrite(file: Path, names: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """The table anew, below the comments that it has."""
    comments = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    with file.open("w", encoding="utf-8", newline="") as stream:
        stream.write("\n".join(comments) + "\n")
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([names, *rows])


def write(rows: list[Row]) -> None:
    names = ["source", "gpus", "model", "batch", "seq", "method", "bucket_mb", "metric"]
    cells = [
        [*(getattr(row, name) for name in names), "calibration" if row.fitted else "held",
         f"{row.published:.6g}", f"{row.predicted:.6g}"]
        for row in rows
    ]  # fmt: skip
    rewrite(FILE, [*names, "role", "published", "predicted"], cells)


def predict_all() -> int:
    rows = [replace(row, predicted=float(f"{row.predicted:.6g}")) for row in predicted()]
    write(rows)
    print(tabulate(held_out.table(rows), held_out.COLUMNS, tablefmt="simple", disable_numparse=True))
    print(f"\nwrote {FILE.relative_to(FOLDER.parents[1])}")
    return 0


if __name__ == "__main__":
    sys.exit(ending_of("held_out", predict_all))
