"""Runs a long command behind one line of progress, and keeps its output."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

KEPT_LINES = 400  # of a command's output, from its end; the log has all of it
INTERRUPTS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
PIPE_INTERVAL_S = 20.0  # how often progress is printed if no line can be rewritten


class ProgressLine:
    """One line that is rewritten on a terminal; in a pipe, a line now and then."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self.printed = self.started
        self.terminal = sys.stdout.isatty()
        self._write(f"{title} ...")

    def show(self, detail: str) -> None:
        now = time.monotonic()
        if not self.terminal and now - self.printed < PIPE_INTERVAL_S:
            return
        self.printed = now
        self._write(f"{self.title} [{elapsed(now - self.started)}] {detail}".rstrip())

    def done(self, outcome: str) -> None:
        self._write(f"{self.title}: {outcome} [{elapsed(time.monotonic() - self.started)}]")
        if self.terminal:
            print(flush=True)

    def _write(self, text: str) -> None:
        if self.terminal:
            width = os.get_terminal_size(sys.stdout.fileno()).columns or 80
            print(f"\r\033[K{text[: width - 1]}", end="", flush=True)
        else:
            print(text, flush=True)


def elapsed(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def run(
    argv: list[str],
    title: str,
    log: Path,
    environment: dict[str, str] | None = None,
    condense: Callable[[str], str | None] = lambda line: line.strip() or None,
    folder: Path | None = None,
) -> tuple[int, list[str]]:
    """Runs argv, in `folder` if one is given; returns its exit code and its last lines of output.

    `condense` makes the progress line's text from a line of output (None: keep the text before).
    The command runs in its own process group, which is ended as a whole if we are interrupted.
    """
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    progress = ProgressLine(title)
    with log.open("a", encoding="utf-8") as record:
        record.write(f"\n$ {' '.join(argv)}\n")
        signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)  # none may arrive between the start and the try
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
            preexec_fn=_receive_interrupts,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})},
        )
        try:
            _receive_interrupts()
            detail = ""
            for line in _lines_or_ticks(child):
                if line:
                    record.write(line + "\n")
                    lines.append(line)
                    detail = condense(line) or detail
                progress.show(detail)
            code = child.wait()
            child.stdout.close()
        except BaseException:
            end(child)
            progress.done("stopped")
            raise
    progress.done("failed" if code else "done")
    return code, list(lines)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C and its like wait for what must be done as a whole, and is done within a second."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _receive_interrupts() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)


def _lines_or_ticks(child: subprocess.Popen):
    """Yields each line of the child's output, and None for each second without any, until it ends."""
    assert child.stdout is not None
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout=1.0):
                yield None
                continue
            chunk = os.read(child.stdout.fileno(), 65536)
            *whole, pending = (pending + chunk).split(b"\n")
            for line in whole if chunk else [pending]:
                yield line.decode(errors="replace").rstrip()
            if not chunk:
                return


def end(child: subprocess.Popen, patience_s: float = 5.0) -> None:
    """Ends a child's whole process group: asks it first, kills it if that does not help."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, signum)
            child.wait(timeout=patience_s)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
