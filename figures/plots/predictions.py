"""Sets how far predictions at published scale are from the published numbers, beside a baseline.

Reads results of compare_ddp, bucketed_ddp and ddp_suite, made by their subcommands published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from figures.lib import script
from figures.lib.predictions import EXPERIMENTS, TIMES_ONLY, best_sizes, errors, percent, unit_of
from figures.lib.result_files import ResultError, load, name_of, simulated
from figures.lib.tables import Table

NAME = "predictions"
COLUMNS = ["experiment", "quantity", "predicted cells", "mean error", "largest", "baseline mean", "baseline largest"]


def make(files: list[Path]) -> Iterator[tuple[str, Table]]:
    results, rows = {}, []
    for file in files:
        program = file.name.partition(".")[0]
        results[program] = load(file, program)
        if not simulated(results[program]):
            raise ResultError(f"{file}: was measured, not simulated; run step {program} published")
    note = (
        "Errors over the published cells to which nothing was fitted; figures/reference/calibration.json has the "
        "fitted ones. The baseline is the mean of the fitted cells; for ddp_suite each model's round without DDP, "
        f"and the share that DDP adds to ResNet-50's. {TIMES_ONLY}"
    )
    for program, result in results.items():
        cells = EXPERIMENTS[program](result)
        for quantity, found in errors(cells).iterrows():
            values = (found[name] for name in ("mean", "largest", "baseline_mean", "baseline_largest"))
            texts = (f"{percent(value)} {unit_of(quantity)}" for value in values)
            rows.append([program, quantity, f"{found['cells']:.0f}", *texts])
        if program == "bucketed_ddp":
            same, panels = best_sizes(cells)
            note += f" bucketed_ddp: the best bucket size is the published one in {same} of {panels} panels."
    title = "Predictions at published scale, and how far they are from the published numbers"
    table = Table(title, COLUMNS, rows, list(results.values()), note)
    yield name_of(NAME, table.results[0]), table


main = script.main(__name__, __doc__, make)
