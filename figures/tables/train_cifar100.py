"""Sets the tables of training on CIFAR-100: both implementations as published, and whether they agree over the seeds.

The published form has time, memory, loss and accuracy; below it, the published numbers stand beside these.
Reads result files of the benchmark train_cifar100.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tabulate import tabulate

from figures.lib import script
from figures.lib.tables import Table
from figures.lib.train_cifar100_runs import PROGRAM, Printed, Trainings, compare, load_published, load_trainings

HEADERS = ["Rank", "Time", "Max Memory Allocated"]
TITLES = {"selfmade": "Selfmade distributed training", "pytorch": "pytorch Distributed Data Parallel"}
QUANTITIES = {"loss": "running loss", "accuracy": "batch accuracy", "validation": "validation accuracy"}
BESIDE = ["implementation", "quantity", "here", "published", "here / published"]
COMMANDS = "The published text shows the command of each implementation under the other one's name."


def text_of(blocks: dict[str, Printed], data: str = "") -> str:
    """The tables in the published form, by implementation."""
    texts = []
    for implementation, block in blocks.items():
        cells = [(rank, f"{seconds} seconds", f"{allocated} bytes") for rank, seconds, allocated in block.rows]
        table = in_columns(cells, HEADERS)
        texts.append(f"{TITLES[implementation]}{data}\n{table}\nloss: {block.loss}, acc: {block.accuracy}")
    return "# Training loop benchmark\n" + "\n\n\n".join(texts)


def in_columns(rows: list[Any], columns: list[str]) -> str:
    return tabulate(rows, columns, tablefmt="github", disable_numparse=True, colalign=("left",) * len(columns))


def own_block(trainings: Trainings, implementation: str) -> Printed:
    """Means over the seeds."""
    rows = [
        (
            str(rank),
            f"{statistics.mean(trainings.seconds(implementation, rank)):.3f}",
            f"{statistics.mean(trainings.bytes(implementation, rank)):.0f}",
        )
        for rank in range(trainings.ranks)
    ]
    loss, accuracy = (
        statistics.mean(trainings.last(implementation, QUANTITIES[quantity])) for quantity in ("loss", "accuracy")
    )
    return Printed(rows, f"{loss:.4f}", f"{accuracy:.7f}")


def setup(trainings: Trainings) -> str:
    provenance, values = trainings.result.provenance, trainings.result.parameters
    device = "GPU: " + provenance["gpu"] if provenance["device"] == "cuda" else f"CPU: {provenance['cores']} cores"
    lines = [
        f"torch version: {provenance['torch']}",
        device,
        f"number of processes: {trainings.ranks}",
        f"data: {trainings.data}, {values['train_size']:,} images to train with and {values['test_size']:,} to "
        "validate",
        f"{trainings.epochs} epochs; batch {values['batch_size']} per rank, {values['grad_accum_steps']} of them a "
        f"step; SGD, learning rate {values['learning_rate']:g}, momentum {values['momentum']:g}",
        *(trainings.name(implementation) for implementation in trainings.implementations),
    ]
    return "# Experimental setup\n\n" + "\n".join(f"* {line}" for line in lines)


def beside_published(implementation: str, own: Printed, published: Printed) -> list[list[str]]:
    """A row for each number, in the columns BESIDE. More ranks than published have nothing beside them."""

    def row(quantity: str, here: str, there: str) -> list[str]:
        ratio = f"{float(here) / float(there):.3g}" if there else ""
        return [implementation, quantity, here, there, ratio]

    there = {rank: (seconds, allocated) for rank, seconds, allocated in published.rows}
    rows = []
    for rank, *numbers in own.rows:
        for quantity, here, other in zip(("time [s]", "memory [bytes]"), numbers, there.get(rank, ("", ""))):
            rows.append(row(f"rank {rank}: {quantity}", here, other))
    return [*rows, row("loss", own.loss, published.loss), row("accuracy", own.accuracy, published.accuracy)]


def loop_table(trainings: Trainings) -> Table:
    """The table in the published form, and the numbers beside the published ones."""
    blocks = {name: own_block(trainings, name) for name in trainings.implementations}
    published, count = load_published(), len(trainings.seeds)
    rows = [row for name, block in blocks.items() for row in beside_published(name, block, published[name])]
    other = "" if trainings.as_published else " This is another training than the published one: see its parameters."
    note = (
        f"Data: {trainings.data}. Means over {count} seed{'s' if count > 1 else ''}. Time: all epochs' training; the "
        "published one includes reading the data set and one validation. Memory: the most that tensors take at once. "
        "Loss and acc: as published, rank 0's running training loss and the accuracy of the batch it was last reported "
        f"in. Published: 2 RTX A4000, one run.{other} {COMMANDS}"
    )
    beside = in_columns(rows, BESIDE)
    parts = [setup(trainings), text_of(blocks, f" ({trainings.data})"), f"Beside the published numbers\n{beside}", note]
    return Table(
        title=f"Training loop benchmark ({trainings.data})",
        columns=BESIDE,
        rows=rows,
        text="\n\n".join(parts),
        results=[trainings.result],
        note=note,
    )


def spread(values: list[float], digits: int = 4) -> str:
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


def mean_over_ranks(trainings: Trainings, implementation: str) -> tuple[list[float], list[float]]:
    """Seconds and MiB, for each seed."""
    ranks = range(trainings.ranks)
    seconds = zip(*(trainings.seconds(implementation, rank) for rank in ranks))
    allocated = zip(*(trainings.bytes(implementation, rank) for rank in ranks))
    return list(map(statistics.mean, seconds)), [statistics.mean(of_ranks) / 2**20 for of_ranks in allocated]


def convergence(trainings: Trainings) -> list[str]:
    """What the seeds say about the claim that both implementations agree."""
    lines = []
    for what, quantity in QUANTITIES.items():
        found = compare(*(trainings.last(name, quantity) for name in ("selfmade", "pytorch")))
        said = f"{what}: selfmade - pytorch = {found.difference:+.4f}"
        if len(trainings.seeds) < 2:
            lines.append(f"{said}; one seed has no spread to compare that with.")
            continue
        within = found.within_spread()
        verdict = "within what the spread over seeds allows" if within else "more than the seeds' spread allows"
        lines.append(f"{said}, {verdict} (Welch's t = {found.t:.2f}, p = {found.p:.2f}).")
    return lines


def costs(own: dict[str, tuple[float, float]], source: str) -> str:
    """`own`: seconds and memory of each implementation."""
    time, memory = (100 * (own["pytorch"][i] / own["selfmade"][i] - 1) for i in range(2))
    return f"pytorch against selfmade, {source}: time {time:+.1f} %, memory {memory:+.1f} %."


def published_costs() -> dict[str, tuple[float, float]]:
    return {
        name: tuple(statistics.mean(float(row[place]) for row in published.rows) for place in (1, 2))
        for name, published in load_published().items()
    }


def seeds_table(trainings: Trainings) -> Table:
    """A row for each implementation, and whether they differ."""
    rows, means = [], {}
    for name in trainings.implementations:
        seconds, allocated = mean_over_ranks(trainings, name)
        means[name] = (statistics.mean(seconds), statistics.mean(allocated))
        ends = [spread(trainings.last(name, quantity)) for quantity in QUANTITIES.values()]
        rows.append([name, str(len(trainings.seeds)), *ends, spread(seconds, 2), spread(allocated, 2)])
    lines = []
    if len(rows) > 1:
        lines = [*convergence(trainings), costs(means, "here"), costs(published_costs(), "published")]
    columns = ["implementation", "seeds", *QUANTITIES, "time [s]", "memory [MiB]"]
    note = (
        f"Data: {trainings.data}. Mean ± standard deviation over the seeds, after {trainings.epochs} epochs. Loss and "
        "accuracy: rank 0's running training loss and last batch, as published; validation: accuracy over all its "
        "images."
    )
    table = in_columns(rows, columns)
    return Table(
        title=f"Do both implementations converge to the same? ({trainings.data})",
        columns=columns,
        rows=rows,
        text="\n".join([f"Convergence over seeds ({trainings.data})", table, "", *lines, note]),
        results=[trainings.result],
        note=" ".join([*lines, note]),
    )


def tables(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for trainings in map(load_trainings, files):
        yield script.name_of(PROGRAM, trainings.result), loop_table(trainings)
        yield script.name_of(f"{PROGRAM}.seeds", trainings.result), seeds_table(trainings)


main = script.main(__name__, __doc__, tables)
