"""Sets time and bandwidth of all-reduces over message and world size, with the columns of nccl-tests.

Reads one result file of the benchmark collectives. nccl-tests prints the mean of back-to-back calls; these are medians
of calls that all ranks begin together, on the slowest rank.
"""

from __future__ import annotations

import statistics

from figures.lib import all_reduces, script
from figures.lib.all_reduces import Times, bus_bandwidth, size_label, title_of
from figures.lib.result_files import Result, left_out
from figures.lib.tables import Table

ELEMENT = 4  # bytes of a float32
HEADER = (
    "#       size         count      type   redop        time     algbw     busbw\n"
    "#        (B)    (elements)                          (us)    (GB/s)    (GB/s)"
)


def section(title: str, by_size: dict[int, list[float]], world: int) -> str:
    """One variant in one world, a line for each size."""
    lines, bandwidths = [], []
    for size, calls in by_size.items():
        seconds = statistics.median(calls)
        bandwidths.append(bus_bandwidth(size, seconds, world))
        columns = f"{size:12d}  {size // ELEMENT:12d}  {'float':>8s}  {'sum':>6s}  {1e6 * seconds:10.1f}"
        lines.append(f"{columns}  {1e-9 * size / seconds:8.4f}  {bandwidths[-1]:8.4f}")
    average = statistics.fmean(bandwidths)
    return "\n".join([f"# {title}", HEADER, *lines, f"# Avg bus bandwidth    : {average:.4f}"])


def text_of(worlds: dict[int, Times], result: Result) -> str:
    return "\n#\n".join(
        section(f"{world} ranks, {title_of(variant, result)}", by_size, world)
        for world, times in worlds.items()
        for variant, by_size in times.items()
    )


def make_table(result: Result) -> Table:
    """The table; for a page only its bus bandwidths, the variants side by side."""
    worlds = all_reduces.times_by_world(result)
    variants = list(next(iter(worlds.values())))
    rows = [
        [str(world), size_label(size), *(f"{bus_bandwidth(size, statistics.median(by_size[size]), world):.4f}"
                                         for by_size in times.values())]
        for world, times in worlds.items()
        for size in times[variants[0]]
    ]  # fmt: skip
    cores = result.provenance["cores"]
    crowded = f" The ranks share {cores} cores." if result.provenance["device"] == "cpu" and max(worlds) > cores else ""
    return Table(
        title="Bus bandwidth of all-reduces, in GB/s",
        columns=["ranks", "size", *(title_of(variant, result) for variant in variants)],
        rows=rows,
        text=text_of(worlds, result),
        results=[result],
        note="2(N-1)/N · S / time for S bytes among N ranks, as nccl-tests counts, from medians of calls that all "
        f"ranks begin together, of the slowest rank.{crowded}{left_out(all_reduces.COMPARED, worlds[min(worlds)])}",
    )


main = script.main(__name__, __doc__, script.one_each(all_reduces.COLLECTIVES, all_reduces.PARAMETERS, make_table))
