"""Draws the two pictures of docs/architecture.md into docs/pictures: who includes whom (includes.svg), as the files
say, and what happens in `make test` (make_test.svg).

    python3 -m tools.checking.pictures

A test holds the committed pictures to be what this draws.
"""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path
from typing import NamedTuple

from tools.checking.includes import Use, uses_in
from tools.setup.toolchain import ROOT

FOLDER = ROOT / "docs" / "pictures"
WIDTH, HEIGHT, ROW = 156, 26, 74  # pixels: of a box, and from one row to the next
FILLS = {"common": "#dceaf7", "assignments": "#fbe8c8", "solutions": "#fbe8c8", "tests": "#e3f1df",
         "benchmarks": "#f3e1ee", "figures": "#f3e1ee", "tools": "#e8e8e8"}  # fmt: skip


class Box(NamedTuple):
    x: float  # of its middle
    y: float
    lines: tuple[str, ...]
    fill: str


def room_of(file: str) -> str:
    """Its folder; those of stages are one, and so are those of experiments, and what is in a room of some others."""
    folder = re.sub(r"experiments/.*", "experiments/*", re.sub(r"/\d\d_\w+", "/0N_*", str(Path(file).parent)))
    return re.sub(r"(grading|backends|models)/.*", r"\1", folder)


def needed_rooms(uses: list[Use]) -> dict[str, set[str]]:
    """Of each room those that it includes, but not what these include themselves."""
    direct: dict[str, set[str]] = {}
    for use in uses:
        user, used = room_of(use.file), room_of(use.target)
        if user != used:
            direct.setdefault(user, set()).add(used)
            direct.setdefault(used, set())
    below: dict[str, set[str]] = {}
    for room in TopologicalSorter(direct).static_order():
        below[room] = direct[room].union(*(below[other] for other in direct[room]))
    return {room: {one for one in used if not any(one in below[other] for other in used)}
            for room, used in direct.items()}  # fmt: skip


def rows_of(graph: dict[str, set[str]]) -> list[list[str]]:
    """The rooms by height, from the bottom up; in a row, each near to what it includes."""
    height: dict[str, int] = {}
    place: dict[str, float] = {}
    for room in TopologicalSorter(graph).static_order():
        height[room] = 1 + max((height[other] for other in graph[room]), default=-1)
    rows = [sorted(room for room in graph if height[room] == level) for level in range(1 + max(height.values()))]
    for row in rows:
        row.sort(key=lambda room: (sum(place[other] for other in graph[room]) / max(1, len(graph[room])), room))
        place |= {room: (number + 0.5) / len(row) for number, room in enumerate(row)}
    return rows


def includes_picture() -> str:
    uses = uses_in(ROOT)
    boxes: dict[str, Box] = {}
    arrows, left = [], 0.0
    for ending in (".py", ""):  # what has nothing to do with each other stands side by side
        graph = needed_rooms([use for use in uses if use.file.endswith(".py") == (ending == ".py")])
        rows = rows_of(graph)
        width = max(map(len, rows)) * (WIDTH + 12)
        for level, row in enumerate(rows):
            for number, room in enumerate(row):
                x = left + (number + 0.5) * width / len(row)
                boxes[room + ending] = Box(x, -level * ROW, (room,), FILLS[room.partition("/")[0]])
        arrows += [(boxes[user + ending], boxes[used + ending]) for user in graph for used in sorted(graph[user])]
        left += width + 30
    return svg(list(boxes.values()), arrows)


# What happens in `make test`: a column for each process, and a line for each step, with the file that does it.
COLUMNS = ("make", "the grader", "the test program: a referee", "a rank, one of several")
STEPS: tuple[tuple[int, str, str, tuple[int, ...]], ...] = (  # column, what, file, and the steps that it goes on with
    (0, "installs, configures", "tools/setup/setup.py", (1,)),
    (1, "which stages, which tests", "tools/grading/grade.py", (2,)),
    (1, "builds each stage apart", "tools/grading/compiling/building.py", (3,)),
    (1, "starts tests_0N, reads its records", "tools/grading/running/runner.py", (4,)),
    (2, "runs each body of a test", "tests/support/runs.cpp", (5,)),
    (2, "forks the ranks, and is their network", "common/ddp/ranks/supervisor.cpp", (6,)),
    (3, "loads libstage.so", "common/ddp/ranks/stage_library.cpp", (7,)),
    (3, "posts what the stage does", "common/ddp/referee/client.cpp", (8,)),
    (2, "moves data, keeps the evidence", "common/ddp/referee/referee.cpp", (7, 9)),
    (2, "judges claims on the evidence", "tests/support/judge.cpp", (10,)),
    (2, "a record of each verdict", "tests/support/grading.cpp", (11,)),
    (1, "accepts records that fit", "tools/grading/running/records.py", (12,)),
    (1, "scores, results.json", "tools/grading/scoring/results.py", (13,)),
    (1, "the scorecard", "tools/grading/scorecard.py", ()),
)


def make_test_picture() -> str:
    heads = [Box(column * 250, 0, (name,), "none") for column, name in enumerate(COLUMNS)]
    boxes = [Box(column * 250, 50 + 52 * row, step, FILLS["common"]) for row, (column, *step, _) in enumerate(STEPS)]
    arrows = [(box, boxes[after]) for box, step in zip(boxes, STEPS) for after in step[3]]
    return svg(heads + boxes, arrows, width=220)


def svg(boxes: list[Box], arrows: list[tuple[Box, Box]], width: int = WIDTH) -> str:
    left, right = min(box.x for box in boxes) - width / 2 - 8, max(box.x for box in boxes) + width / 2 + 8
    top, bottom = min(box.y for box in boxes) - 30, max(box.y for box in boxes) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:g} {top:g} {right - left:g} {bottom - top:g}" '
        'font-family="sans-serif" font-size="11" text-anchor="middle">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>',
        f'<rect x="{left:g}" y="{top:g}" width="{right - left:g}" height="{bottom - top:g}" fill="white"/>',
    ]
    parts += [_arrow(*arrow, width) for arrow in arrows]
    for box in boxes:
        height = HEIGHT + 12 * (len(box.lines) - 1)
        if box.fill != "none":
            parts.append(
                f'<rect x="{box.x - width / 2:g}" y="{box.y - height / 2:g}" width="{width}" height="{height}" rx="4" '
                f'fill="{box.fill}" stroke="#777"/>'
            )
        parts += [
            f'<text x="{box.x:g}" y="{box.y + 4 + 13 * (number - (len(box.lines) - 1) / 2):g}">{escape(line)}</text>'
            for number, line in enumerate(box.lines)
        ]
    return "\n".join([*parts, "</svg>\n"])


def _arrow(user: Box, used: Box, width: int) -> str:
    half = HEIGHT / 2 + 6 * (len(user.lines) - 1)
    down = half if used.y > user.y else -half
    x1, y1, x2, y2 = user.x, user.y + down, used.x, used.y - down
    bend = 0.4 * (y2 - y1)
    return (f'<path d="M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}" fill="none" '
            'stroke="#555" marker-end="url(#tip)"/>')  # fmt: skip


PICTURES = {"includes": includes_picture, "make_test": make_test_picture}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")
        print(f"wrote {FOLDER / name}.svg")
