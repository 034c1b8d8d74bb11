"""The measurements of the benchmark train_cifar100, for its figure and tables: trainings by implementation and seed."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from figures.lib.reference_data import load_reference
from figures.lib.result_files import Result, load

PROGRAM = "train_cifar100"
PARAMETERS = ("data", "train_size", "test_size", "epochs", "batch_size", "grad_accum_steps", "learning_rate",
              "momentum", "ddp", "rate_gbit", "latency_us")  # fmt: skip
IMPLEMENTATIONS = ("selfmade", "pytorch")
PUBLISHED_RUN = {"data": "CIFAR-100", "train_size": 50_000, "epochs": 16, "batch_size": 256, "grad_accum_steps": 4,
                 "learning_rate": 0.01, "momentum": 0.5}  # fmt: skip
PUBLISHED_RANKS = 2
STAGES = {"naive": "01", "flat": "01", "overlapped": "02", "bucketed": "03"}


class Trainings:
    """One result file. Quantities per epoch: "running loss" and "batch accuracy", which the published program prints
    (of rank 0: losses added up and divided by the number of micro-batches; and the last one's accuracy), "validation
    loss" and "validation accuracy"; per epoch and rank: "train time"; per rank: "peak memory"."""

    def __init__(self, result: Result) -> None:
        self.result = result
        labels = [series["labels"] for series in result.series]
        if not all({"distributed_impl", "seed", "quantity"} <= label.keys() for label in labels):
            raise self.result.error("has a series without distributed_impl, seed or quantity")
        found = {label["distributed_impl"] for label in labels}
        if not found <= set(IMPLEMENTATIONS):
            raise self.result.error(f"has unknown implementations: {', '.join(sorted(found - set(IMPLEMENTATIONS)))}")
        self.implementations = [name for name in IMPLEMENTATIONS if name in found]
        self.seeds = sorted({label["seed"] for label in labels})
        self.epochs: int = result.parameters["epochs"]
        self.ranks: int = result.provenance["world_size"]

    @property
    def data(self) -> str:
        """ "synthetic" or "CIFAR-100"."""
        return self.result.parameters["data"]

    @property
    def as_published(self) -> bool:
        """Whether the loss and accuracy of the published run can be compared with these."""
        parameters = self.result.parameters
        return self.ranks == PUBLISHED_RANKS and PUBLISHED_RUN.items() <= parameters.items()

    def name(self, implementation: str) -> str:
        if implementation == "pytorch":
            return "pytorch: c10d::Reducer, port of nn.SyncBatchNorm"
        ddp = self.result.parameters["ddp"]
        return f"selfmade: {ddp} DDP (stage {STAGES.get(ddp, '?')}), SyncBatchNorm (stage 04)"

    def curves(self, implementation: str, quantity: str) -> np.ndarray:
        """[seeds, epochs]"""
        rows = []
        for seed in self.seeds:
            labels = {"distributed_impl": implementation, "seed": seed, "quantity": quantity}
            values = self.result.values("1", **labels)
            if len(values) != self.epochs:
                raise self.result.error(f"has {len(values)} epochs of {implementation}, seed {seed}, not {self.epochs}")
            rows.append(values)
        return np.array(rows)

    def last(self, implementation: str, quantity: str) -> list[float]:
        """The quantity in the last epoch, for each seed."""
        return [float(value) for value in self.curves(implementation, quantity)[:, -1]]

    def seconds(self, implementation: str, rank: int) -> list[float]:
        """The training time of all epochs, for each seed."""
        return [sum(values) for values in self._of_rank("s", implementation, rank, "train time")]

    def bytes(self, implementation: str, rank: int) -> list[float]:
        """The peak memory, for each seed."""
        return [max(values) for values in self._of_rank("bytes", implementation, rank, "peak memory")]

    def _of_rank(self, unit: str, implementation: str, rank: int, quantity: str) -> list[list[float]]:
        labels = {"distributed_impl": implementation, "quantity": quantity, "rank": rank}
        return [self.result.values(unit, **labels, seed=seed) for seed in self.seeds]


def load_trainings(file: Path) -> Trainings:
    return Trainings(load(file, PROGRAM, PARAMETERS))


@dataclass(frozen=True)
class Printed:
    """One implementation's numbers in the published tables, or in ours, as printed."""

    rows: list[tuple[str, str, str]]  # rank, seconds, bytes
    loss: str
    accuracy: str


def load_published() -> dict[str, Printed]:
    """By implementation."""
    published = {}
    for implementation in IMPLEMENTATIONS:
        rows = [row for row in load_reference(PROGRAM).rows if row["distributed_impl"] == implementation]
        cells = [(row["Rank"], row["Time"], row["Max Memory Allocated"]) for row in rows]
        published[implementation] = Printed(cells, rows[0]["loss"], rows[0]["acc"])
    return published


@dataclass(frozen=True)
class Comparison:
    """Whether the means of two samples differ by more than their spread allows: Welch's t-test (Welch, "The
    generalization of 'Student's' problem when several different population variances are involved", 1947)."""

    difference: float  # of the means
    t: float  # in standard errors
    p: float  # the probability that equal means differ at least so much; NaN for fewer than two values each

    def within_spread(self) -> bool:
        return not self.p < 0.05


def compare(first: list[float], second: list[float]) -> Comparison:
    difference = statistics.mean(first) - statistics.mean(second)
    if min(len(first), len(second)) < 2:
        return Comparison(difference, math.nan, math.nan)
    parts = [statistics.variance(values) / len(values) for values in (first, second)]
    error = math.sqrt(sum(parts))
    if error == 0:
        return Comparison(difference, math.inf if difference else 0.0, 0.0 if difference else 1.0)
    freedom = sum(parts) ** 2 / sum(part**2 / (len(values) - 1) for part, values in zip(parts, (first, second)))
    t = difference / error
    return Comparison(difference, t, two_sided_p(t, freedom))


def two_sided_p(t: float, freedom: float) -> float:
    """The probability that Student's t is at least so far from 0: the integral of its density, which the substitution
    x = sqrt(freedom) tan(a) turns into one of cos(a)^(freedom - 1) over a finite range."""

    def integral(low: float) -> float:
        angles = np.linspace(low, math.pi / 2, 20_001)
        return float(np.trapezoid(np.cos(angles) ** (freedom - 1), angles))

    return integral(math.atan(abs(t) / math.sqrt(freedom))) / integral(0.0)
