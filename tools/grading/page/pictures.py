"""Draws one run as inline SVG: a lane for each rank, time to the right, the fault marked.

What is drawn comes with a verdict's record: tests/grader/picture.h has the fields. Colours and type are in
report.html, so that a reader's dark mode and printer have them, too. All texts are escaped; a number that is none is an
error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from itertools import count
from typing import Any

WIDTH, LABEL, MARGIN = 960, 70, 40  # the whole, the lanes' names, and what is left free on the right
ROW, GAP, AXIS = 17, 12, 22  # heights of a row, between lanes, and of the axis of times
CHARACTER = 6.2  # its mean width
MOST_ROWS = 8  # of operations at the same time; more share the last

Record = dict[str, Any]


def charts(picture: Record) -> list[tuple[str, str]]:
    """All charts of a picture on one time axis, each with its caption; what is marked is numbered through them."""
    records = picture["charts"]
    end = max([1, *(int(each["end"]) for each in records)])
    numbers = count(1)
    return [(str(each["caption"]), _Chart(each, end, numbers).draw()) for each in records]


class _Chart:
    """One run of all ranks. `end`: of the time axis, in ns, which charts below each other share."""

    def __init__(self, record: Record, end: int, numbers: Iterator[int]) -> None:
        self._record, self._end, self._numbers = record, end, numbers
        self._scale = (WIDTH - LABEL - MARGIN) / end
        self._places: dict[tuple[int, int], tuple[float, float, float]] = {}  # of operations: x, y, width
        self._middles: list[float] = []  # of lanes
        self._height = float(GAP)

    def draw(self) -> str:
        lanes = [self._lane(number, lane) for number, lane in enumerate(self._record["lanes"])]
        parts = [*lanes, self._axis(), *map(self._arrow, self._record.get("arrows", ()))]
        marks = [self._mark(mark) for mark in self._record.get("marks", ())]
        said = "; ".join(str(mark["text"]) for mark in self._record.get("marks", ())) or "nothing is marked"
        ranks = ", ".join(str(lane["name"]) for lane in self._record["lanes"])
        title = f"{self._record['caption']}: {ranks}, {_time(self._end)}"
        return _svg(self._height + AXIS, title, said, [*parts, *marks])

    def _x(self, ns: object) -> float:
        return LABEL + max(0, min(int(ns), self._end)) * self._scale  # type: ignore[call-overload]

    def _lane(self, number: int, lane: Record) -> str:
        top = self._height
        drawn = [self._scope(scope, top) for scope in lane.get("scopes", ())]
        drawn += [self._box("part", part, top, ROW - 4) for part in lane["parts"]]
        for last in lane["parts"][-1:]:  # such as a finish() without a length: its name fits behind it
            if not _fitting(str(last["name"]), self._width(last)):
                drawn.append(_text("name", self._x(last["end"]) + 3, top + 10, str(last["name"])))
        drawn += [self._box("compute", span, top + ROW - 3, ROW - 4) for span in lane["computing"]]
        bottom = top + 2 * ROW
        ends: list[float] = []
        launches, boxes = [], []  # lines lie behind what else is on their way
        for index, span in enumerate(lane["operations"]):
            row = next((row for row, end in enumerate(ends) if end <= float(span["begin"])), len(ends))
            row = min(row, MOST_ROWS - 1)
            ends[row : row + 1] = [float(span["end"])]
            y = bottom + row * ROW
            kind = "operation" + (" open" if span.get("open") else "") + (" marked" if span.get("marked") else "")
            launches.append(self._launch(span, y))
            boxes.append(self._box(kind, span, y, ROW - 3))
            x = self._x(span["begin"])
            self._places[number, index] = (x, y, self._x(span["end"]) - x)
        self._height = bottom + max(1, len(ends)) * ROW + GAP
        self._middles.append((top + self._height - GAP) / 2)
        name = _text("lane", 4, self._middles[-1] + 4, str(lane["name"]))
        line = f'<line class="between" x1="0" x2="{WIDTH}" y1="{self._height - 6:.1f}" y2="{self._height - 6:.1f}"/>'
        return name + "".join([*drawn, *launches, *boxes]) + line

    def _width(self, span: Record) -> float:
        return self._x(span["end"]) - self._x(span["begin"])

    def _scope(self, scope: Record, top: float) -> str:
        """A NoSync scope, as a band behind its rank's lane."""
        x, width = self._x(scope["begin"]), max(2.0, self._width(scope))
        band = f'<rect class="scope" x="{x:.1f}" y="{top - 4:.1f}" width="{width:.1f}" height="{2 * ROW + 4}"/>'
        return f"<g>{_title('a NoSync scope')}{band}</g>"

    def _box(self, kind: str, span: Record, y: float, height: float) -> str:
        x, width = self._x(span["begin"]), max(1.5, self._width(span))
        name = str(span["name"])
        shown = _fitting(name, width)
        label = _text("name", x + 3, y + height - 3.5, shown) if shown else ""
        rect = f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="2"/>'
        return f"<g>{_title(about(span))}{rect}{label}</g>"

    def _launch(self, span: Record, y: float) -> str:
        """From the launch of an operation to its beginning."""
        x, begin = self._x(span["launched"]), self._x(span["begin"])
        middle = y + (ROW - 3) / 2
        return f'<path class="launch" d="M{x:.1f} {y:.1f}V{y + ROW - 3:.1f}M{x:.1f} {middle:.1f}H{begin:.1f}"/>'

    def _mark(self, mark: Record) -> str:
        lane, operation = int(mark["lane"]), int(mark.get("operation", -1))
        x, y, width = self._places.get((lane, operation), (self._x(mark["at"]), self._middles[lane] - ROW / 2, 0.0))
        number, text = next(self._numbers), str(mark["text"])
        frame = (
            f'<rect class="frame" x="{x - 2:.1f}" y="{y - 2:.1f}" width="{max(width, 4) + 4:.1f}" height="{ROW + 1}"/>'
        )
        at = self._x(mark["at"])
        line = f'<line class="instant" x1="{at:.1f}" x2="{at:.1f}" y1="{y - ROW:.1f}" y2="{y + ROW:.1f}"/>'
        badge = f'<circle class="badge" cx="{at:.1f}" cy="{y - 5:.1f}" r="8"/>' + _text(
            "number", at, y - 1.5, str(number)
        )
        said = _title(f"{number}: {mark['kind']}") + f"<desc>{escape(text)}</desc>"
        return f'<g class="mark" tabindex="0" role="img">{said}{line}{frame}{badge}</g>'

    def _arrow(self, arrow: Record) -> str:
        """A message from one rank to another; or who waits for whom."""
        kind = "waits" if arrow.get("waits") else "message"
        begin, end = self._x(arrow["begin"]), self._x(arrow["end"])
        above, below = self._middles[int(arrow["from"])], self._middles[int(arrow["to"])]
        bend = 0 if kind == "message" else 30 if above < below else -30  # two that wait for each other
        path = (
            f"M{begin:.1f} {above:.1f}Q{(begin + end) / 2 + bend:.1f} {(above + below) / 2:.1f} {end:.1f} {below:.1f}"
        )
        return f'<path class="{kind}" marker-end="url(#{kind}-head)" d="{path}">{_title(str(arrow["text"]))}</path>'

    def _axis(self) -> str:
        drawn = []
        for ns in _ticks(self._end):
            x = self._x(ns)
            drawn.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{self._height:.1f}"/>')
            drawn.append(_text("tick", x, self._height + 14, _time(ns)))
        if bar := self._record.get("bar"):
            x, right = sorted(self._x(bar[side]) for side in ("begin", "end"))
            y = self._height - 6
            box = f'<rect class="difference" x="{x:.1f}" y="{y:.1f}" width="{right - x:.1f}" height="6"/>'
            drawn.append(f"<g>{_title(str(bar['text']))}{box}</g>")
        return "".join(drawn)


