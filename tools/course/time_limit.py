"""How long a submission's tests may run, by a clock that stands still while they wait for a processor: a busy machine
costs nobody points, and what spins or sleeps comes to an end."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tools.grading.guard import descendants

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
    return any(_fields(task / "stat")[:1] == ["R"] for task in Path(f"/proc/{process}/task").glob("*"))


def _fields(stat: Path) -> list[str]:
    """What follows the name: the state, then numbers. None of what has ended."""
    try:
        return stat.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


class Part:
    """What one stage may take. `exceeded`: whether it has taken more."""

    def __init__(self, allowed: float) -> None:
        self.allowed, self.exceeded = allowed, False


class Budget:
    """Seconds for several parts, one after the other: each may take its share of what those before it have left."""

    def __init__(self, seconds: float, look: Callable[[], Look] = look, look_s: float = LOOK_S) -> None:
        self._left, self._look, self._look_s = seconds, look, look_s

    @contextlib.contextmanager
    def part(self, parts: int, stopping: threading.Event) -> Iterator[Part]:
        """One of as many parts as are left. Sets `stopping` when it has taken what it may."""
        part, over = Part(self._left / parts), threading.Event()
        watching = threading.Thread(target=self._watch, args=(part, stopping, over, self._look()))
        watching.start()
        try:
            yield part
        finally:
            over.set()
            watching.join()

    def _watch(self, part: Part, stopping: threading.Event, over: threading.Event, before: Look) -> None:
        ends = self._left - part.allowed
        while not over.wait(self._look_s):
            now = self._look()
            self._left -= seconds_between(before, now)
            before = now
            part.exceeded = self._left < ends
            if part.exceeded:
                return stopping.set()


def seconds_between(before: Look, now: Look) -> float:
    """All that passed while they slept; while they were ready to run, no more than they ran."""
    passed = now.clock - before.clock
    return max(0.0, min(passed, now.processor - before.processor)) if now.ready else passed
