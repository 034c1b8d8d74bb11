"""Sets the suite's A/B of two bucket sizes in the form of the published comparison: a table for each DDP variant.

Reads one result file of the benchmark ddp_suite, run with two bucket sizes, for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from figures.lib import script, suite_data
from figures.lib.published_scale import TIMES_ONLY, setup_in_words
from figures.lib.result_files import simulated
from figures.lib.side_by_side import side_by_side
from figures.lib.suite_data import NO_DDP, VARIANTS
from figures.lib.tables import Table
from tools.report import ddp_diff

NAME = "ddp_suite_ab"
KEYS = ["model", "gpus", "percentile"]
QUANTITIES = ["sec/iter", "ex/sec", "diff"]
COLUMNS = ["model", "GPUs", *(f"p{percent} {what}" for percent in ddp_diff.PERCENTS for what in QUANTITIES)]


def report(result: pd.DataFrame, variant: str, bucket_size: int) -> ddp_diff.Suite:
    """What ddp_suite --json writes about a variant with one bucket size."""
    values, provenance = result.attrs["parameters"], result.attrs["provenance"]
    chosen = (result["variant"] == variant) & (result["bucket_size"] == bucket_size)
    own = result[chosen | (result["variant"] == NO_DDP)]
    results: list[dict[str, Any]] = []
    for model, of_model in own.groupby("model", sort=False):
        rounds = of_model.groupby(["round", "ranks"], sort=False)["value"]
        measured = [{"ranks": list(range(ranks)), "measurements": list(seconds)} for (_, ranks), seconds in rounds]
        results.append({"model": model, "batch_size": values["batch_size"], "result": measured})
    return ddp_diff.parse(
        {
            "pytorch_version": provenance["torch"],
            "cuda_version": values.get("cuda_version") or None,
            "distributed_backend": provenance["backend"],
            "bucket_size": bucket_size,
            "benchmark_results": results,
        }
    )


def compared(baseline: ddp_diff.Suite, test: ddp_diff.Suite) -> pd.DataFrame:
    """A row for each model, number of ranks and percentile."""
    cells = [
        [model, ranks, cell.percent, cell.seconds, cell.examples, cell.diff]
        for (model, _), rows in ddp_diff.compare(baseline, test).items()
        for ranks, own in rows
        for cell in own
    ]
    return pd.DataFrame(cells, columns=[*KEYS, *QUANTITIES])


def tables(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for result in map(suite_data.load_ab, files):
        before, after = suite_data.bucket_sizes(result)
        note = f"The numbers of {after} MB; diff: against {before} MB, in percent of sec/iter, negative is slower. "
        note += f"{setup_in_words(result)}. {TIMES_ONLY}" if simulated(result) else "They took turns."
        for variant in VARIANTS:
            baseline, test = (report(result, variant, size) for size in (before, after))
            own = compared(baseline, test)
            texts = own["sec/iter"].map("{:.3f}".format) + " " + own["ex/sec"].astype(str) + " "
            texts += own["diff"].map("{:+.1f}%".format)
            rows = [
                [model, str(gpus), *" ".join(cells).split()]
                for (model, gpus), cells in texts.groupby([own["model"], own["gpus"]], sort=False)
            ]
            title = f"{VARIANTS[variant]}, buckets of {after} MB against {before} MB"
            made = Table(title, COLUMNS, rows, ddp_diff.format_diff(baseline, test), [result], note)
            yield script.name_of(f"{NAME}.{variant}", result), made
            yield from side_by_side(f"{NAME}.{variant}", made, "ddp_suite_diff", KEYS, own)


main = script.main(__name__, __doc__, tables)
