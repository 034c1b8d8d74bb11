"""What the figures of stage 05 share: how each all-reduce looks and what it is called, and sizes as people say them."""

from __future__ import annotations

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

import style
from result_files import Result

RING = "ring"
COLOURS = {
    RING: style.BLUE,
    "pipelined ring": style.SKY,
    "butterfly": style.ORANGE,
    "recursive doubling": style.GREEN,
    "tree": style.PURPLE,
    "all_reduce": style.VERMILION,
}
MARKERS = {
    RING: "o",
    "pipelined ring": "D",
    "butterfly": "s",
    "recursive doubling": "^",
    "tree": "v",
    "all_reduce": "X",
}


def title_of(variant: str, result: Result) -> str:
    """The group's own all-reduce is its backend's."""
    if variant != "all_reduce":
        return variant
    backend = result.provenance["backend"]
    return f"{backend.upper() if backend == 'nccl' else backend.capitalize()}'s all_reduce"


def size_label(size: float) -> str:
    """1048576 is 1 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB"


def write_plain_numbers(axis: Axis) -> None:
    """0.5 instead of 5 × 10⁻¹, on a logarithmic axis of a few decades."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
