"""How tools speak: on a terminal with colours and a line that is rewritten, or a plain pipe; an error that the user can
fix is one line on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

from tools.grading.stages import BadChoice
from tools.setup.columns import columns, fold
from tools.setup.toolchain import ROOT, LabError

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Terminal:
    def __init__(self) -> None:
        self._stream = sys.stdout
        self.live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colour = self.live and not os.environ.get("NO_COLOR")
        self.width = columns()
        self._status = ""
        self._closed = False
        self._lock = threading.RLock()  # stages that run side by side write to one line

    def paint(self, text: str, *styles: str) -> str:
        if not self._colour or not styles:
            return text
        return f"\033[{';'.join(_CODES[style] for style in styles)}m{text}\033[0m"

    def print(self, text: str = "") -> None:
        with self._lock:
            self.status("")
            self._write(text + "\n")

    def status(self, text: str) -> None:
        """Sets the status line at the bottom of a terminal; empty: none."""
        with self._lock:
            if self.live and text != self._status:
                self._status = text
                self._write(f"\r\033[K{text[: self.width - 1]}")

    def _write(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        try:
            if not self._closed:
                self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
                self._stream.flush()
        except BrokenPipeError:  # `make test | head`: the result files must still be finished
            self._closed = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


class Interrupted(KeyboardInterrupt):
    """Interrupted by a signal that a tool handles itself."""

    def __init__(self, signum: int) -> None:
        super().__init__()
        self.signum = signum


def ending_of(command: str, body: Callable[[], int]) -> int:
    """body()'s exit code; 2 for a choice that does not exist, 3 for a problem of the lab or the machine, 70 for a
    mistake of ours, and more than 128 after a signal. `command` is what the user typed, such as "make figures"."""
    try:
        code = body()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # as in `make writeup | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (LabError, OSError) as error:
        said = explain(error, command) if isinstance(error, OSError) else str(error)
        print(fold(said, columns()), file=sys.stderr)
        return 2 if isinstance(error, BadChoice) else 3
    except KeyboardInterrupt as error:
        return 128 + getattr(error, "signum", signal.SIGINT)
    except Exception:  # with 1, Python's own, it would pass for a grade
        traceback.print_exc()
        return 70


def explain(error: OSError, command: str) -> str:
    what = f"{error.filename or ROOT}: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{what}; free some space and run again"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{what}. {command} writes into the checkout: clone it into a folder of your own"
    return what
