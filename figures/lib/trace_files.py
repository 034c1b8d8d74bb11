"""Reads the Chrome traces that benchmarks write with --trace (common/ddp/simulation/timeline_file.h)."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures.lib.result_files import ResultError

_PROCESS = re.compile(r"(?:(?P<group>.+), )?rank (?P<rank>\d+)")


@dataclass(frozen=True)
class Span:
    """What a rank did in one interval, in milliseconds."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True)
class Operation(Span):
    """A use of the network: `launched` is when the rank launched it."""

    launched: float
    bytes: int


@dataclass
class RankTimeline:
    """One rank of one group; everything is in order of its beginning."""

    compute: list[Span] = field(default_factory=list)
    communication: list[Operation] = field(default_factory=list)
    moments: dict[str, float] = field(default_factory=dict)


def load_trace(file: Path) -> dict[str, list[RankTimeline]]:
    """The ranks' timelines, rank 0 first, by the name of their group."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultError(f"{file}: cannot be read: {error.strerror}; run the benchmark again") from None
    except ValueError as error:  # JSON and UTF-8 errors
        raise _error(file, f"is not JSON ({error})") from None
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list):
        raise _error(file, "is not a Chrome trace: it has no list of traceEvents")
    processes: dict[int, RankTimeline] = defaultdict(RankTimeline)
    names: dict[int, str] = {}
    for number, event in enumerate(events):
        try:
            _add(event, processes, names)
        except (KeyError, TypeError, ValueError) as error:
            raise _error(file, f"has a broken event, number {number} ({error!r})") from None
    return _by_group(file, processes, names)


def _add(event: dict[str, Any], processes: dict[int, RankTimeline], names: dict[int, str]) -> None:
    phase, process = event["ph"], event["pid"]
    if phase == "M" and event["name"] == "process_name":
        names[process] = event["args"]["name"]
    elif phase == "i":
        processes[process].moments[event["name"]] = _milliseconds(event["ts"])
    elif phase == "X":
        begin = _milliseconds(event["ts"])
        end = begin + _milliseconds(event["dur"])
        if event["cat"] == "communication":
            arguments = event["args"]
            operation = Operation(
                event["name"], begin, end, _milliseconds(arguments["launched"]), int(arguments["bytes"])
            )
            processes[process].communication.append(operation)
        else:
            processes[process].compute.append(Span(event["name"], begin, end))


def _milliseconds(microseconds: Any) -> float:
    if not isinstance(microseconds, (int, float)) or microseconds < 0:
        raise ValueError(f"{microseconds!r} is no time")
    return microseconds / 1e3


def _by_group(file: Path, processes: dict[int, RankTimeline], names: dict[int, str]) -> dict[str, list[RankTimeline]]:
    groups: dict[str, dict[int, RankTimeline]] = defaultdict(dict)
    for process, timeline in processes.items():
        match = _PROCESS.fullmatch(names.get(process, ""))
        if not match:
            raise _error(file, f"has events of process {process}, whose name gives no rank")
        groups[match["group"] or ""][int(match["rank"])] = timeline
    for group, ranks in groups.items():
        if sorted(ranks) != list(range(len(ranks))):
            raise _error(file, f"has ranks {sorted(ranks)} of {group}, and lacks others")
        for timeline in ranks.values():
            timeline.compute.sort(key=lambda span: (span.begin, -span.end))
            timeline.communication.sort(key=lambda operation: (operation.begin, operation.end))
    return {group: [ranks[rank] for rank in sorted(ranks)] for group, ranks in groups.items()}


def _error(file: Path, problem: str) -> ResultError:
    return ResultError(f"{file}: {problem}; delete it and its result, and run the benchmark again")
