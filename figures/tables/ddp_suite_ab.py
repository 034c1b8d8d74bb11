"""Sets the suite's A/B of two bucket sizes in the form of the published comparison: a table for each DDP variant.

Reads one result file of the benchmark ddp_suite, run with two bucket sizes, for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures.lib import script
from figures.lib.published_scale import TIMES_ONLY, setup_in_words
from figures.lib.result_files import ResultError
from figures.lib.side_by_side import Quantity, side_by_side
from figures.lib.suite_data import VARIANTS, Choice, Suite
from figures.lib.tables import Table
from tools.report import ddp_diff

NAME = "ddp_suite_ab"
QUANTITIES = ("sec/iter", "ex/sec", "diff")
BESIDE = [Quantity("sec/iter"), Quantity("ex/sec"), Quantity("diff", has_ratio=False)]
COLUMNS = ["model", "GPUs", *(f"p{percent} {what}" for percent in ddp_diff.PERCENTS for what in QUANTITIES)]


def load_ab(file: Path) -> Suite:
    suite = Suite(file)
    if len(suite.bucket_sizes) != 2:
        count = len(suite.bucket_sizes)
        raise ResultError(f"{file}: has {count} bucket sizes, not two; run ddp_suite --bucket-size 25 1")
    return suite


def report(suite: Suite, choice: Choice) -> ddp_diff.Suite:
    """What ddp_suite --json writes about the choice."""
    provenance, version = suite.result.provenance, suite.result.parameters.get("cuda_version")
    results: list[dict[str, Any]] = []
    for model in suite.models:
        rounds = [{"ranks": list(range(one.ranks)), "measurements": one.seconds} for one in suite.rounds(model, choice)]
        results.append({"model": model, "batch_size": suite.batch_size, "result": rounds})
    return ddp_diff.parse(
        {
            "pytorch_version": provenance["torch"],
            "cuda_version": version or None,
            "distributed_backend": provenance["backend"],
            "bucket_size": choice.bucket_size,
            "benchmark_results": results,
        }
    )


Compared = list[tuple[str, int, list[ddp_diff.Cell]]]  # model, ranks, and a cell for each percentile


def compared(baseline: ddp_diff.Suite, test: ddp_diff.Suite) -> Compared:
    rows = ddp_diff.compare(baseline, test).items()
    return [(model, ranks, cells) for (model, _), own in rows for ranks, cells in own]


def table(suite: Suite, baseline: ddp_diff.Suite, test: ddp_diff.Suite, variant: str) -> Table:
    rows = []
    for model, ranks, cells in compared(baseline, test):
        texts = [(f"{cell.seconds:.3f}", str(cell.examples), f"{cell.diff:+.1f}%") for cell in cells]
        rows.append([model, str(ranks), *(text for cell in texts for text in cell)])
    before, after = suite.bucket_sizes
    how = f"{setup_in_words(suite.result)}. {TIMES_ONLY}" if suite.result.simulated else "They took turns."
    title = f"{VARIANTS[variant]}, buckets of {after} MB against {before} MB"
    note = f"The numbers of {after} MB; diff: against {before} MB, in percent of sec/iter, negative is slower. {how}"
    return Table(title, COLUMNS, rows, ddp_diff.format_diff(baseline, test), [suite.result], note)


def tables(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for file in files:
        suite = load_ab(file)
        for variant in VARIANTS:
            baseline, test = (report(suite, Choice(variant, size)) for size in suite.bucket_sizes)
            name, made = f"{NAME}.{variant}", table(suite, baseline, test, variant)
            yield script.name_of(name, suite.result), made
            own = {
                (model, str(ranks), str(cell.percent)): (cell.seconds, cell.examples, cell.diff)
                for model, ranks, cells in compared(baseline, test)
                for cell in cells
            }
            yield from side_by_side(name, made, "ddp_suite_diff", ("model", "gpus", "percentile"), BESIDE, own)


main = script.main(__name__, __doc__, tables)
