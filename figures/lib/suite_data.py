"""What the scripts of ddp_suite share: its results, by round, and the published numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from figures.lib.reference_data import load_reference
from figures.lib.result_files import load

PROGRAM = "ddp_suite"
PARAMETERS = ("batch_size", "image_size", "warmup", "rate_gbit", "latency_us", "bucket_size 0")
NO_DDP = "compute only"
NO_DDP_ROUND = "no ddp"
# The variants that use DDP, with the names that readers see.
VARIANTS = {"bucketed": "stage 03", "Reducer": "c10d::Reducer"}
PUBLISHED = "PyTorch 1.4, V100 GPUs, NCCL"  # how the published numbers were measured
PUBLISHED_BATCH = 32


@dataclass(frozen=True)
class Choice:
    """The subject of a table or a line: a variant with a bucket size, in MB."""

    variant: str
    bucket_size: int


@dataclass(frozen=True)
class Round:
    """The seconds per iteration of one round, from all ranks."""

    name: str  # "no ddp", "1M/2G"
    ranks: int
    seconds: list[float]

    def percentile(self, percent: float) -> float:
        return float(np.percentile(self.seconds, percent))


class Suite:
    """A result of ddp_suite."""

    def __init__(self, file: Path) -> None:
        self.result = load(file, PROGRAM, PARAMETERS)
        for series in self.result.series:
            missing = {"model", "round", "ranks", "variant"} - series["labels"].keys()
            if missing:
                raise self.result.error(f"has a series without the label {sorted(missing)[0]!r}")
        self.models = self._values_of("model")
        self.bucket_sizes = self._values_of("bucket_size")
        if not self.bucket_sizes:
            raise self.result.error("has no round with DDP")

    @property
    def batch_size(self) -> int:
        return self.result.parameters["batch_size"]

    def choices(self) -> list[Choice]:
        return [Choice(variant, size) for size in self.bucket_sizes for variant in VARIANTS]

    def rounds(self, model: str, choice: Choice) -> list[Round]:
        """The model's round without DDP, and the rounds of the choice, in the order of measurement."""
        rounds = []
        for series in self.result.series:
            labels = series["labels"]
            if labels["model"] != model:
                continue
            if labels["variant"] == NO_DDP or Choice(labels["variant"], labels.get("bucket_size")) == choice:
                seconds = self.result.values("s", **labels)
                if min(seconds) <= 0:
                    raise self.result.error(f"has a time of {model}, {labels['round']}, that is not above zero")
                rounds.append(Round(labels["round"], labels["ranks"], seconds))
        if not rounds or rounds[0].name != NO_DDP_ROUND or len(rounds) == 1:
            raise self.result.error(f"lacks {model} without DDP, or with {choice.variant}, {choice.bucket_size} MB")
        return rounds

    def _values_of(self, label: str) -> list:
        found = [series["labels"][label] for series in self.result.series if label in series["labels"]]
        return list(dict.fromkeys(found))


@dataclass(frozen=True)
class PublishedCell:
    """One percentile of a published round, as printed."""

    percent: int
    seconds: str
    examples: str  # per second and GPU


@dataclass(frozen=True)
class PublishedRound:
    name: str
    ranks: int
    cells: list[PublishedCell]  # the median first

    def examples(self, percent: int) -> int:
        return next(int(cell.examples) for cell in self.cells if cell.percent == percent)


def load_published() -> dict[str, list[PublishedRound]]:
    """The rounds of each model, "no ddp" first."""
    models: dict[str, list[PublishedRound]] = {}
    for row in load_reference("ddp_suite").rows:
        rounds = models.setdefault(row["model"], [])
        if not rounds or rounds[-1].name != row["round"]:
            rounds.append(PublishedRound(row["round"], int(row["gpus"]), []))
        rounds[-1].cells.append(PublishedCell(int(row["percentile"]), row["sec/iter"], row["ex/sec"]))
    return models


def published_medians(model: str) -> dict[int, float]:
    """Seconds of an iteration, by the number of GPUs; 0: without DDP."""
    return {
        0 if one.name == NO_DDP_ROUND else one.ranks: float(one.cells[0].seconds) for one in load_published()[model]
    }


Diffs = dict[int, float]  # percent, by the number of ranks


def own_diffs(suite: Suite, model: str, variant: str, percent: int) -> Diffs:
    """How much faster the second bucket size is than the first, as PyTorch's diff.py computes it. The round without DDP
    is the same in both."""
    before, after = (suite.rounds(model, Choice(variant, size))[1:] for size in suite.bucket_sizes)
    if [one.ranks for one in before] != [one.ranks for one in after]:
        raise suite.result.error(f"has {model} on other ranks with one bucket size than with the other")
    times = {one.ranks: (one.percentile(percent), other.percentile(percent)) for one, other in zip(before, after)}
    return {ranks: -100 * (now - then) / then for ranks, (then, now) in times.items()}


def published_diffs(model: str, percent: int) -> Diffs:
    rows = load_reference("ddp_suite_diff").rows
    wanted = (model, str(percent))
    return {int(row["gpus"]): float(row["diff"]) for row in rows if (row["model"], row["percentile"]) == wanted}
