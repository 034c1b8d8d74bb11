"""Sets ddp_suite's tables in the form of the published one: sec/iter and ex/sec of each round, at four percentiles.

There is a table for each variant that uses DDP and each bucket size.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pandas as pd

from figures.lib import script, suite_data
from figures.lib.published_scale import TIMES_ONLY, setup_in_words
from figures.lib.result_files import load, simulated
from figures.lib.side_by_side import side_by_side
from figures.lib.suite_data import PROGRAM, ROUND, VARIANTS
from figures.lib.tables import Table

PUBLISHED_BUCKET = 25  # MB
PERCENTS = (50, 75, 90, 95)
COLUMNS = ["model", "GPUs", "round", *(f"p{percent} {unit}" for percent in PERCENTS for unit in ("sec/iter", "ex/sec"))]


def as_printed(seconds: pd.DataFrame, batch_size: int) -> pd.DataFrame:
    """Rounds with their published cells, such as "50 sec/iter": ex/sec are truncated, not rounded."""
    cells = seconds[ROUND].astype(str)
    for percent in PERCENTS:
        cells[f"{percent} sec/iter"] = seconds[percent].map("{:.3f}".format)
        cells[f"{percent} ex/sec"] = (batch_size / seconds[percent]).astype(int).astype(str)
    return cells


def published() -> pd.DataFrame:
    cells = suite_data.load_reference(PROGRAM, as_printed=True)
    wide = cells.pivot(index=ROUND, columns="percentile", values=["sec/iter", "ex/sec"])
    wide.columns = [f"{percent} {unit}" for unit, percent in wide.columns]
    return wide.loc[list(cells.groupby(ROUND, sort=False).groups)].reset_index()


def blocks(cells: pd.DataFrame, batch_size: int) -> str:
    """The lines of all models."""
    texts = []
    for model, rounds in cells.groupby("model", sort=False):
        lines = [f"Benchmark: {model} with batch size {batch_size}", ""]
        lines.append(" " * 22 + f"{'sec/iter':>14}{'ex/sec':>10}" * len(PERCENTS))
        for _, row in rounds.iterrows():
            parts = (f"  p{p:02}:  {row[f'{p} sec/iter']}s  {row[f'{p} ex/sec']:>6}/s" for p in PERCENTS)
            lines.append(f"{row['gpus']:>4} GPUs -- {row['round']:>8}:" + "".join(parts))
        texts.append("\n".join(lines) + "\n")
    return "\n".join(texts)


def table(result: pd.DataFrame, seconds: pd.DataFrame, title: str) -> Table:
    values = result.attrs["parameters"]
    cells = as_printed(seconds, values["batch_size"])
    rows = cells[["model", "gpus", "round", *cells.columns[len(ROUND) :]]].to_numpy().tolist()
    side = values["image_size"]
    note = f"Images of {side}x{side}. Percentiles over all ranks' iterations together; ex/sec of one rank."
    if result.attrs["provenance"]["device"] == "cpu":
        note += " What is called a GPU is a rank with one thread of the CPU."
    if simulated(result):
        note = f"{setup_in_words(result)}. All iterations take the same, so that all percentiles do. {TIMES_ONLY}"
    return Table(title, COLUMNS, rows, blocks(cells, values["batch_size"]), [result], note)


def tables(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for result in (load(file, PROGRAM) for file in files):
        sizes = suite_data.bucket_sizes(result)
        for size, variant in product(sizes, VARIANTS):
            seconds = suite_data.rounds(result, variant, size, *PERCENTS)
            name = f"{PROGRAM}.{variant}" + (f"_{size}MB" if len(sizes) > 1 else "")
            made = table(result, seconds, f"{VARIANTS[variant]}, buckets of {size} MB")
            yield script.name_of(name, result), made
            if size == PUBLISHED_BUCKET:
                own = seconds.melt(ROUND, PERCENTS, "percentile", "sec/iter")
                own["ex/sec"] = result.attrs["parameters"]["batch_size"] / own["sec/iter"]
                yield from side_by_side(name, made, PROGRAM, ("model", "gpus", "round", "percentile"), own)


main = script.main(__name__, __doc__, tables)
