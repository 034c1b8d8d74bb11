"""Sets how far predictions at published scale are from the published numbers, beside the dull guess.

Reads results of compare_ddp, bucketed_ddp and ddp_suite, made with --preset published.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from figures.lib import script
from figures.lib.predictions import EXPERIMENTS, best_sizes, errors, percent, unit_of
from figures.lib.published_scale import TIMES_ONLY, require_simulated
from figures.lib.result_files import Result, ResultError, load
from figures.lib.side_by_side import simple_table
from figures.lib.tables import Table

NAME = "predictions"
COLUMNS = ["experiment", "quantity", "predicted cells", "mean error", "largest", "dull mean", "dull largest"]


def rows_of(program: str, file: Path) -> list[list[str]]:
    rows = []
    for quantity, found in errors(EXPERIMENTS[program](file)).items():
        values = (found.mean, found.largest, found.dull_mean, found.dull_largest)
        cells = (f"{percent(value)} {unit_of(quantity)}" for value in values)
        rows.append([program, quantity, str(found.cells), *cells])
    return rows


def note_of(files: dict[str, Path]) -> str:
    note = (
        "Errors over the published cells to which nothing was fitted; figures/reference/calibration.json has the "
        "fitted ones. The dull guess is the mean of the fitted cells; for ddp_suite each model's round without DDP, "
        f"and the share that DDP adds to ResNet-50's. {TIMES_ONLY}"
    )
    if "bucketed_ddp" in files:
        same, panels = best_sizes(EXPERIMENTS["bucketed_ddp"](files["bucketed_ddp"]))
        note += f" bucketed_ddp: the best bucket size is the published one in {same} of {panels} panels."
    return note


def program_of(file: Path) -> str:
    for program in EXPERIMENTS:
        if file.name.startswith(f"{program}."):
            return program
    raise ResultError(f"{file}: is named after none of {', '.join(EXPERIMENTS)}; give their result files")


def make(files: list[Path]) -> Iterator[tuple[str, Table]]:
    by_program = {program_of(file): file for file in files}
    results: list[Result] = [load(file, program) for program, file in by_program.items()]
    for result in results:
        require_simulated(result)
    rows = [row for program, file in by_program.items() for row in rows_of(program, file)]
    title = "Predictions at published scale, and how far they are from the published numbers"
    yield script.name_of(NAME, results[0]), simple_table(title, COLUMNS, rows, results, note_of(by_program))


main = script.main(__name__, __doc__, make)
