"""How long a submission's tests may run, by a clock that stands still while they wait for a processor."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from tools.grading.running.waiting_clock import LOOK_S, Look, look, seconds_between


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
