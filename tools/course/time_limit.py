"""How long a submission's tests may run: by processor time, so that a busy machine costs nobody points, and far beyond
it by the clock, for what sleeps."""

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


class Seconds(NamedTuple):
    processor: float
    clock: float


def now() -> Seconds:
    return Seconds(processor_seconds(), time.monotonic())


def processor_seconds() -> float:
    """Of all that this process has started, whether it runs or has ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Parents first: who ends meanwhile is missing, and never counted twice.
    return ended.ru_utime + ended.ru_stime + sum(map(_ticks, sorted(descendants()))) / TICKS_A_SECOND


def _ticks(process: int) -> int:
    """With those of its children that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


class Part:
    """What one stage may take. `exceeded`: of what it has taken more; empty: of nothing."""

    def __init__(self, allowed: Seconds) -> None:
        self.allowed, self.exceeded = allowed, ""

    def look(self, used: Seconds) -> None:
        if used.processor > self.allowed.processor:
            self.exceeded = f"longer than {self.allowed.processor:.0f} s of processor time in all"
        elif used.clock > self.allowed.clock:
            self.exceeded = f"longer than {self.allowed.clock:.0f} s in all"


class Budget:
    """Seconds for several parts, one after the other: each may take its share of what those before it have left."""

    def __init__(self, seconds: Seconds, now: Callable[[], Seconds] = now, look_s: float = LOOK_S) -> None:
        self._now, self._look_s = now, look_s
        began = now()
        self._ends = Seconds(began.processor + seconds.processor, began.clock + seconds.clock)

    @contextlib.contextmanager
    def part(self, parts: int, stopping: threading.Event) -> Iterator[Part]:
        """One of as many parts as are left. Sets `stopping` when it has taken what it may."""
        began, over = self._now(), threading.Event()
        part = Part(Seconds(*((end - begin) / parts for end, begin in zip(self._ends, began))))

        def watch() -> None:
            while not over.wait(self._look_s) and not part.exceeded:
                part.look(Seconds(*(now - begin for now, begin in zip(self._now(), began))))
                if part.exceeded:
                    stopping.set()

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield part
        finally:
            over.set()
            watching.join()
