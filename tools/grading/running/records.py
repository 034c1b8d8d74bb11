"""The record stream of a test program: JSON lines that say which test started and how it ended.

Only this stream decides scores. The program hides it from the student's code; if that code finds it nevertheless, a
verdict that does not fit (twice, out of turn, malformed) fails the test it concerns, and earns nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable

from tools.grading.scoring.results import Broken, Status, TestResult
from tools.grading.stages import short_paths

MAX_LINE = 1 << 20
MAX_TEXT = 1 << 16  # of one failure
DISTURBED = "Something other than the grader wrote into the record of this run, so this test's verdict does not count."
_FINAL = {status.value: status for status in (*Status,) if status is not Status.NOT_RUN}


class Records:
    """Fills in `results`, in place, from the bytes of the stream; calls `on_change` for each started or ended test."""

    def __init__(self, results: list[TestResult], on_change: Callable[[TestResult], None]) -> None:
        self._results = {result.spec.name: result for result in results}
        self._on_change = on_change
        self._started: set[str] = set()
        self._ended: set[str] = set()
        self._disturbed: set[str] = set()
        self._current = ""
        self._pending = b""
        self._skipping = False
        self.run_finished = False
        self.activity: dict[str, list[object]] = {}  # by scenario: tests/grader/minimum_activity.h
        self.unpaid: list[str] | None = None  # scenarios that nobody fails for: tests/grader/grading.cpp
        self.count = 0  # of valid records: a measure of progress

    def feed(self, data: bytes) -> None:
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self._line(b"" if self._skipping else line)
            self._skipping = False
        if len(self._pending) > MAX_LINE:
            self._pending, self._skipping = b"", True

    def close(self, reason: str) -> None:
        """Ends the stream. Without a run_finished record, the running test has failed for this reason."""
        if self._pending:
            self._line(self._pending)
        if self._current:
            self._end(self._results[self._current], Status.FAILED, [reason])
            reason = f"not run: {reason}"
        for result in self._results.values():
            if result.status is Status.NOT_RUN:
                result.failures = [reason]

    def distrust(self, reason: str) -> None:
        """Discards all verdicts: the program did not end as its records say."""
        for name in self._ended:
            self._fail(self._results[name], reason)

    def _line(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            handler = {
                "test_started": self._test_started,
                "scenario_ended": lambda _: bool(self._current),
                "test_finished": self._test_finished,
                "run_finished": self._run_finished,
            }[record["event"]]
            in_order = handler(record)
        except (ArithmeticError, ValueError, KeyError, TypeError, RecursionError):
            in_order, record = False, {}
        if in_order:
            self.count += 1
            return
        self._disturb(self._current)
        if isinstance(record, dict):
            self._disturb(record.get("name"))

    def _test_started(self, record: dict) -> bool:
        name = record["name"]
        if self._current or self.run_finished or name in self._started or name not in self._results:
            return False
        self._current = name
        self._started.add(name)
        self._on_change(self._results[name])
        return True

    def _test_finished(self, record: dict) -> bool:
        if not self._current or record["name"] != self._current:
            return False
        status, seconds = _FINAL[record["status"]], _finite(record.get("seconds", 0))
        failures, notes = _texts(record.get("failures", [])), _texts(record.get("notes", []))
        result = self._results[self._current]
        result.seconds, result.notes, result.scenarios = seconds, notes, _texts(record.get("scenarios", []))
        result.runs, result.broken = _runs(record.get("runs", [0, 0])), _broken(record.get("broken", []))
        result.picture = picture if isinstance(picture := record.get("picture"), dict) else None
        self._end(result, status, failures)
        return True

    def _run_finished(self, record: dict) -> bool:
        self.activity, self.unpaid = record.get("activity", {}), record.get("unpaid")
        in_order = not self._current and not self.run_finished
        self.run_finished |= in_order
        return in_order

    def _end(self, result: TestResult, status: Status, failures: list[str]) -> None:
        result.status, result.failures = status, failures
        self._current = ""
        self._ended.add(result.spec.name)
        if result.spec.name in self._disturbed:
            self._fail(result, DISTURBED)
        self._on_change(result)

    def _disturb(self, name: object) -> None:
        if not isinstance(name, str) or name not in self._results:
            return
        self._disturbed.add(name)
        if name in self._ended:
            self._fail(self._results[name], DISTURBED)

    def _fail(self, result: TestResult, reason: str) -> None:
        result.status, result.runs, result.broken, result.picture = Status.FAILED, (0, 0), [], None
        if reason not in result.failures:
            result.failures.append(reason)


def _finite(value: object) -> float:
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise ValueError("a time is a number")
    return number


def _runs(value: object) -> tuple[int, int]:
    holds, judged = value  # type: ignore[misc]
    if not 0 <= int(holds) <= int(judged):
        raise ValueError("a claim holds in no more runs than it is judged on")
    return int(holds), int(judged)


def _broken(value: list[dict]) -> list[Broken]:
    cases = "edge_cases"
    return [Broken(str(each["scenario"]), frozenset(_texts(each[cases])), str(each["charged_to"])) for each in value]


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError("a list of texts is due")
    return [printable(short_paths(str(text))) for text in value]


def printable(text: str, limit: int = MAX_TEXT) -> str:
    """`text`, cut to `limit`, without what terminals or XML files can't take (escape sequences, lone surrogates)."""
    text = text.encode("utf-8", "replace").decode()
    text = re.sub(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\N{REPLACEMENT CHARACTER}", text)
    left_out = len(text) - limit
    return text if left_out <= 0 else f"{text[:limit]}\n[... {left_out} characters left out ...]"
