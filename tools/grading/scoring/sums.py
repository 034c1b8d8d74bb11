"""Points of the lab's stages, and of those beyond them (the extension), which are a sum of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sums:
    score: float = 0
    most: float = 0
    extension: float = 0
    most_of_extension: float = 0

    def __str__(self) -> str:
        """Both sums, or the one that there is: "87 of 100 points, extension 12 of 20"."""
        lab = f"{self.score:g} of {self.most:g} points"
        beyond = f"extension {self.extension:g} of {self.most_of_extension:g}"
        said = [lab] * bool(self.most or not self.most_of_extension) + [beyond] * bool(self.most_of_extension)
        return ", ".join(said)


def add_up(points: Iterable[tuple[bool, float, float]]) -> Sums:
    """Of (whether it belongs to the extension, points, what can be had)."""
    points = list(points)
    lab, beyond = ([each for each in points if each[0] is extension] for extension in (False, True))
    return Sums(*(sum(each[column] for each in part) for part in (lab, beyond) for column in (1, 2)))


def of_tests(tests: Iterable[dict[str, Any]]) -> Sums:
    """Of the tests of a results.json."""
    return add_up((test["extra_data"].get("extension", False), test["score"], test["max_score"]) for test in tests)
