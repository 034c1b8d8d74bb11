"""What all figures share: size, type, colours, provenance, and how they are saved."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from figures.lib.result_files import provenance_in_words, write_whole

# Okabe and Ito's palette: distinct with any kind of colour vision, and in grey by lightness.
BLUE = "#0072B2"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
ORANGE = "#E69F00"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#8C8C8C"

# Of several lines that have no look of their own, such as a sequence length's.
LINE_LOOKS = [
    {"color": color, "marker": marker}
    for color, marker in zip((VERMILION, BLUE, GREEN, PURPLE, ORANGE, SKY), ("o", "s", "^", "D", "v", "P"))
]

METADATA_KEY = "ddp-lab"  # of the text in a PNG that says where its numbers come from

CAPTION_WIDTH = 128  # characters; as many as fit TEXT_WIDTH
LINE_HEIGHT, PROVENANCE_HEIGHT = 0.11, 0.2  # inches; of a caption's line, and below them
TEXT_WIDTH = 6.3  # inches: as wide as the text of an A4 or Letter page, so that type keeps its size in print


def use_style() -> None:
    plt.rcParams.update(
        {
            "font.family": "DejaVu Sans", "font.size": 8, "axes.titlesize": 9, "axes.spines.top": False,
            "axes.spines.right": False, "axes.axisbelow": True, "grid.color": "#DDDDDD", "grid.linewidth": 0.6,
            "legend.frameon": False, "figure.dpi": 100, "savefig.dpi": 300, "pdf.fonttype": 42,  # text stays text
        }
    )  # fmt: skip


def panels(height: float, rows: int = 1, columns: int = 1, **choices: Any) -> tuple[Figure, Any]:
    """A figure of the text's width, and its axes, as plt.subplots() gives them."""
    use_style()
    return plt.subplots(rows, columns, figsize=(TEXT_WIDTH, height), layout="constrained", **choices)


def dress(axes: Axes, title: str = "", x: str = "", y: str = "", grid: Literal["x", "y", "both"] = "both") -> None:
    """A panel's title, the names of its axes, and its grid."""
    axes.set_title(title, loc="left")
    axes.set(xlabel=x, ylabel=y)
    axes.grid(axis=grid)


def legend(figure: Figure, entries: dict[str, dict[str, Any]], loc: str = "outside upper left", **choices: Any) -> None:
    """The look of each entry, by name: one with a facecolor is a box, others are lines. In one row, unless asked."""
    handles = [
        Patch(label=name, **look) if "facecolor" in look else Line2D([], [], label=name, **look)
        for name, look in entries.items()
    ]
    figure.legend(handles=handles, loc=loc, **{"ncols": len(handles), "fontsize": 7, "columnspacing": 1.3} | choices)


def log_axis(axes: Axes, at: Iterable[float], name: Callable[[float], str] = "{:g}".format, base: int = 2) -> None:
    """Makes the x axis logarithmic, with ticks at these places alone."""
    axes.set_xscale("log", base=base)
    axes.xaxis.set_major_locator(FixedLocator(list(at)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: name(value)))


def write_plain_numbers(axis: Axis, decades: int = 2) -> None:
    """Labels a logarithmic axis with 0.5 instead of 5 × 10⁻¹; beyond so many decades with powers of 10 alone."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 10**decades * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def size_in_words(size: float) -> str:
    """Bytes in their shortest readable form: 1048576 is 1 MiB."""
    for unit, bytes_of_it in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= bytes_of_it:
            return f"{size / bytes_of_it:.3g} {unit}"
    return f"{size:.0f} B"


def add_caption(figure: Figure, text: str, results: list[pd.DataFrame]) -> Figure:
    """Writes what is drawn in the lower left corner, above the provenance; long lines are broken. The figure's
    constrained layout leaves room for it, as it does by itself for a legend that is `outside`. Returns the figure."""
    text = "\n".join(textwrap.fill(line, CAPTION_WIDTH, break_on_hyphens=False) for line in text.split("\n"))
    room = (PROVENANCE_HEIGHT + LINE_HEIGHT * len(text.splitlines())) / figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, room, 1, 1 - room))
    figure.text(0.01, PROVENANCE_HEIGHT / figure.get_figheight(), text, fontsize=6.5, va="bottom")
    add_provenance(figure, results)
    return figure


def add_provenance(figure: Figure, results: list[pd.DataFrame]) -> None:
    """Writes in the lower right corner where the numbers come from, and keeps it for the file (see `save`)."""
    figure.text(0.995, 0.008, provenance_in_words(results), ha="right", va="bottom", fontsize=5.5, color="#666666")
    # All but the command line, which contains paths of the machine.
    of_all = [result.attrs["provenance"] for result in results]
    figure.provenance = [{field: value for field, value in of.items() if field != "command"} for of in of_all]


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes name.png and name.pdf, each whole or not at all. The PNG's metadata has the provenance, as text named
    `METADATA_KEY`, where the writeup reads it: a renamed file does not pass for another implementation's."""
    document = {"kind": "figure", "name": name, "provenance": getattr(figure, "provenance", [])}
    # Neither has a creation time, so that the same data give the same bytes.
    metadata = {"png": {METADATA_KEY: json.dumps(document)}, "pdf": {"CreationDate": None}}
    files = [
        write_whole(folder / f"{name}.{kind}", lambda file, about=about: figure.savefig(file, metadata=about))
        for kind, about in metadata.items()
    ]
    plt.close(figure)
    return files
