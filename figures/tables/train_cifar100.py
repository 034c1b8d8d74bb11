"""Sets the tables of training on CIFAR-100: both implementations as published, and whether they agree over the seeds.

The published form has time, memory, loss and accuracy; below it, the published numbers stand beside these.
Reads result files of the benchmark train_cifar100.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from figures.lib import script
from figures.lib.reference_data import load_reference
from figures.lib.result_files import load
from figures.lib.tables import Table
from figures.lib.train_cifar100_runs import PROGRAM, as_published, costs, curves, implementations_of, name_of

HEADERS = ["Rank", "Time", "Max Memory Allocated"]
TITLES = {"selfmade": "Selfmade distributed training", "pytorch": "pytorch Distributed Data Parallel"}
QUANTITIES = {"loss": "running loss", "accuracy": "batch accuracy", "validation": "validation accuracy"}
BESIDE = ["implementation", "quantity", "here", "published", "here / published"]
COMMANDS = "The published text shows the command of each implementation under the other one's name."


def published() -> pd.DataFrame:
    """As printed."""
    return load_reference(PROGRAM, as_printed=True)


def own(result: pd.DataFrame) -> pd.DataFrame:
    """The same columns, means over the seeds: a row for each implementation and rank."""
    rows = []
    for name in implementations_of(result):
        seconds, allocated = costs(result, name)
        loss, accuracy = (last(result, name, quantity).mean() for quantity in ("loss", "accuracy"))
        rows += [
            [name, str(rank), f"{seconds[rank].mean():.3f}", f"{allocated[rank].mean():.0f}", f"{loss:.4f}",
             f"{accuracy:.7f}"]
            for rank in seconds
        ]  # fmt: skip
    return pd.DataFrame(rows, columns=["distributed_impl", *HEADERS, "loss", "acc"])


def last(result: pd.DataFrame, implementation: str, quantity: str) -> pd.Series:
    """The quantity in the last epoch, for each seed."""
    return curves(result, implementation, QUANTITIES[quantity]).iloc[:, -1]


def text_of(printed: pd.DataFrame, data: str = "") -> str:
    """The tables in the published form, by implementation."""
    texts = []
    for implementation, block in printed.groupby("distributed_impl", sort=False):
        cells = zip(block["Rank"], block["Time"] + " seconds", block["Max Memory Allocated"] + " bytes")
        ends = block.iloc[0]
        table = in_columns(list(cells), HEADERS)
        texts.append(f"{TITLES[implementation]}{data}\n{table}\nloss: {ends['loss']}, acc: {ends['acc']}")
    return "# Training loop benchmark\n" + "\n\n\n".join(texts)


def in_columns(rows: list[Any], columns: list[str]) -> str:
    return tabulate(rows, columns, tablefmt="github", disable_numparse=True, colalign=("left",) * len(columns))


def setup(result: pd.DataFrame) -> str:
    provenance, values = result.attrs["provenance"], result.attrs["parameters"]
    device = "GPU: " + provenance["gpu"] if provenance["device"] == "cuda" else f"CPU: {provenance['cores']} cores"
    lines = [
        f"torch version: {provenance['torch']}",
        device,
        f"number of processes: {provenance['world_size']}",
        f"data: {values['data']}, {values['train_size']:,} images to train with and {values['test_size']:,} to "
        "validate",
        f"{values['epochs']} epochs; batch {values['batch_size']} per rank, {values['grad_accum_steps']} of them a "
        f"step; SGD, learning rate {values['learning_rate']:g}, momentum {values['momentum']:g}",
        *(name_of(implementation, result) for implementation in implementations_of(result)),
    ]
    return "# Experimental setup\n\n" + "\n".join(f"* {line}" for line in lines)


def beside_published(here: pd.DataFrame) -> list[list[str]]:
    """A row for each number, in the columns BESIDE. More ranks than published have nothing beside them."""
    both = here.merge(published(), on=["distributed_impl", "Rank"], how="left", suffixes=("", " published")).fillna("")
    names = {"Time": "time [s]", "Max Memory Allocated": "memory [bytes]", "loss": "loss", "acc": "accuracy"}
    rows = []

    def add(row: dict[str, str], column: str, rank: str = "") -> None:
        value, there = row[column], row[f"{column} published"]
        ratio = f"{float(value) / float(there):.3g}" if there else ""
        rows.append([row["distributed_impl"], rank + names[column], value, there, ratio])

    for _, block in both.groupby("distributed_impl", sort=False):
        of_ranks = block.to_dict(orient="records")
        for row in of_ranks:
            for column in HEADERS[1:]:
                add(row, column, f"rank {row['Rank']}: ")
        for column in ("loss", "acc"):
            add(of_ranks[0], column)
    return rows


def loop_table(result: pd.DataFrame) -> Table:
    """The table in the published form, and the numbers beside the published ones."""
    here, data, count = own(result), result.attrs["parameters"]["data"], result["seed"].nunique()
    rows = beside_published(here)
    other = "" if as_published(result) else " This is another training than the published one: see its parameters."
    note = (
        f"Data: {data}. Means over {count} seed{'s' if count > 1 else ''}. Time: all epochs' training; the "
        "published one includes reading the data set and one validation. Memory: the most that tensors take at once. "
        "Loss and acc: as published, rank 0's running training loss and the accuracy of the batch it was last reported "
        f"in. Published: 2 RTX A4000, one run.{other} {COMMANDS}"
    )
    beside = f"Beside the published numbers\n{in_columns(rows, BESIDE)}"
    text = "\n\n".join([setup(result), text_of(here, f" ({data})"), beside, note])
    return Table(f"Training loop benchmark ({data})", BESIDE, rows, text, [result], note)


@dataclass(frozen=True)
class Comparison:
    """Whether the means of two samples differ by more than their spread allows: Welch's t-test (Welch, "The
    generalization of 'Student's' problem when several different population variances are involved", 1947)."""

    difference: float  # of the means
    t: float  # in standard errors
    p: float  # the probability that equal means differ at least so much; NaN for fewer than two values each

    def within_spread(self) -> bool:
        return not self.p < 0.05


