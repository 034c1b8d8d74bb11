"""Timelines as the lab's programs write them, in Chrome's format: TRACE= of `make test`, and the benchmark timeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from figures.lib.result_files import ResultError

COMPUTE, COMMUNICATION, MOMENT = "compute", "communication", "moment"  # kinds of events


def load_trace(file: Path) -> pd.DataFrame:
    """A row for each event: group, rank, kind (one of the three above), name, begin and end in milliseconds; of
    communication also when it was launched, and its bytes."""
    try:
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        rows = [trace_row(event, names[event["pid"]]) for event in events if event["ph"] in ("i", "X")]
    except (OSError, KeyError, TypeError, ValueError) as error:  # of JSON, too
        raise ResultError(f"{file}: is no trace ({error!r}); delete it and its result, and run it again") from None
    return pd.DataFrame(rows).sort_values(["begin", "end"], ascending=[True, False], kind="stable")


def trace_row(event: dict[str, Any], process: str) -> dict[str, Any]:
    group, _, rank = process.rpartition("rank ")
    kind = MOMENT if event["ph"] == "i" else COMMUNICATION if event["cat"] == COMMUNICATION else COMPUTE
    begin, arguments = event["ts"] / 1e3, event.get("args", {})
    times = {"begin": begin, "end": begin + event.get("dur", 0) / 1e3, "launched": arguments.get("launched", 0) / 1e3}
    whose = {"group": group.removesuffix(", "), "rank": int(rank), "kind": kind, "name": event["name"]}
    return {**whose, **times, "bytes": arguments.get("bytes", 0)}
