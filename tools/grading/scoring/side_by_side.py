"""Runs stages beside one another: ranks wait half of the time."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from tools.grading.scoring.results import StageReport


def width() -> int:
    """How many stages this machine runs at a time: one more than it has cores, since ranks wait for one another."""
    return len(os.sched_getaffinity(0)) + 1


def in_order(
    stages: Iterable[StageReport],
    next_build: Callable[[], Future | None],
    run: Callable[[StageReport], None],
    at_a_time: int,
    stopping: threading.Event,
) -> Iterator[StageReport]:
    """Runs each stage on a thread, and yields it when it has ended, in the order of `stages`. Beside one that runs the
    next begins once it is built. Whoever takes no more, or is interrupted, sets `stopping`, at which `run` has to end.
    """
    stages, running, more = iter(stages), deque(), True
    with ThreadPoolExecutor(at_a_time) as pool:
        try:
            while more or running:
                busy = [ended for _, ended in running if not ended.done()]
                build = next_build() if more and len(busy) < at_a_time else None
                if running and running[0][1].done():
                    stage, ended = running.popleft()
                    ended.result()
                    yield stage
                elif len(busy) == at_a_time or not more or (running and build and not build.done()):
                    wait([*busy, build] if build else busy, return_when=FIRST_COMPLETED)
                else:
                    stage = next(stages, None)
                    more = stage is not None
                    if more:
                        running.append((stage, pool.submit(run, stage)))
        finally:
            stopping.set()
