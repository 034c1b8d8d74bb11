"""Runs programs under tools/grading/running/guard.py: however they or we end, they leave no process running."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.setup.progress import undisturbed

GUARD = Path(__file__).with_name("guard.py")
GRACE_S = 5.0  # the guard ends within milliseconds, except on a very busy machine


class GuardedProcess:
    """A command and its output, with a second stream (`records_fd`) on request.

    with GuardedProcess([program], records=True) as process:
        for channel, data in process.events(): ...
    """

    def __init__(
        self,
        command: Sequence[str],
        records: bool = False,
        env: dict[str, str] | None = None,
        folder: Path | None = None,
        given: bytes = b"",
    ) -> None:
        """`folder`: where it works; `given`: a few bytes that it can read from its standard input."""
        self._command = list(command)
        self._env, self._folder, self._given = env, folder, given
        self._reads: dict[int, str] = {}
        self._writes: list[int] = []
        output = self._pipe("output")
        self.records_fd = self._pipe("records") if records else -1
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped_at: float | None = None

    def _pipe(self, channel: str) -> int:
        read, write = os.pipe()
        self._reads[read] = channel
        self._writes.append(write)
        return write

    def append(self, *arguments: str) -> None:
        """Adds arguments, such as those that need `records_fd`."""
        self._command += arguments

    def __enter__(self) -> GuardedProcess:
        try:
            with undisturbed():  # no guard may start without being known
                self._start()
        except BaseException:
            if self._process:
                self.__exit__()
            raise
        return self

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), *self._command],
            stdin=subprocess.PIPE if self._given else subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=[fd for fd in [self.records_fd] if fd >= 0],
            start_new_session=True,  # we pass on a Ctrl-C on the terminal, once
            env=self._env,
            cwd=self._folder,
        )
        if self._given:
            with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
                pipe.write(self._given)
        for fd in self._writes:
            os.close(fd)

    def __exit__(self, *_: object) -> None:
        self.stop()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for fd in self._reads:
            os.close(fd)

    def stop(self) -> None:
        """Tells the guard to kill everything; events() still yields all that was written."""
        if self._stopped_at is None and self._process.poll() is None:
            self._stopped_at = time.monotonic()
            self._process.send_signal(signal.SIGTERM)

    @property
    def exit_code(self) -> int:
        """As in subprocess: -n means killed by signal n."""
        return self._process.wait()

    def events(self, tick_s: float = 1.0) -> Iterator[tuple[str, bytes]]:
        """Yields ("output" or "records", data) until both streams have ended, and ("tick", b"") whenever nothing came
        for `tick_s` seconds."""
        with selectors.DefaultSelector() as selector:
            for fd in self._reads:
                selector.register(fd, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(tick_s)
                for key, _ in ready:
                    if data := os.read(key.fd, 1 << 16):
                        yield self._reads[key.fd], data
                    else:
                        selector.unregister(key.fd)
                if not ready:
                    yield "tick", b""
                # A process that survives the guard may hold the streams open: do not wait for it.
                if self._stopped_at is None and self._process.poll() is not None:
                    self._stopped_at = time.monotonic()
                if self._stopped_at is not None and time.monotonic() - self._stopped_at > GRACE_S:
                    return


class BoundedText:
    """The beginning and the end of a stream, however long it is."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def add(self, data: bytes) -> None:
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._half:
            self._trim()

    def _trim(self) -> None:
        surplus = max(0, len(self._tail) - self._half)
        del self._tail[:surplus]
        self._dropped += surplus

    def __str__(self) -> str:
        self._trim()
        gap = f"\n[... {self._dropped} bytes left out ...]\n" if self._dropped else ""
        return self._head.decode(errors="replace") + gap + self._tail.decode(errors="replace")

    def last_lines(self, count: int) -> str:
        return "\n".join(str(self).splitlines()[-count:])
