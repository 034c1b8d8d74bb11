"""Sets the tables of compare_ddp in their published form, below the published takeaways and the size of the model.

Reads one result file of the benchmark compare_ddp.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from tabulate import tabulate

from figures.lib import ddp_comparison, script
from figures.lib.ddp_comparison import ASYNC, CORE, DIRECTIONS, EQUAL_BYTES, OPTIONS, PROGRAM, STAGE, SYNC, M
from figures.lib.published_scale import TIMES_ONLY, setup_in_words
from figures.lib.result_files import left_out, link, load, simulated
from figures.lib.side_by_side import side_by_side
from figures.lib.tables import Table

# As published: the second "mean" is the median.
COLUMNS = ("Mean", "delta%", "mean", "delta%", "p90", "delta%", "p95", "delta%%", "p99", "delta%")
ROWS = (CORE, ASYNC, SYNC, EQUAL_BYTES, STAGE)  # the published ones in their order, then the others
TAKEAWAYS = """\
1) In the forward path, Python impl is 1% faster than DPP Core. Python SYNC and ASYNC are on-par
2) re2 backward, speed ranking: DDPCore > Python Async > Python SYNC.
3) Python ASYNC - backward is [2%-20%] slower than DDPCore, varies by buffer size slightly
   * It's expected since larger buffer size means less parallelization as number of buckets decreases
   * No difference once buffer size is larger than total elements (24.37M) such as 25M, 26M, 27M
3) Python SYNC - backward is 20% slower than DDP Core, independent of buffer size"""  # as published
WIDTH = 136  # of a line of prose, as wide as the tables


def summary(latencies: pd.DataFrame, size: int) -> str:
    """One buffer size, as published; what is not known is a dash."""
    texts = []
    for direction in DIRECTIONS:
        cells = latencies.loc[size, direction].astype(object)
        cells = cells.where(cells.notna(), None)
        rows = [[OPTIONS[variant], *cells.loc[variant]] for variant in ROWS if variant in cells.index]
        texts.append(tabulate(rows, headers=[f"DDP: [{direction}]", *COLUMNS], tablefmt="simple", missingval="-"))
    return f"=== Summary for buffer_size: {size}M ===\n" + "\n\n\n".join(texts)


def model_summary(parameters: dict[str, Any]) -> str:
    def line(what: str, elements: int, note: str) -> str:
        return f"{what:<22}{elements:>12,} = {elements / M:.2f}M{note}"

    largest = f", {parameters['largest_parameter']} ({parameters['largest_parameter_shape']})"
    return "\n".join(
        [
            line("total parameters", parameters["parameters"], f" in {parameters['parameter_tensors']} tensors"),
            line("trainable parameters", parameters["trainable_parameters"], ""),
            line("largest parameter", parameters["largest_parameter_elements"], largest),
        ]
    )


def note_of(result: pd.DataFrame, there: list[str]) -> str:
    values, ranks = result.attrs["parameters"], result.attrs["provenance"]["world_size"]
    if simulated(result):
        return (
            f"{setup_in_words(result)}, ResNet-50, batch {values['batch_size']}. Milliseconds of an "
            "iteration: all take the same, so that percentiles are the mean. The buffers of async and sync, PyTorch's "
            "published Python DDP, and of stage 03 hold M = 2^20 float32; of DDP_CPP_CORE M is bucket_cap_mb, as "
            f"published; EQUAL_BYTES is the same core with four times that. {TIMES_ONLY}"
        )
    procedure, count = ddp_comparison.procedure_of(result), ddp_comparison.iterations_of(result)
    return (
        f"ResNet-50, {ranks} rank{'s' if ranks != 1 else ''} on {link(result)}, batch {values['batch_size']} a rank, "
        f"images of {values['image_size']}x{values['image_size']}; {procedure}. Milliseconds of n = {count} iterations "
        f"after {values['discarded']} discarded ones. The second column named mean is the median, as in the published "
        "table. A percentile above which not one of n iterations lies on average is left out (-): the 90th takes 10, "
        "the 95th 20, the 99th 100. M is 2^20 elements: buffers of async and sync hold so many float32. Of "
        "DDP_CPP_CORE it is bucket_cap_mb, a quarter of the bytes, as published; EQUAL_BYTES is the same core with "
        "four times that." + left_out((ASYNC, SYNC), there)
    )


def compact(latencies: pd.DataFrame, sizes: list[int]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of medians: all buffer sizes on one page."""
    others = [variant for variant in ROWS[1:] if variant in ddp_comparison.variants_of(latencies)]
    columns = ["buffer size", "direction", "core p50 [ms]"] + [f"{variant} p50 [ms]" for variant in others]
    rows = []
    for size in sizes:
        for direction in DIRECTIONS:
            cells = latencies.loc[size, direction]
            texts = [f"{cells.p50[other]:.1f} ({cells.p50_delta[other]:+.1f} %)" for other in others]
            rows.append([f"{size}M", direction, f"{cells.p50[CORE]:.1f}", *texts])
    return columns, rows


def make(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for file in files:
        result = load(file, PROGRAM)
        latencies, known = ddp_comparison.measured(result), ddp_comparison.supported(result)
        sizes = list(latencies.index.unique("buffer_size"))
        note = note_of(result, ddp_comparison.variants_of(latencies))
        columns, rows = compact(latencies, sizes)
        unknown = [column for column in latencies.columns if column.removesuffix("_delta") not in known]
        printed = latencies.assign(**dict.fromkeys(unknown))
        text = "\n\n\n".join(
            [
                f"Published takeaways:\n{TAKEAWAYS}",
                "Model: ResNet-50\n" + model_summary(result.attrs["parameters"]),
                textwrap.fill(note, WIDTH),
                *(summary(printed, size) for size in sizes),
            ]
        )
        title = "ResNet-50 over buffer sizes: latency of forward and backward"
        table = Table(title, columns, rows, text, [result], note)
        yield script.name_of(PROGRAM, result), table
        own = latencies[known].reset_index().replace({"variant": OPTIONS})
        yield from side_by_side(PROGRAM, table, PROGRAM, ddp_comparison.KEYS, own)


main = script.main(__name__, __doc__, make)
