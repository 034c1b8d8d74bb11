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
    except BadChoice as error:
        print(fold(str(error), columns()), file=sys.stderr)
        return 2
    except LabError as error:
        print(fold(str(error), columns()), file=sys.stderr)
        return 3
    except OSError as error:
        print(fold(explain(error, command), columns()), file=sys.stderr)
        return 3
    except KeyboardInterrupt as error:
        return 128 + getattr(error, "signum", signal.SIGINT)


def explain(error: OSError, command: str) -> str:
    what = f"{error.filename or ROOT}: {error.strerror}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{what}; free some space and run again"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{what}. {command} writes into the checkout: clone it into a folder of your own"
    return what
