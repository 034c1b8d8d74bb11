"""Failures with one cause. One slip often fails many tests, each with the same words: they are shown as one block."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tools.grading.scoring.results import TestResult

_ENDING = re.compile(r"^(?:in .*: )?rank \d+ (threw an exception|died|hung): (.*)", re.MULTILINE)
_PLACE = re.compile(r"^\s+at (\S+\.(?:cpp|h):\d+)", re.MULTILINE)  # of the innermost frame of the student's
_BEFORE = re.compile(r"^in \".*?\" \(\d+ ranks?\)(, late callbacks)?: (rank \d+(, step \d+)?: )?")
_WRONG = re.compile(r": ([^:\n]+) is wrong\n\s*diagnosis: (.*)")


def cause(failure: str) -> str:
    """What two failures of one stage have in common if they have one cause: where and how a rank ended, or which tensor
    is wrong by which factor, or else the words of the first line, without the scenario, rank and step."""
    if ended := _ENDING.search(failure):
        place = _PLACE.search(failure, ended.end())
        return f"{ended[1]} {place[1] if place else ended[2]}"
    wrong = _WRONG.search(failure)
    return f"{wrong[1]}: {wrong[2]}" if wrong else _BEFORE.sub("", failure.partition("\n")[0])


def blocks(failed: Iterable[TestResult]) -> list[list[TestResult]]:
    """Those with one cause together, what broke off a rank first: it may be all that is wrong."""
    found: dict[str, list[TestResult]] = {}
    for result in failed:
        text = result.failures[0] if result.failures else ""
        found.setdefault(cause(text) or f"of its own: {result.spec.name}", []).append(result)
    return sorted(found.values(), key=lambda block: not died(block[0]))


def died(result: TestResult) -> bool:
    return any(re.search(r"\brank \d+ (died|hung)\b", failure) for failure in result.failures)
