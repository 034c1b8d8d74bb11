"""Mutual exclusion in a checkout: a file lock, which the system frees when its holder ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def hold(path: Path, doing: str) -> Iterator[bool]:
    """Holds the lock; first waits for another holder, after a line that names it. Yields whether it waited."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        waited = False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            print(f"Waiting for {holder} in this checkout (Ctrl-C: stop waiting) ...", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
            waited = True
        file.truncate(0)
        with contextlib.suppress(OSError):  # on a full disk the lock still holds, and nobody learns whose it is
            os.write(file.fileno(), f"process {os.getpid()}, {doing} since {time.strftime('%H:%M:%S')},".encode())
        try:
            yield waited
        finally:
            file.truncate(0)
