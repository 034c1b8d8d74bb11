"""Draws what a program prints on a terminal, read from standard input, as an SVG: docs/scorecard.svg.

python3 -m tools.checking.mutants 03_bucketed_ddp one_launch_a_hook assignments/03_bucketed_ddp
script -qec "stty cols 110; make test STAGE=03" /dev/null >build/shown
python3 -m tools.report.terminal_picture <build/shown >docs/scorecard.svg
git checkout assignments
"""

from __future__ import annotations

import argparse
import re
import sys
from html import escape

FONT, LINE, CHARACTER, MARGIN = 14, 20, 8.43, 20  # pixels
COLOURS = {"31": "#f47067", "32": "#6bc46d", "33": "#daaa3f", "36": "#56d4dd", "2": "#8b949e", "1": "#ffffff"}
_STYLED = re.compile(r"\033\[([\d;]*)m")


def lines_of(text: str) -> list[str]:
    """From the scorecard's first on, without make's own; a status line is drawn over."""
    lines = [line.rstrip("\r").rpartition("\033[K")[2] for line in text.split("\n")]
    start = next((number for number, line in enumerate(lines) if "ddp-lab" in line), 0)
    return [line for line in lines[start:] if not line.startswith("make: ")]


def spans(line: str) -> str:
    """As SVG; parts alternate between text and the codes of the style that follows."""
    first, *rest = _STYLED.split(line.replace(" ", "\N{NO-BREAK SPACE}"))  # browsers collapse others
    drawn = [escape(first)]
    for codes, text in zip(rest[::2], rest[1::2], strict=True):
        colour = next((COLOURS[code] for code in reversed(codes.split(";")) if code in COLOURS), "")
        drawn.append(f'<tspan fill="{colour}">{escape(text)}</tspan>' if colour else escape(text))
    return "".join(drawn)


def picture(lines: list[str]) -> str:
    width = 2 * MARGIN + CHARACTER * max(len(_STYLED.sub("", line)) for line in lines)
    height = 2 * MARGIN + LINE * len(lines)
    rows = (f'<text x="{MARGIN}" y="{MARGIN + LINE * number + FONT}">{spans(line)}</text>'
            for number, line in enumerate(lines) if line)  # fmt: skip
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}"'
            f' font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{FONT}" fill="#d0d7de">',
            '<rect width="100%" height="100%" rx="8" fill="#161b22"/>',
            *rows,
            "</svg>\n",
        ]
    )


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(picture(lines_of(sys.stdin.buffer.read().decode().strip())), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
