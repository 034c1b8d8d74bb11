"""Where the test programs of untrusted stages run (UNTRUSTED=1), and what this system lacks for that.

Three layers: untrusted.py looks at the code before it is loaded; the jail (jail.py) keeps a stage's processes from all
others; and each rank is confined (common/ddp/ranks/confine.h), so that not even its own test program can be reached.
The last is demanded; what else is missing is said.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tools.grading.stages import short_paths
from tools.setup.toolchain import LabError

JAIL = Path(__file__).with_name("jail.py")
NOBODY = 65534
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
SYS_LANDLOCK_CREATE_RULESET, LANDLOCK_VERSION = 444, 1

NO_SECCOMP = (
    "UNTRUSTED=1 needs a kernel with seccomp filters, and this one has none that can be used here: "
    "nothing would keep a stage from changing files or ending the grader."
)
NO_JAIL = (
    "no namespaces here ({}): stages still cannot write, signal, connect or start anything, but they see the names of "
    "other processes, and the number of their threads is not limited."
)
NO_OTHER_USER = (
    "the lab is in a folder that only root can enter, so stages run as root without its powers: the number of their "
    "threads is not limited."
)
NO_LANDLOCK = (
    "no Landlock here (Linux 5.13 or newer has it): stages can read the files that you can read, other stages' "
    "libraries included."
)


@dataclass(frozen=True)
class Sandbox:
    """`prefix`: what the command of a test program begins with; `gaps`: what this system lacks, a sentence each."""

    prefix: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    seals: dict[Path, bytes] = field(default_factory=dict)

    def broken_seal(self) -> str:
        """What has changed since the sandbox was made; empty: nothing."""
        changed = [short_paths(str(path)) for path, seal in self.seals.items() if _digest(path) != seal]
        return f"{', '.join(changed)} changed after the first stage had begun, so it was not run." if changed else ""


def make_sandbox(program: Path, sealed: Iterable[Path]) -> Sandbox:
    """The best that this system can do, tried with `program`. Throws LabError if that is not enough."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, None, 0, 0)  # without a filter: a bad address, if it is known
    if ctypes.get_errno() != errno.EFAULT:
        raise LabError(NO_SECCOMP)
    prefix, gaps = _find_jail(program)
    if libc.syscall(SYS_LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION) < 1:
        gaps = (*gaps, NO_LANDLOCK)
    return Sandbox(prefix, gaps, {path: _digest(path) for path in sealed})


def _find_jail(program: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    users = [NOBODY, 0] if os.getuid() == 0 else [os.getuid()]
    reason = ""
    for user in users:
        prefix = (sys.executable, "-I", "-S", str(JAIL), str(user))
        if not (reason := _why_not([*prefix, str(program), "--list"])):
            return prefix, (NO_OTHER_USER,) if user == 0 else ()
    return (), (NO_JAIL.format(reason),)


def _why_not(command: list[str]) -> str:
    with tempfile.TemporaryDirectory() as private:
        environment = {**os.environ, "TMPDIR": private}
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)
    if done.returncode == 0:
        return ""
    return done.stderr.strip().rpartition("\n")[2] or f"status {done.returncode}"


def _digest(path: Path) -> bytes:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return b""
