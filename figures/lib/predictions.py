"""Published cells beside what the simulated cluster says of them, and how far apart they are.

A few cells of each experiment were used to fit its constants; all others are predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from figures.lib import ddp_comparison, suite_data, training_times
from figures.lib.result_files import load
from figures.lib.training_times import BUCKETED, Way

FITTED_SIZES = (3, 12, 25)  # of compare_ddp, in M elements
FITTED_WAYS = tuple(
    Way(batch, length, BUCKETED, size)
    for batch, length, size in (
        (2, 128, 1), (2, 128, 1000), (2, 512, 100), (4, 256, 100), (4, 512, 1), (4, 512, 1000),
    )
)  # fmt: skip
FITTED_MODEL = "resnet50"  # of ddp_suite: all its rounds, with buckets of 25 MB and of 1 MB
# PyTorch's own implementation, which was measured for the suite.
SUITE_VARIANT, SUITE_BUCKET, AB_PERCENT, LARGEST_AB = "Reducer", 25, 75, 8

TOTAL, ALL_REDUCE = "total time", "all-reduce time"
ITERATION, OVERHEAD, AB = "sec/iter", "overhead over no DDP", "1 MB against 25 MB"


@dataclass(frozen=True)
class Cell:
    """One published number. `dull` is what somebody would say who knows the fitted cells alone: their mean."""

    quantity: str
    place: str
    published: float
    predicted: float
    dull: float
    fitted: bool
    points: bool = False  # numbers are percentages, so that errors are differences, in points

    def error_of(self, guess: float) -> float:
        """In percent of the published number, or in points."""
        return guess - self.published if self.points else 100 * (guess / self.published - 1)

    @property
    def error(self) -> float:
        return self.error_of(self.predicted)


@dataclass(frozen=True)
class Errors:
    """Sizes of errors over predicted cells, in percent or points."""

    cells: int
    mean: float
    largest: float
    correlation: float  # of predicted with published numbers
    dull_mean: float
    dull_largest: float


def compare_ddp(file: Path) -> list[Cell]:
    predicted = ddp_comparison.measured(load(file, ddp_comparison.PROGRAM))
    published = ddp_comparison.published()
    cells = []
    for direction in ddp_comparison.DIRECTIONS:
        for variant in ddp_comparison.OPTIONS:
            known = {
                size: cell[direction][variant].p50 for size, cell in published.items() if variant in cell[direction]
            }
            dull = fmean(known[size] for size in FITTED_SIZES) if known else 0.0
            cells += [
                Cell(f"{direction} of {variant}", f"{size}M", known[size], cell[direction][variant].p50, dull,
                     size in FITTED_SIZES)
                for size, cell in predicted.items() if size in known
            ]  # fmt: skip
    return cells


def bucketed_ddp(file: Path) -> list[Cell]:
    _, predicted = training_times.load_trainings(file)
    published = training_times.published_times()
    cells = []
    for quantity, part in ((TOTAL, "train"), (ALL_REDUCE, "all_reduce")):
        dull = fmean(getattr(published[way], part) for way in FITTED_WAYS)
        for way, times in published.items():
            if predicted.has(way):
                value = getattr(predicted.times(way), part)
                cells.append(Cell(quantity, way.name(), getattr(times, part), value, dull, way in FITTED_WAYS))
    return cells


def _suite_model(suite: suite_data.Suite, model: str, share: float) -> Iterator[Cell]:
    choice = suite_data.Choice(SUITE_VARIANT, SUITE_BUCKET)
    fitted = model == FITTED_MODEL
    published = suite_data.published_medians(model)
    alone = published[0]
    for one in suite.rounds(model, choice)[1:]:
        if one.ranks in published:
            there, here = published[one.ranks], one.percentile(50)
            place = f"{model}, {one.ranks} GPUs"
            yield Cell(ITERATION, place, there, here, alone * (1 + share), fitted)
            yield Cell(OVERHEAD, place, there - alone, here - alone, alone * share, fitted)


def ddp_suite(file: Path) -> list[Cell]:
    suite = suite_data.Suite(file)
    base = suite_data.published_medians(FITTED_MODEL)
    # What DDP adds to the fitted model, as a share.
    share = fmean(seconds / base[0] - 1 for gpus, seconds in base.items() if gpus)
    cells = [cell for model in suite.models for cell in _suite_model(suite, model, share)]
    dull = fmean(
        diff for gpus, diff in suite_data.published_diffs(FITTED_MODEL, AB_PERCENT).items() if gpus <= LARGEST_AB
    )
    for model in suite.models if len(suite.bucket_sizes) == 2 else ():
        here = suite_data.own_diffs(suite, model, SUITE_VARIANT, AB_PERCENT)
        for gpus, there in suite_data.published_diffs(model, AB_PERCENT).items():
            # Beyond one machine the published differences follow no pattern: -3.8, -0.1, -1.9, -0.7.
            if gpus in here and gpus <= LARGEST_AB:
                place = f"{model}, {gpus} GPUs"
                cells.append(Cell(AB, place, there, here[gpus], dull, model == FITTED_MODEL, points=True))
    return cells


EXPERIMENTS: dict[str, Callable[[Path], list[Cell]]] = {
    "compare_ddp": compare_ddp,
    "bucketed_ddp": bucketed_ddp,
    "ddp_suite": ddp_suite,
}


def errors(cells: list[Cell]) -> dict[str, Errors]:
    """By quantity; those without predicted cells are left out."""
    found = {}
    for quantity in dict.fromkeys(cell.quantity for cell in cells):
        held = [cell for cell in cells if cell.quantity == quantity and not cell.fitted]
        if held:
            own = [abs(cell.error) for cell in held]
            dull = [abs(cell.error_of(cell.dull)) for cell in held]
            found[quantity] = Errors(len(held), fmean(own), max(own), _correlation(held), fmean(dull), max(dull))
    return found


def _correlation(cells: list[Cell]) -> float:
    pairs = np.array([(cell.predicted, cell.published) for cell in cells]).T
    return 0.0 if len(cells) < 2 or np.ptp(pairs, axis=1).min() < 1e-9 else float(np.corrcoef(pairs)[0, 1])


def best_sizes(cells: list[Cell]) -> tuple[int, int]:
    """In how many panels of bucketed_ddp, a batch and a sequence each, the predicted best size is the published one;
    and how many panels there are."""
    panels: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.quantity == TOTAL:
            panels.setdefault(cell.place.split(", ", 1)[1], []).append(cell)
    same = [
        min(panel, key=lambda cell: cell.predicted) is min(panel, key=lambda cell: cell.published)
        for panel in panels.values()
    ]
    return sum(same), len(same)


def percent(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.2g}"


def in_words(quantity: str, found: Errors) -> str:
    own = f"mean error {percent(found.mean)}, largest {percent(found.largest)} {unit_of(quantity)}"
    dull = f"{percent(found.dull_mean)} and {percent(found.dull_largest)}"
    return f"{quantity}: {own} over {found.cells} predicted cells (dull guess {dull})"


def unit_of(quantity: str) -> str:
    return "points" if quantity == AB else "%"


def document(program: str, cells: list[Cell]) -> dict[str, Any]:
    """What figures/reference/calibration.json says of the cells, rounded to what is worth reading."""
    fitted = [cell for cell in cells if cell.fitted]
    found = {
        quantity: {name: round(value, 3) for name, value in vars(one).items()}
        for quantity, one in errors(cells).items()
    }  # fmt: skip
    made: dict[str, Any] = {
        "fitted": {f"{cell.quantity}, {cell.place}": round(cell.error, 3) for cell in fitted},
        "predicted": found,
    }
    if program == training_times.PROGRAM:
        made["best_sizes_as_published"] = "{} of {}".format(*best_sizes(cells))
    return made
