"""Sets the tables of compare_ddp in their published form, below the published takeaways and the size of the model.

Reads one result file of the benchmark compare_ddp.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tabulate import tabulate

from figures.lib import ddp_comparison, script
from figures.lib.ddp_comparison import ASYNC, CORE, DIRECTIONS, EQUAL_BYTES, OPTIONS, STAGE, SYNC, Comparison, M, delta
from figures.lib.published_scale import TIMES_ONLY, setup_in_words
from figures.lib.result_files import Result, left_out, load
from figures.lib.side_by_side import Quantity, side_by_side
from figures.lib.tables import Table

# As published: the second "mean" is the median.
COLUMNS = ("Mean", "delta%", "mean", "delta%", "p90", "delta%", "p95", "delta%%", "p99", "delta%")
ROWS = (
    CORE,
    ASYNC,
    SYNC,
    EQUAL_BYTES,
    STAGE,
)  # the published ones in their order, then the unpublished ones
TAKEAWAYS = """\
1) In the forward path, Python impl is 1% faster than DPP Core. Python SYNC and ASYNC are on-par
2) re2 backward, speed ranking: DDPCore > Python Async > Python SYNC.
3) Python ASYNC - backward is [2%-20%] slower than DDPCore, varies by buffer size slightly
   * It's expected since larger buffer size means less parallelization as number of buckets decreases
   * No difference once buffer size is larger than total elements (24.37M) such as 25M, 26M, 27M
3) Python SYNC - backward is 20% slower than DDP Core, independent of buffer size"""  # as published
WIDTH = 136  # of a line of prose, as wide as the tables

Rows = dict[str, list[float | None]]  # by variant: the numbers of COLUMNS; None: not measured


def rows_of(comparison: Comparison, size: int, direction: str, known: list[str]) -> Rows:
    latencies = comparison[size][direction]
    return {
        variant: [
            number
            for statistic in ddp_comparison.STATISTICS
            for number in (
                (getattr(latency, statistic), delta(latencies, variant, statistic))
                if statistic in known
                else (None, None)
            )
        ]
        for variant, latency in latencies.items()
    }


def summary(size: int, by_direction: dict[str, Rows]) -> str:
    """One buffer size, as published."""
    texts = []
    for direction in DIRECTIONS:
        rows = [[OPTIONS[name], *by_direction[direction][name]] for name in ROWS if name in by_direction[direction]]
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


def note_of(result: Result, comparison: Comparison) -> str:
    if result.simulated:
        return (
            f"{setup_in_words(result)}, ResNet-50, batch {result.parameters['batch_size']}. Milliseconds of an "
            "iteration: all take the same, so that percentiles are the mean. The buffers of async and sync, PyTorch's "
            "published Python DDP, and of stage 03 hold M = 2^20 float32; of DDP_CPP_CORE M is bucket_cap_mb, as "
            f"published; EQUAL_BYTES is the same core with four times that. {TIMES_ONLY}"
        )
    values, ranks = result.parameters, result.provenance["world_size"]
    procedure, count = ddp_comparison.procedure_of(result), ddp_comparison.iterations_of(result)
    there = tuple(ddp_comparison.variants_of(comparison))
    return (
        f"ResNet-50, {ranks} rank{'s' if ranks != 1 else ''} on {result.link}, batch {values['batch_size']} a rank, "
        f"images of {values['image_size']}x{values['image_size']}; {procedure}. Milliseconds of n = {count} iterations "
        f"after {values['discarded']} discarded ones. The second column named mean is the median, as in the published "
        "table. A percentile above which not one of n iterations lies on average is left out (-): the 90th takes 10, "
        "the 95th 20, the 99th 100. M is 2^20 elements: buffers of async and sync hold so many float32. Of "
        "DDP_CPP_CORE it is bucket_cap_mb, a quarter of the bytes, as published; EQUAL_BYTES is the same core with "
        "four times that." + left_out((ASYNC, SYNC), there)
    )


def text_of(result: Result, comparison: Comparison, note: str) -> str:
    known = ddp_comparison.measured_statistics(result)
    parts = [
        f"Published takeaways:\n{TAKEAWAYS}",
        "Model: ResNet-50\n" + model_summary(result.parameters),
        textwrap.fill(note, WIDTH),
        *(
            summary(size, {direction: rows_of(comparison, size, direction, known) for direction in DIRECTIONS})
            for size in comparison
        ),
    ]
    return "\n\n\n".join(parts)


def compact(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of medians: all buffer sizes on one page."""
    others = [variant for variant in ROWS[1:] if variant in ddp_comparison.variants_of(comparison)]
    columns = ["buffer size", "direction", "core p50 [ms]"] + [f"{variant} p50 [ms]" for variant in others]
    rows = []
    for size, cell in comparison.items():
        for direction in DIRECTIONS:
            latencies = cell[direction]
            cells = [f"{latencies[other].p50:.1f} ({delta(latencies, other):+.1f} %)" for other in others]
            rows.append([f"{size}M", direction, f"{latencies[CORE].p50:.1f}", *cells])
    return columns, rows


def tables(result: Result) -> Iterator[tuple[str, Table]]:
    comparison = ddp_comparison.measured(result)
    note = note_of(result, comparison)
    columns, rows = compact(comparison)
    title = "ResNet-50 over buffer sizes: latency of forward and backward"
    text = text_of(result, comparison, note)
    table = Table(title, columns, rows, text, [result], note)
    yield script.name_of(ddp_comparison.PROGRAM, result), table
    known = ddp_comparison.measured_statistics(result)
    quantities = [Quantity(name) for name in known]
    own = {
        (str(size), direction, OPTIONS[variant]): [getattr(latency, name) for name in known]
        for size, cell in comparison.items()
        for direction, latencies in cell.items()
        for variant, latency in latencies.items()
    }
    keys = ("buffer_size", "direction", "variant")
    yield from side_by_side(ddp_comparison.PROGRAM, table, ddp_comparison.REFERENCE, keys, quantities, own)


def make(files: list[Path]) -> Iterator[tuple[str, Table]]:
    for file in files:
        yield from tables(load(file, ddp_comparison.PROGRAM, ddp_comparison.PARAMETERS))


main = script.main(__name__, __doc__, make)
