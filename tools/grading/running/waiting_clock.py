"""A clock of child processes that stops while they wait for a processor: a busy machine costs nobody points, and what
spins or sleeps comes to an end."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tools.grading.running.guard import descendants

LOOK_S = 0.5
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Look(NamedTuple):
    """At all that this process has started. `ready`: some of it runs, or would if it had a processor."""

    clock: float
    processor: float
    ready: bool


def look() -> Look:
    """Those that have ended count, too."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    there = sorted(descendants())  # parents first: who ends meanwhile is missing, and never counted twice
    ticks = sum(map(_ticks, there))
    spent = ended.ru_utime + ended.ru_stime + ticks / TICKS_A_SECOND
    return Look(time.monotonic(), spent, any(map(_is_ready, there)))


def _ticks(process: int) -> int:
    """With those of its children that have ended."""
    return sum(map(int, _fields(Path(f"/proc/{process}/stat"))[11:15]))


def _is_ready(process: int) -> bool:
    """Whether one of its threads is."""
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
    except OSError:  # it has ended
        return False
    return any(_fields(thread / "stat")[:1] == ["R"] for thread in threads)


def _fields(stat: Path) -> list[str]:
    """What follows the name: the state, then numbers. None of what has ended."""
    try:
        return stat.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def seconds_between(before: Look, now: Look) -> float:
    """Wall time while they slept; while they were ready to run, at most the processor time that they used."""
    passed = now.clock - before.clock
    return max(0.0, min(passed, now.processor - before.processor)) if now.ready else passed


class Silence:
    """Seconds by that clock since it began, or since it was broken."""

    def __init__(self, look: Callable[[], Look] = look) -> None:
        self.seconds, self._look, self._before = 0.0, look, look()

    def broken(self) -> None:
        self.seconds = 0.0

    def went_on(self) -> float:
        """Looks, unless it has just looked."""
        if time.monotonic() - self._before.clock >= LOOK_S:
            now = self._look()
            self.seconds += seconds_between(self._before, now)
            self._before = now
        return self.seconds
