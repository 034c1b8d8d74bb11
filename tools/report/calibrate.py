"""Fits the constants of the published experiments' hardware, and writes figures/reference/calibration.json.

Needs scipy, as `make check` does: .venv/bin/python -m tools.report.calibrate [EXPERIMENT ...]

Few cells of each experiment are used (figures/lib/predictions.py names them). A candidate is judged by the C++ program
itself, `build/bin/step <experiment> published --impl solutions --calibration <candidate>`, which runs the stage's code;
scipy's least_squares makes the squares of the fitted cells' errors small, on the constants' logarithms. The file has
constants, what they mean, the errors of fitted cells, and how large those of all others are.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from figures.lib import predictions, suite_data
from figures.lib.result_files import load
from tools.grading.terminal import ending_of
from tools.report import held_out
from tools.setup.toolchain import ROOT, LabError

FILE = held_out.CALIBRATION
SCHEMA_VERSION = 1
DIGITS = 4  # of a constant that mean something
STEP, TOO_LITTLE = 1e-3, 1e-5  # of the constants' logarithms, and of the squares


@dataclass(frozen=True)
class Constant:
    """Positive, and fitted by its logarithm; or, if it is at least `least`, by that of what it has more."""

    meaning: str
    start: float
    least: float = 0.0

    def to_coordinate(self) -> float:
        return float(np.log(self.start - self.least))

    def from_coordinate(self, coordinate: float) -> float:
        return float(f"{self.least + np.exp(coordinate):.{DIGITS}g}")


@dataclass(frozen=True)
class Experiment:
    """`flags` restrict a run to the fitted cells; `weights` are those of quantities other than 1."""

    hardware: str
    constants: dict[str, Constant]
    flags: tuple[str, ...]
    weights: dict[str, float] = field(default_factory=dict)
    given: Callable[[], dict[str, float]] = dict  # constants that are published, not fitted
    unexplained: str = ""


def published_computing() -> dict[str, float]:
    """Each model's round without DDP: what is predicted is what DDP adds; and 16 of a V100's 80 multiprocessors."""
    rounds = suite_data.published_rounds()
    return {"slowdown": 80 / (80 - 16)} | {
        f"compute_s.{round_.model}": float(round_.seconds)
        for round_ in rounds[rounds["round"] == suite_data.NO_DDP_ROUND].rename(columns={50: "seconds"}).itertuples()
    }  # fmt: skip


def measured_by_the_author() -> dict[str, float]:
    """What the same author's table of all-reduces and table of one GPU say of the machine. update_elements is AdamW's,
    an operator after the other: 2 elements of zeros for each parameter, 7 of the first moment, 9 of the second, 12 of
    the step and 5 of the decay (cs336_basics/optimizer.py of the assignment)."""
    return held_out.machines()["A"].constants


LINK = "an all-reduce's ring moves so many bytes a second on each link"

EXPERIMENTS = {
    "compare_ddp": Experiment(
        hardware="Neither GPUs nor their number are published. Taken: 2, relative to V100s.",
        constants={
            "forward_efficiency": Constant("part of a V100's roofline that forward reaches", 0.13),
            "backward_efficiency": Constant("the same of backward", 0.1),
            "link_bytes_per_second": Constant(LINK, 1e9),
        },
        flags=("--buffer-sizes", ",".join(map(str, predictions.FITTED_SIZES))),
        weights={f"forward of {variant}": 0.5 for variant in ("core", "async", "sync")},
        unexplained="Core's forward is 1 % longer than the others': DistributedDataParallel broadcasts the model's "
        "buffers before each forward, and c10d::Reducer alone, which is simulated, does not.",
    ),
    "bucketed_ddp": Experiment(
        hardware="2 GPUs in one machine; their model is not published. Taken: A100s with TF32.",
        constants={
            "kernel_s_beside_all_reduce": Constant("what each kernel takes longer beside one over PCI Express", 5e-5),
            "slowdown_of_all_reduce": Constant(
                "by how much an all-reduce takes longer beside computing", 1.1, least=1.0
            ),
        },
        flags=("--bucket-mb", ",".join(map(str, sorted({size for _, _, size in predictions.FITTED_WAYS})))),
        weights={predictions.ALL_REDUCE: 0.1},
        given=measured_by_the_author,
        unexplained="Two sequences and four of half the length compute nearly the same; their published times differ "
        "by up to 2.9 %, those of the all-reduce by up to 18 %. No model of this kind can be closer than that.",
    ),
    "ddp_suite": Experiment(
        hardware="Machines with 8 V100 GPUs and 4x 100 Gb InfiniBand each.",
        constants={
            "link_bytes_per_second": Constant(LINK, 1.8e10),
            "all_reduce_overhead_s": Constant("of an all-reduce, beyond NCCL's tables", 1e-5),
            "copy_bytes_per_second": Constant("at which gradients are copied to buckets and back", 2e11),
        },
        flags=("--model", predictions.FITTED_MODEL),
        weights={predictions.OVERHEAD: 0.0},  # it follows from sec/iter
        given=published_computing,
        unexplained="ResNet-101's 9 ms on one GPU: neither its bytes nor its tensors explain more than 6 ms, if "
        "ResNet-50's 3 ms are taken as they are. From two GPUs on DDP adds, beyond what it adds on one, 3 to 4 % "
        "of computing on 2 and 4 to 7 % on 8 GPUs: that goes with computing rather than with bytes, as if ranks waited "
        "for the slowest, and the symmetric cluster has no slowest rank.",
    ),
}


class Program:
    """An experiment's program, run with candidates in a folder of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name, self._folder = name, folder

    def cells(self, constants: dict[str, float], flags: tuple[str, ...] = ()) -> pd.DataFrame:
        candidate, output = self._folder / "candidate.json", self._folder / "result.json"
        held_out.write_constants(candidate, self._name, constants)
        base = ["published", "--impl", "solutions", "--calibration", str(candidate)]
        held_out.run(f"step {self._name}", [*base, *flags], output)
        return predictions.EXPERIMENTS[self._name](load(output, self._name))


