"""How the lab's tools report an error that the user can fix: one line on stderr, and an exit code."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable

from tools.grading.stages import BadChoice
from tools.setup.toolchain import LabError


class Interrupted(KeyboardInterrupt):
    """Interrupted by a signal that a tool handles itself."""

    def __init__(self, signum: int) -> None:
        super().__init__()
        self.signum = signum


def ending_of(command: str, body: Callable[[], int]) -> int:
    """body()'s exit code; 2 for a choice that does not exist, 3 for a problem of the lab or the machine, and more than
    128 after a signal. `command` is what the user typed, such as "make figures"."""
    try:
        return body()
    except BadChoice as error:
        print(error, file=sys.stderr)
        return 2
    except LabError as error:
        print(error, file=sys.stderr)
        return 3
    except OSError as error:
        advice = "; free some space and run again" if error.errno == errno.ENOSPC else ""
        print(f"{error.filename or command}: {error.strerror}{advice}", file=sys.stderr)
        return 3
    except KeyboardInterrupt as error:
        return 128 + getattr(error, "signum", signal.SIGINT)
