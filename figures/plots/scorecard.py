"""Draws a scorecard, as `make test` prints it into a pipe, as a picture for the README.

make test IMPL=solutions STAGE=02 | python figures/plots/scorecard.py --out docs
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BACKGROUND = "#1E1E1E"
TEXT = "#D4D4D4"
COLOURS = {
    "✔": "#6CC26C",
    "✘": "#F07070",
    "○": "#E0C060",
    "–": "#8C8C8C",
}  # the marks of tools/grading/scorecard.py
FONT_SIZE = 8
LINE_HEIGHT = 0.165  # inches at that size
CHARACTER_WIDTH = 0.0675


def colour_of(line: str) -> str:
    return COLOURS.get(line.lstrip()[:1], TEXT)


def draw(lines: list[str]) -> plt.Figure:
    width = max(len(line) for line in lines) * CHARACTER_WIDTH + 0.4
    height = len(lines) * LINE_HEIGHT + 0.4
    figure = plt.figure(figsize=(width, height), facecolor=BACKGROUND)
    for row, line in enumerate(lines):
        top = 1 - (0.2 + (row + 0.5) * LINE_HEIGHT) / height
        figure.text(
            0.2 / width, top, line, family="DejaVu Sans Mono", fontsize=FONT_SIZE, color=colour_of(line), va="center"
        )
    return figure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("figures/gallery"), help="folder of the picture")
    options = parser.parse_args()
    lines = sys.stdin.read().rstrip("\n").splitlines()
    if not lines:
        print("no scorecard on standard input; see --help", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    draw(lines).savefig(options.out / "scorecard.png", dpi=150, facecolor=BACKGROUND)
    print(f"wrote {options.out / 'scorecard.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
