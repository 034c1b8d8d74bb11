"""Sets the times of an iteration with several bucket sizes as the published experiment prints them.

Reads a result file of the benchmark bucketed_ddp. Below the published lines is a table of the variants without buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tabulate import tabulate

from figures.lib import script, training_times
from figures.lib.published_scale import TIMES_ONLY, setup_in_words
from figures.lib.result_files import Result
from figures.lib.side_by_side import Quantity, side_by_side
from figures.lib.tables import Table
from figures.lib.training_times import BUCKETED, COMPUTE, REDUCER, THRESHOLD, TRAIN, UNBUCKETED, Times, Trainings, Way

MARK = "*"  # at times that are not those of finish()


def as_tensor(value: float, device: str) -> str:
    """The value as torch prints a tensor of one element."""
    if value == int(value):
        number = f"{value:.0f}."
    else:
        number = f"{value:.4e}" if abs(value) < 1e-4 else f"{value:.4f}"
    return f"tensor([{number}], device='cuda:0')" if device == "cuda" else f"tensor([{number}])"


def lines_of(way: Way, times: Times, device: str) -> list[str]:
    """The four published lines. They give both caps if a smaller model's differs from the published one."""
    cap = way.cap_bytes
    scaled = cap is not None and way.bucket_size_mb is not None and cap != way.bucket_size_mb << 20
    note = f" (of xl's gradients; here {cap} bytes)" if scaled else ""
    return [
        f"Training DDP model, local_bs: {way.local_bs}, seq_len: {way.seq_len}, "
        f"bucket_size_mb: {way.bucket_size_mb}{note}",
        f"total time train: {as_tensor(times.train, device)}",
        f"total time grad all reduce: {as_tensor(times.all_reduce, device)}",
        f"ratio grad all reduce to train time: {as_tensor(times.ratio, device)}",
    ]


def published_form(times: dict[Way, Times], device: str) -> str:
    """All lines of the bucketed ways, batch by batch."""
    parts = []
    for batch in dict.fromkeys(way.local_bs for way in times):
        lines = [line for way in times if way.local_bs == batch for line in lines_of(way, times[way], device)]
        parts.append("\n".join([f"#### Batch size {batch}", *lines]))
    return "\n\n".join(parts)


def unbucketed_form(trainings: Trainings) -> str:
    """A row for each variant without buckets, for each batch and sequence."""
    rows: list[list[object]] = []
    for way in trainings.ways():
        if way.variant == BUCKETED:
            continue
        own = [way.local_bs, way.seq_len, way.variant + (MARK if way.variant == REDUCER else "")]
        if way.variant == COMPUTE:
            rows.append([*own, f"{trainings.seconds(way, TRAIN):.4f}", "-", "-"])
        else:
            times = trainings.times(way)
            rows.append([*own, *(f"{value:.4f}" for value in (times.train, times.all_reduce, times.ratio))])
    headers = ["local_bs", "seq_len", "variant", "total time train", "total time grad all reduce", "ratio"]
    return tabulate(rows, headers, tablefmt="simple", disable_numparse=True)


def grid(trainings: Trainings) -> tuple[list[str], list[list[str]]]:
    """The table for a page: a row for each batch and sequence, a column for each way."""
    caps = sorted({w.bucket_size_mb for w in trainings.ways() if w.bucket_size_mb is not None})
    measured = {way.variant for way in trainings.ways()}
    others = [variant for variant in (*UNBUCKETED, COMPUTE) if variant in measured]
    columns = ["batch", "tokens", *(f"{cap} MB" for cap in caps)]
    columns += [variant + (MARK if variant == REDUCER else "") for variant in others]
    rows = []
    for batch in trainings.batches():
        for length in trainings.lengths(batch):
            ways = [Way(batch, length, BUCKETED, cap) for cap in caps]
            ways += [Way(batch, length, variant) for variant in others]
            rows.append([str(batch), str(length), *(cell(trainings, way) for way in ways)])
    return columns, rows


def cell(trainings: Trainings, way: Way) -> str:
    if not trainings.has(way):
        return "-"
    if way.variant == COMPUTE:
        return f"{1e3 * trainings.seconds(way, TRAIN):.1f}"
    times = trainings.times(way)
    return f"{1e3 * times.train:.1f} ({1e3 * times.all_reduce:.1f})"


def note_of(result: Result, trainings: Trainings) -> str:
    values = result.parameters
    if result.simulated:
        return (
            f"{setup_in_words(result)}; {values['model']}, {values['parameters']:,} parameters. {MARK} The Reducer "
            f"waits inside backward: what its backward takes beyond that of computing alone. {THRESHOLD} {TIMES_ONLY}"
        )
    note = (
        f"{result.provenance['world_size']} ranks, {result.link}; {values['model']}, {values['parameters']:,} "
        f"parameters. Means of {values['repetitions']} iterations, the largest of all ranks. {MARK} The Reducer waits "
        f"inside backward: what its backward takes beyond that of computing alone. {THRESHOLD}"
    )
    caps = {way.bucket_size_mb: way.cap_bytes for way in trainings.ways() if way.variant == BUCKETED}
    if any(cap != size << 20 for size, cap in caps.items()):
        here = ", ".join(f"{size} MB is {training_times.size_in_words(cap)}" for size, cap in sorted(caps.items()))
        note += f" Buckets are as large a part of the gradients as the published ones are of xl's: {here}."
    return note


def make(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for file in files:
        result, trainings = training_times.load_trainings(file)
        bucketed = {way: trainings.times(way) for way in trainings.ways() if way.variant == BUCKETED}
        columns, rows = grid(trainings)
        note = note_of(result, trainings)
        published = published_form(bucketed, result.provenance["device"])
        parts = [published, "#### Without buckets", unbucketed_form(trainings), note]
        text = "\n\n".join(filter(None, parts))
        title = "Time of a training iteration, in parentheses of the gradient all-reduce [ms]"
        table = Table(title, columns, rows, text, [result], note)
        yield script.name_of(training_times.PROGRAM, result), table
        own = {
            (str(way.local_bs), str(way.seq_len), str(way.bucket_size_mb)): (times.train, times.all_reduce, times.ratio)
            for way, times in bucketed.items()
        }
        keys, quantities = (
            ("local_bs", "seq_len", "bucket_size_mb"),
            [Quantity(name) for name in training_times.COLUMNS],
        )
        yield from side_by_side(training_times.PROGRAM, table, training_times.PUBLISHED, keys, quantities, own)


main = script.main(__name__, __doc__, make)
