"""Sets ddp_suite's tables in the form of the published one: sec/iter and ex/sec of each round, at four percentiles.

There is a table for each variant that uses DDP and each bucket size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from figures.lib import script
from figures.lib.published_scale import TIMES_ONLY, setup_in_words
from figures.lib.side_by_side import Quantity, side_by_side
from figures.lib.suite_data import PROGRAM, VARIANTS, Choice, PublishedCell, PublishedRound, Round, Suite
from figures.lib.tables import Table

PUBLISHED_BUCKET = 25  # MB
QUANTITIES = [Quantity("sec/iter"), Quantity("ex/sec")]
PERCENTS = (50, 75, 90, 95)
COLUMNS = ["model", "GPUs", "round", *(f"p{percent} {unit}" for percent in PERCENTS for unit in ("sec/iter", "ex/sec"))]


def as_printed(round_: Round, batch_size: int) -> PublishedRound:
    """A measured round in the published form: ex/sec are truncated, not rounded."""
    times = [(percent, round_.percentile(percent)) for percent in PERCENTS]
    cells = [PublishedCell(percent, f"{time:.3f}", str(int(batch_size / time))) for percent, time in times]
    return PublishedRound(round_.name, round_.ranks, cells)


def block(model: str, batch_size: int, rounds: Sequence[PublishedRound]) -> str:
    """One model's lines."""
    lines = [f"Benchmark: {model} with batch size {batch_size}", ""]
    lines.append(" " * 22 + f"{'sec/iter':>14}{'ex/sec':>10}" * len(PERCENTS))
    for round_ in rounds:
        cells = (f"  p{cell.percent:02}:  {cell.seconds}s  {cell.examples:>6}/s" for cell in round_.cells)
        lines.append(f"{round_.ranks:>4} GPUs -- {round_.name:>8}:" + "".join(cells))
    return "\n".join(lines) + "\n"


def blocks(models: dict[str, list[PublishedRound]], batch_size: int) -> str:
    return "\n".join(block(model, batch_size, rounds) for model, rounds in models.items())


def table(suite: Suite, choice: Choice) -> Table:
    models = {
        model: [as_printed(round_, suite.batch_size) for round_ in suite.rounds(model, choice)]
        for model in suite.models
    }
    rows = [
        [model, str(one.ranks), one.name, *(text for cell in one.cells for text in (cell.seconds, cell.examples))]
        for model, rounds in models.items()
        for one in rounds
    ]
    values, provenance = suite.result.parameters, suite.result.provenance
    side = values["image_size"]
    note = f"Images of {side}x{side}. Percentiles over all ranks' iterations together; ex/sec of one rank."
    if provenance["device"] == "cpu":
        note += " What is called a GPU is a rank with one thread of the CPU."
    if suite.result.simulated:
        note = f"{setup_in_words(suite.result)}. All iterations take the same, so that all percentiles do. {TIMES_ONLY}"
    title = f"{VARIANTS[choice.variant]}, buckets of {choice.bucket_size} MB"
    return Table(title, COLUMNS, rows, blocks(models, suite.batch_size), [suite.result], note)


def own_numbers(suite: Suite, choice: Choice) -> dict[tuple[str, ...], tuple[float, float]]:
    """QUANTITIES, by the published table's model, gpus, round and percentile."""
    return {
        (model, str(round_.ranks), round_.name, str(percent)): (time, suite.batch_size / time)
        for model in suite.models
        for round_ in suite.rounds(model, choice)
        for percent in PERCENTS
        for time in [round_.percentile(percent)]
    }


def tables(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for file in files:
        suite = Suite(file)
        for choice in suite.choices():
            size = f"_{choice.bucket_size}MB" if len(suite.bucket_sizes) > 1 else ""
            name, made = f"{PROGRAM}.{choice.variant}{size}", table(suite, choice)
            yield script.name_of(name, suite.result), made
            if choice.bucket_size == PUBLISHED_BUCKET:
                keys = ("model", "gpus", "round", "percentile")
                yield from side_by_side(name, made, PROGRAM, keys, QUANTITIES, own_numbers(suite, choice))


main = script.main(__name__, __doc__, tables)
