"""Sets the times of an iteration with several bucket sizes as the published experiment prints them.

Reads a result file of the benchmark bucketed_ddp. Below the published lines is a table of the variants without buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from figures.lib import script, training_times
from figures.lib.published_scale import TIMES_ONLY, setup_in_words
from figures.lib.result_files import link, load, simulated
from figures.lib.side_by_side import side_by_side
from figures.lib.tables import Table
from figures.lib.training_times import ALL_REDUCE, BUCKETED, COMPUTE, PROGRAM, PUBLISHED, REDUCER, THRESHOLD, TRAIN

MARK = "*"  # at times that are not those of finish()
NUMBERS = list(PUBLISHED)
OTHERS = (*training_times.UNBUCKETED, COMPUTE)


def as_tensor(value: float, device: str) -> str:
    """The value as torch prints a tensor of one element."""
    if value == int(value):
        number = f"{value:.0f}."
    else:
        number = f"{value:.4e}" if abs(value) < 1e-4 else f"{value:.4f}"
    return f"tensor([{number}], device='cuda:0')" if device == "cuda" else f"tensor([{number}])"


def published_form(times: pd.DataFrame, device: str) -> str:
    """All lines of bucketed trainings, batch by batch. They give both caps if a smaller model's differs from the
    published one."""
    parts = []
    for batch, rows in times.groupby("local_bs", sort=False):
        lines = [f"#### Batch size {batch}"]
        for _, row in rows.iterrows():
            megabytes, cap = row["bucket_size_mb"], row.get("cap_bytes", row["bucket_size_mb"] << 20)
            note = "" if cap == megabytes << 20 else f" (of xl's gradients; here {cap} bytes)"
            lines.append(
                f"Training DDP model, local_bs: {batch}, seq_len: {row['seq_len']}, bucket_size_mb: {megabytes}{note}"
            )
            lines += [f"{name}: {as_tensor(row[part], device)}" for part, name in PUBLISHED.items()]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def marked(variant: str) -> str:
    return variant + (MARK if variant == REDUCER else "")


def unbucketed_form(times: pd.DataFrame) -> str:
    """A row for each variant without buckets, for each batch and sequence."""
    rows = []
    for _, row in times[times["variant"] != BUCKETED].iterrows():
        known = [TRAIN] if row["variant"] == COMPUTE else NUMBERS
        texts = [f"{row[part]:.4f}" if part in known else "-" for part in NUMBERS]
        rows.append([row["local_bs"], row["seq_len"], marked(row["variant"]), *texts])
    headers = ["local_bs", "seq_len", "variant", "total time train", "total time grad all reduce", "ratio"]
    return tabulate(rows, headers, tablefmt="simple", disable_numparse=True)


def grid(times: pd.DataFrame) -> pd.DataFrame:
    """For a page: a row for each batch and sequence, a column for each bucket size or variant without buckets."""
    total, waited = (1e3 * times[part] for part in (TRAIN, ALL_REDUCE))
    cells = total.map("{:.1f}".format) + waited.map(" ({:.1f})".format).where(times["variant"] != COMPUTE, "")
    sizes = times["bucket_size_mb"].map("{} MB".format)
    column = times["variant"].map(marked).where(times["variant"] != BUCKETED, sizes)
    wide = times.assign(cell=cells, column=column).pivot(index=["local_bs", "seq_len"], columns="column", values="cell")
    names = [f"{size} MB" for size in sorted(times["bucket_size_mb"].unique())] + [
        marked(variant) for variant in OTHERS
    ]
    wide = wide[[name for name in names if name in wide]].fillna("-").reset_index().astype(str)
    return wide.rename(columns={"local_bs": "batch", "seq_len": "tokens"})


def note_of(result: pd.DataFrame, bucketed: pd.DataFrame) -> str:
    values = result.attrs["parameters"]
    waits = (
        f"{MARK} The Reducer waits inside backward: what its backward takes beyond that of computing alone. {THRESHOLD}"
    )
    if simulated(result):
        model = f"{values['model']}, {values['parameters']:,} parameters"
        return f"{setup_in_words(result)}; {model}. {waits} {TIMES_ONLY}"
    note = (
        f"{result.attrs['provenance']['world_size']} ranks, {link(result)}; {values['model']}, "
        f"{values['parameters']:,} parameters. Means of {values['repetitions']} iterations, the largest of all ranks. "
        f"{waits}"
    )
    caps = dict(sorted(zip(bucketed["bucket_size_mb"], bucketed["cap_bytes"])))
    if any(cap != size << 20 for size, cap in caps.items()):
        here = ", ".join(f"{size} MB is {training_times.size_in_words(cap)}" for size, cap in caps.items())
        note += f" Buckets are as large a part of the gradients as the published ones are of xl's: {here}."
    return note


def make(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for result in (load(file, PROGRAM) for file in files):
        times = training_times.times(result)
        bucketed, page = times[times["variant"] == BUCKETED], grid(times)
        note = note_of(result, bucketed)
        published = published_form(bucketed, result.attrs["provenance"]["device"])
        text = "\n\n".join(filter(None, [published, "#### Without buckets", unbucketed_form(times), note]))
        title = "Time of a training iteration, in parentheses of the gradient all-reduce [ms]"
        table = Table(title, list(page.columns), page.to_numpy().tolist(), text, [result], note)
        yield script.name_of(PROGRAM, result), table
        keys = ["local_bs", "seq_len", "bucket_size_mb"]
        own = bucketed[keys + NUMBERS].rename(columns=PUBLISHED)
        yield from side_by_side(PROGRAM, table, PROGRAM, keys, own)


main = script.main(__name__, __doc__, make)
