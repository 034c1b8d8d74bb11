"""Sets time and bandwidth of all-reduces over message and world size, with the columns of nccl-tests.

Reads one result file of the benchmark collectives. nccl-tests prints the mean of back-to-back calls; these are medians
of calls that all ranks begin together, on the slowest rank.
"""

from __future__ import annotations

import pandas as pd

from figures.lib import script
from figures.lib.all_reduces import COLLECTIVES, COMPARED, bus_bandwidth, collectives_times, size_label, title_of
from figures.lib.result_files import left_out
from figures.lib.tables import Table

ELEMENT = 4  # bytes of a float32
HEADER = (
    "#       size         count      type   redop        time     algbw     busbw\n"
    "#        (B)    (elements)                          (us)    (GB/s)    (GB/s)"
)


def section(title: str, rows: pd.DataFrame) -> str:
    """One variant in one world, a line for each size."""
    lines = [f"# {title}", HEADER]
    for row in rows.itertuples():
        columns = f"{row.bytes:12d}  {row.bytes // ELEMENT:12d}  {'float':>8s}  {'sum':>6s}  {1e6 * row.median:10.1f}"
        lines.append(f"{columns}  {1e-9 * row.bytes / row.median:8.4f}  {row.bandwidth:8.4f}")
    return "\n".join([*lines, f"# Avg bus bandwidth    : {rows['bandwidth'].mean():.4f}"])


def make_table(result: pd.DataFrame) -> Table:
    """The table; for a page only its bus bandwidths, the variants side by side."""
    times = collectives_times(result).reset_index()
    times["bandwidth"] = bus_bandwidth(times["bytes"], times["median"], times["world_size"])
    text = "\n#\n".join(
        section(f"{world} ranks, {title_of(variant, result)}", rows)
        for (world, variant), rows in times.groupby(["world_size", "variant"], sort=False)
    )
    variants = list(times["variant"].unique())
    wide = times.pivot(index=["world_size", "bytes"], columns="variant", values="bandwidth")[variants]
    rows = [[str(world), size_label(size), *map("{:.4f}".format, row)] for (world, size), row in wide.iterrows()]
    cores, device = (result.attrs["provenance"][name] for name in ("cores", "device"))
    crowded = f" The ranks share {cores} cores." if device == "cpu" and times["world_size"].max() > cores else ""
    return Table(
        title="Bus bandwidth of all-reduces, in GB/s",
        columns=["ranks", "size", *(title_of(variant, result) for variant in variants)],
        rows=rows,
        text=text,
        results=[result],
        note="2(N-1)/N · S / time for S bytes among N ranks, as nccl-tests counts, from medians of calls that all "
        f"ranks begin together, of the slowest rank.{crowded}{left_out(COMPARED, variants)}",
    )


main = script.main(__name__, __doc__, script.one_each(COLLECTIVES, make_table))
