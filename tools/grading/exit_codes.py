"""How the lab's tools report an error that the user can fix: one line on stderr, and an exit code."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable

from tools.grading.stages import BadChoice
from tools.setup.columns import columns, fold
from tools.setup.toolchain import ROOT, LabError


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
    except (LabError, OSError) as error:
        said = explain(error, command) if isinstance(error, OSError) else str(error)
        print(fold(said, columns()), file=sys.stderr)
        return 2 if isinstance(error, BadChoice) else 3
    except KeyboardInterrupt as error:
        return 128 + getattr(error, "signum", signal.SIGINT)


def explain(error: OSError, command: str) -> str:
    what = f"{error.filename or ROOT}: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{what}; free some space and run again"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{what}. {command} writes into the checkout: clone it into a folder of your own"
    return what