def memory(record: Record) -> str:
    """Bytes that a rank holds, one bar for each moment, and the limit as a line."""
    series, limit = record["series"], int(record["limit"])
    highest = max([1, limit, *(int(each["bytes"]) for each in series)])
    height, room = 150.0, (WIDTH - LABEL - MARGIN) / max(1, len(series))
    y = GAP + height * (1 - limit / highest)
    drawn = []
    for number, each in enumerate(series):
        size = int(each["bytes"])
        tall = height * size / highest
        kind = "bytes over" if size > int(each.get("limit", limit)) else "bytes"
        x, width = LABEL + number * room + 1, min(90.0, max(2.0, room - 2))
        bar = (
            f'<rect class="{kind}" x="{x:.1f}" y="{GAP + height - tall:.1f}" width="{width:.1f}" height="{tall:.1f}"/>'
        )
        label = _text("tick", x + width / 2, GAP + height + 14, _fitting(str(each["name"]), room))
        title = _title(f"{each['name']}: {size:,} bytes")
        drawn.append(f'<g tabindex="0">{title}{bar}</g>{label}')
    line = f'<line class="limit" x1="{LABEL}" x2="{WIDTH - MARGIN}" y1="{y:.1f}" y2="{y:.1f}"/>'
    name = _text("lane", 4, y + 4, f"{limit:,}")
    said = f"{record['name']}, of at most {limit:,} bytes"
    return _svg(height + GAP + AXIS, "memory over the step", said, [*drawn, line, name])


def _svg(height: float, title: str, said: str, parts: Iterable[str]) -> str:
    heads = "".join(
        f'<marker id="{kind}-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path class="{kind}-head" d="M0 0L8 4L0 8z"/></marker>'
        for kind in ("message", "waits")
    )
    opened = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" xmlns="http://www.w3.org/2000/svg">'
    return f"{opened}{_title(title)}<desc>{escape(said)}</desc><defs>{heads}</defs>{''.join(parts)}</svg>"


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _fitting(name: str, width: float) -> str:
    """What of a name is shown in this width: its last words, which tell one tensor from another, or "L2" for "layer
    2"."""
    room = int((width - 4) / CHARACTER)
    words = re.sub(r" \([\d,]+ bytes\)$", "", name).split()
    ends = [" ".join(words[first:]) for first in range(len(words)) if not words[first].isdigit()]
    if words[1:] and words[-1].isdigit():
        ends.append(words[-2][0].upper() + words[-1])
    return next((end for end in [name, *ends] if len(end) <= room), "")


def about(span: Record) -> str:
    """What is said on hover, in lines."""
    said = [str(span["name"])]
    if "launched" in span:
        said.append(f"launched at {_time(span['launched'])}")
    said.append(
        f"from {_time(span['begin'])}" + (", never complete" if span.get("open") else f" to {_time(span['end'])}")
    )
    if span.get("bytes"):
        said.append(f"{int(span['bytes']):,} bytes")
    return "\n".join([*said, *filter(None, [str(span.get("line", ""))])])


def _time(ns: object) -> str:
    us = int(ns) / 1e3  # type: ignore[call-overload]
    return f"{us:.4g} µs" if us < 10_000 else f"{us / 1e3:.4g} ms"


def _ticks(end: int) -> list[int]:
    """At most six round times."""
    power = 10 ** (len(str(end)) - 2) if end >= 10 else 1
    step = next(power * factor for factor in (1, 2, 5, 10, 20, 50) if end <= 6 * power * factor)
    return list(range(0, end + 1, step))
