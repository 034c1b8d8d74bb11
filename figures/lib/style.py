"""What all figures share: size, type, colours, provenance, and how they are saved."""

from __future__ import annotations

import json
import os
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend must be chosen first)
from matplotlib.figure import Figure  # noqa: E402

from figures.lib import provenance  # noqa: E402
from figures.lib.result_files import Result  # noqa: E402

# Okabe and Ito's palette: told apart with any kind of colour vision, and in grey by lightness.
BLUE = "#0072B2"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
ORANGE = "#E69F00"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#8C8C8C"

METADATA_KEY = "ddp-lab"  # of a PNG's text that says where its numbers come from

TEXT_WIDTH = 6.3  # inches: the text of an A4 or Letter page, so that type keeps its size in print


def use_style() -> None:
    plt.rcParams.update(
        {
            "font.family": "DejaVu Sans",
            "font.size": 8,
            "axes.titlesize": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "grid.color": "#DDDDDD",
            "grid.linewidth": 0.6,
            "legend.frameon": False,
            "figure.dpi": 100,
            "savefig.dpi": 300,
            "pdf.fonttype": 42,  # text stays text
        }
    )


def add_caption(figure: Figure, text: str, results: list[Result]) -> None:
    """What a reader must know, in the lower left corner, above where the numbers come from."""
    figure.text(0.01, 0.2 / figure.get_figheight(), text, fontsize=6.5, va="bottom")
    add_provenance(figure, results)


def add_provenance(figure: Figure, results: list[Result]) -> None:
    """Says in the lower right corner where the numbers come from, and keeps it for the file (see `save`)."""
    figure.text(0.995, 0.008, provenance.in_words(results), ha="right", va="bottom", fontsize=5.5, color="#666666")
    # All but the command line, which has paths of the machine in it.
    figure.provenance = [
        {field: value for field, value in result.provenance.items() if field != "command"} for result in results
    ]


def _metadata(figure: Figure, name: str, kind: str) -> dict[str, str | None]:
    """For the file itself. The same data give the same bytes, so there is no time of creation in it."""
    if kind == "pdf":
        return {"CreationDate": None}
    document = {"kind": "figure", "name": name, "provenance": getattr(figure, "provenance", [])}
    return {METADATA_KEY: json.dumps(document)}


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes name.png and name.pdf, each whole or not at all.

    The PNG says in its metadata, as text named `METADATA_KEY`, what add_provenance was told: the writeup reads it
    there, so that renaming a file does not make it another implementation's or preset's.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for kind in ("png", "pdf"):
        file = folder / f"{name}.{kind}"
        temporary = folder / f".{name}.{os.getpid()}.{kind}"
        try:
            figure.savefig(temporary, metadata=_metadata(figure, name, kind))
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
        files.append(file)
    plt.close(figure)
    return files
