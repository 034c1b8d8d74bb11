"""Runs stages beside one another: ranks wait half of the time."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from tools.grading.results import StageReport


def width() -> int:
    """How many stages this machine runs at a time; each keeps more than one core busy."""
    return min(2, len(os.sched_getaffinity(0)))


def in_order(
    stages: Iterable[StageReport],
    next_is_built: Callable[[], bool],
    run: Callable[[StageReport], None],
    at_a_time: int,
    stopping: threading.Event,
) -> Iterator[StageReport]:
    """Runs each stage on a thread, and yields it when it has ended, in the order of `stages`. That the next is still
    being built keeps none back. Whoever takes no more, or is interrupted, sets `stopping`, at which `run` has to end.
    """
    stages = iter(stages)
    running = deque()
    with ThreadPoolExecutor(at_a_time) as pool:
        try:
            while True:
                while not running or (len(running) < at_a_time and next_is_built()):
                    stage = next(stages, None)
                    if stage is None:
                        break
                    running.append((stage, pool.submit(run, stage)))
                if not running:
                    return
                stage, ended = running.popleft()
                ended.result()
                yield stage
        finally:
            stopping.set()
