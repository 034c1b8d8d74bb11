"""Where code that nobody trusts is compiled and run (UNTRUSTED=1), and what this system lacks for that.

The jail (jail.py) shows a command what it needs and nothing else, by namespaces, by Landlock or by both; each rank is
confined besides (common/ddp/ranks/confine.h), so that not even its own test program can be reached. Confining is
demanded; what else is missing is said.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tools.grading.sandbox.jail import LANDLOCK_VERSION, SYS_LANDLOCK_CREATE_RULESET
from tools.grading.stages import short_paths
from tools.setup.toolchain import ROOT, LabError

JAIL = Path(__file__).with_name("jail.py")
NOBODY = 65534
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
# What every program needs. Nothing in it may be secret.
SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/dev/null",
          "/dev/zero", "/dev/urandom", "/sys/devices/system")  # fmt: skip

NO_SECCOMP = (
    "UNTRUSTED=1 needs a kernel with seccomp filters, and this one has none that can be used here: "
    "nothing would keep a stage from changing files or ending the grader."
)
NOTHING = (
    "UNTRUSTED=1 needs namespaces or Landlock (Linux 5.13) where the lab has what students must not read, and here "
    "({}) is {}: a compiler could quote it. Grade in a tree without it, such as build/autograder/public, or on another "
    "machine."
)
NO_JAIL = (
    "no namespaces here ({}): stages still cannot write, signal, connect or start anything, but they see the names of "
    "other processes and whether a file exists, and the number of their threads is not limited."
)
NO_OTHER_USER = (
    "root alone can read the lab's files, so stages run as root without its powers: the number of their "
    "threads is not limited."
)
NO_LANDLOCK = (
    "no Landlock here (Linux 5.13 or newer has it): stages can read the files that their test program can read."
)


@dataclass(frozen=True)
class Sandbox:
    """What this system can do. `gaps`: what it lacks, a sentence each; `seals`: what must not change."""

    namespaces: bool = False
    user: int = field(default_factory=os.getuid)
    gaps: tuple[str, ...] = ()
    seals: dict[Path, bytes] = field(default_factory=dict)

    def command(self, command: Sequence[str], sees: Iterable[Path | str], **more: object) -> list[str]:
        """`command` in the jail, where it sees these files and folders beside the system's; `more` as in
        jail.Permissions."""
        seen = [*SYSTEM, *dict.fromkeys(os.path.abspath(path) for path in sees)]
        given = {"sees": seen, "user": self.user, "namespaces": self.namespaces, **more}
        return [sys.executable, "-I", "-S", str(JAIL), json.dumps(given), *command]

    def program(self, program: Path, *sees: Path, **more: object) -> list[str]:
        """How a test program is called. Its ranks confine themselves further. Some load a baseline, not the stage."""
        baselines = program.parents[1] / "lib" / "libddp_baselines.so"
        return self.command([str(program)], [program, *needed_libraries(program), baselines, *sees], **more)

    def give(self, folder: Path) -> None:
        """Lets what is in the jail write it."""
        if os.getuid() == 0:
            os.chown(folder, self.user, self.user)

    def sealed(self, paths: Iterable[Path]) -> Sandbox:
        return replace(self, seals={path: _digest(path) for path in paths})

    def broken_seal(self) -> str:
        """What has changed since it was sealed; empty: nothing."""
        changed = [short_paths(str(path)) for path, seal in self.seals.items() if _digest(path) != seal]
        return f"{', '.join(changed)} changed after the first stage had begun, so it was not run." if changed else ""


def make_sandbox(program: Path) -> Sandbox:
    """The best that this system can do, tried with `program`. Throws LabError if that is not enough."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, None, 0, 0)  # without a filter: a bad address, if it is known
    if ctypes.get_errno() != errno.EFAULT:
        raise LabError(NO_SECCOMP)
    landlock = libc.syscall(SYS_LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION) >= 1
    sandbox = _with_namespaces(program)
    if not (landlock or sandbox.namespaces) and (secrets := secrets_in(ROOT)):
        raise LabError(NOTHING.format("; ".join(sandbox.gaps), ", ".join(secrets)))
    return sandbox if landlock else replace(sandbox, gaps=(*sandbox.gaps, NO_LANDLOCK))


def secrets_in(tree: Path) -> list[str]:
    """What students must not read, of what may be there."""
    hidden_tests = sorted(path.relative_to(tree).as_posix() for path in tree.glob("tests/*/hidden.*"))
    return [name for name in ("solutions", "hidden", *hidden_tests) if (tree / name).exists()]


def needed_libraries(program: Path) -> list[str]:
    """What the loader finds for it, of one that is the lab's own."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    return [os.path.normpath(path) for path in re.findall(r"=> (/.*) \(0x", done.stdout)]


def _with_namespaces(program: Path) -> Sandbox:
    reason = ""
    for user in [NOBODY, 0] if os.getuid() == 0 else [os.getuid()]:
        sandbox = Sandbox(namespaces=True, user=user)
        if not (reason := _why_not([*sandbox.program(program), "--list"])):
            return replace(sandbox, gaps=(NO_OTHER_USER,) if user == 0 else ())
    return Sandbox(gaps=(NO_JAIL.format(reason),))


def done_in_jail(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Of what needs no time and prints little."""
    with tempfile.TemporaryDirectory() as private:
        environment = {**os.environ, "TMPDIR": private}
        return subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                              env=environment, check=False)  # fmt: skip


def _why_not(command: list[str]) -> str:
    done = done_in_jail(command)
    return "" if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2] or f"status {done.returncode}"


def _digest(path: Path) -> bytes:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return b""