def weighted_errors(experiment: Experiment, cells: pd.DataFrame) -> np.ndarray:
    fitted = cells[cells["fitted"]]
    weights = fitted["quantity"].map(lambda quantity: experiment.weights.get(quantity, 1.0))
    return (weights * predictions.error_of(fitted)).to_numpy()


def fit(program: Program, experiment: Experiment) -> dict[str, float]:
    """All constants: the given ones, and the fitted ones."""
    given = experiment.given()

    def constants_at(point: np.ndarray) -> dict[str, float]:
        fitted = {name: one.from_coordinate(x) for (name, one), x in zip(experiment.constants.items(), point)}
        return {**fitted, **given}

    def residuals(point: np.ndarray) -> np.ndarray:
        return weighted_errors(experiment, program.cells(constants_at(point), experiment.flags))

    start = np.array([one.to_coordinate() for one in experiment.constants.values()])
    return constants_at(least_squares(residuals, start, method="lm", diff_step=STEP, ftol=TOO_LITTLE).x)


def describe(name: str, constants: dict[str, float], cells: pd.DataFrame) -> dict[str, Any]:
    experiment = EXPERIMENTS[name]
    return {
        "hardware": experiment.hardware,
        "constants": constants,
        "meanings": {key: one.meaning for key, one in experiment.constants.items()},
        "given": sorted(experiment.given()),
        **predictions.document(name, cells),
        "unexplained": experiment.unexplained,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=f"default: {', '.join(EXPERIMENTS)}")
    names = parser.parse_args().experiments or list(EXPERIMENTS)
    if unknown := [name for name in names if name not in EXPERIMENTS]:
        raise LabError(f"unknown experiment {unknown[0]!r}; there are: {', '.join(EXPERIMENTS)}")
    document = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"experiments": {}}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            program = Program(name, Path(folder))
            constants = fit(program, EXPERIMENTS[name])
            cells = program.cells(constants)
        document["experiments"][name] = describe(name, constants, cells)
        for quantity, found in predictions.errors(cells).iterrows():
            print(f"{name}: {predictions.in_words(quantity, found)}", flush=True)
    whole = {"schema_version": SCHEMA_VERSION, "experiments": document["experiments"]}
    FILE.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {FILE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(ending_of("calibrate", main))