def compare(first: Sequence[float], second: Sequence[float]) -> Comparison:
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


def spread(values: pd.Series, digits: int = 4) -> str:
    deviation = f" ± {values.std():.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{deviation}"


def convergence(result: pd.DataFrame) -> list[str]:
    """What the seeds say about the claim that both implementations agree."""
    lines = []
    for what in QUANTITIES:
        found = compare(*(list(last(result, name, what)) for name in ("selfmade", "pytorch")))
        said = f"{what}: selfmade - pytorch = {found.difference:+.4f}"
        if result["seed"].nunique() < 2:
            lines.append(f"{said}; one seed has no spread to compare that with.")
            continue
        within = found.within_spread()
        verdict = "within what the spread over seeds allows" if within else "more than the seeds' spread allows"
        lines.append(f"{said}, {verdict} (Welch's t = {found.t:.2f}, p = {found.p:.2f}).")
    return lines


def against(means: pd.DataFrame, source: str) -> str:
    """`means`: time and memory of each implementation."""
    time, memory = 100 * (means.loc["pytorch"] / means.loc["selfmade"] - 1)
    return f"pytorch against selfmade, {source}: time {time:+.1f} %, memory {memory:+.1f} %."


def seeds_table(result: pd.DataFrame) -> Table:
    """A row for each implementation, and whether they differ."""
    rows, means, values = [], {}, result.attrs["parameters"]
    for name in implementations_of(result):
        seconds, allocated = (of_ranks.mean(axis="columns") for of_ranks in costs(result, name))
        means[name] = [seconds.mean(), allocated.mean()]
        ends = [spread(last(result, name, what)) for what in QUANTITIES]
        rows.append([name, str(len(seconds)), *ends, spread(seconds, 2), spread(allocated / 2**20, 2)])
    lines = []
    if len(rows) > 1:
        there = published().astype({"Time": float, "Max Memory Allocated": float})
        there = there.groupby("distributed_impl")[HEADERS[1:]].mean()
        here = pd.DataFrame.from_dict(means, orient="index")
        lines = [*convergence(result), against(here, "here"), against(there, "published")]
    columns = ["implementation", "seeds", *QUANTITIES, "time [s]", "memory [MiB]"]
    note = (
        f"Data: {values['data']}. Mean ± standard deviation over the seeds, after {values['epochs']} epochs. Loss and "
        "accuracy: rank 0's running training loss and last batch, as published; validation: accuracy over all its "
        "images."
    )
    heading = f"Convergence over seeds ({values['data']})"
    text = "\n".join([heading, in_columns(rows, columns), "", *lines, note])
    title = f"Do both implementations converge to the same? ({values['data']})"
    return Table(title, columns, rows, text, [result], " ".join([*lines, note]))


def tables(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for result in (load(file, PROGRAM) for file in files):
        yield script.name_of(PROGRAM, result), loop_table(result)
        yield script.name_of(f"{PROGRAM}.seeds", result), seeds_table(result)


main = script.main(__name__, __doc__, tables)
