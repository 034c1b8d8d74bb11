"""What all figures share: size, type, colours, provenance, and how they are saved."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend must be chosen first)
from matplotlib.figure import Figure  # noqa: E402

from result_files import Result, ResultError  # noqa: E402

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
    for field in ("implementation", "preset"):
        different = list(dict.fromkeys(result.provenance[field] for result in results))
        if len(different) > 1:
            raise ResultError(f"the files mix {field}: {', '.join(different)}; give files that agree in it")
    dates = sorted({result.provenance["date"][:10] for result in results})
    parts = [
        _each(results, _machine),
        _each(results, lambda provenance: f"torch {provenance['torch']}, {provenance['backend']}"),
        _each(results, lambda provenance: f"{provenance['implementation']}, {provenance['preset']} preset"),
        "seed " + _each(results, lambda provenance: str(provenance["seed"])),
        "commit " + _each(results, lambda provenance: provenance["commit"][:8]),
        " to ".join(dict.fromkeys((dates[0], dates[-1]))),
    ]
    figure.text(0.995, 0.008, " · ".join(parts), ha="right", va="bottom", fontsize=5.5, color="#666666")
    # All but the command line, which has paths of the machine in it.
    figure.provenance = [
        {field: value for field, value in result.provenance.items() if field != "command"} for result in results
    ]


def _each(results: list[Result], say: Callable[[dict[str, Any]], str]) -> str:
    """What is said of the results: once where it is the same of all."""
    return " and ".join(dict.fromkeys(say(result.provenance) for result in results))


def _machine(provenance: dict[str, Any]) -> str:
    device = provenance["gpu"] if provenance["device"] == "cuda" else provenance["cpu"]
    return f"{device}, {provenance['cores']} cores"


def _metadata(figure: Figure, name: str, kind: str) -> dict[str, str | None]:
    """For the file itself. The same data give the same bytes, so there is no time of creation in it."""
    if kind == "pdf":
        return {"CreationDate": None}
    document = {"kind": "figure", "name": name, "provenance": getattr(figure, "provenance", [])}
    return {METADATA_KEY: json.dumps(document)}


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes name.png and name.pdf, each whole or not at all.

    The PNG says in its metadata, as text named `METADATA_KEY`, what add_provenance was told: the writeup reads it there,
    so that renaming a file does not make it another implementation's or preset's.
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
