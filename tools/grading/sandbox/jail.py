"""Runs one command where it sees and changes what it was given, and nothing else: `make test UNTRUSTED=1`.

usage: jail.py PERMISSIONS PROGRAM [ARGUMENT...]     PERMISSIONS is JSON, see `Permissions`; PROGRAM is a path

New user, mount, process and network namespaces. The file system is an empty one with the paths that the command may
see, read-only, and those that it may write; /proc shows the command's own processes, which all end with it; there is no
network. Landlock enforces the same list once more, or by itself where a system allows no namespaces. The environment is
clean. The jail ends as the command ended: same exit code, same signal.

What a stage may do inside is narrower still: common/ddp/ranks/confine.h.
"""

import ctypes
import json
import os
import resource
import signal
import struct
import sys
from typing import NamedTuple

PROCESSES = 2048  # threads count, too
PRIVATE_MIB = 64
CLONE_NEWNS = 0x00020000
NEW_NAMESPACES = 0x10000000 | CLONE_NEWNS | 0x20000000 | 0x40000000 | 0x08000000  # user, process, network, IPC
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 1 << 12, 1 << 14, 1 << 18
MNT_DETACH = 2
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE = 442, -100, 0x8000
SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_ADD_RULE, SYS_LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_VERSION, PATH_BENEATH = 1, 1
# Which kinds of access each version of Landlock knows: 13 at first; then linking, truncating and devices' controls.
KINDS_OF_ACCESS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
EXECUTE, READ_FILE, READ_FOLDER, OF_FILES = 1, 4, 8, 0b1100000000000111
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
libc = ctypes.CDLL(None, use_errno=True)


class Permissions(NamedTuple):
    sees: list[str]  # files, and folders with all that is in them
    writes: str = ""  # a folder, which is its TMPDIR, too; empty: a small one that goes with it
    user: int = 0  # whom it runs as; root can give its own user away, others cannot
    namespaces: bool = True
    processes: bool = True  # whether it sees its own in /proc
    limits: dict[str, int] = {}  # noqa: RUF012  as setrlimit calls them: {"CPU": 60}
    environment: dict[str, str] = {}  # noqa: RUF012  beside what every program needs


def call(what: str, *arguments: object) -> int:
    result = getattr(libc, what)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def unshare(namespaces: int) -> None:
    call("unshare", namespaces)


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def become(user: int) -> None:
    if user != os.getuid():
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        call("prctl", PR_SET_DUMPABLE, 1)  # lost with the old user: /proc/self would be root's


def enter_namespaces() -> None:
    user, group = os.getuid(), os.getgid()
    unshare(NEW_NAMESPACES)
    write("/proc/self/setgroups", "deny")
    # Never as 0, which would get capabilities.
    write("/proc/self/uid_map", f"65534 {user} 1")
    write("/proc/self/gid_map", f"65534 {group} 1")
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))


def set_attributes(path: str, attributes: int, recursive: int = AT_RECURSIVE) -> None:
    given = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    call("syscall", SYS_MOUNT_SETATTR, AT_FDCWD, path.encode(), recursive, ctypes.byref(given), ctypes.sizeof(given))


def show(path: str, root: str, attributes: int) -> None:
    """Puts `path` into the new file system, at the same place; one that is a link stays one."""
    place = root + path
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.islink(path):
        return os.symlink(os.readlink(path), place)
    if os.path.isdir(path):
        os.makedirs(place, exist_ok=True)
    else:
        write(place, "")
    call("mount", path.encode(), place.encode(), None, MS_BIND | MS_REC, None)
    if attributes:
        set_attributes(place, attributes)


def make_file_system(given: Permissions) -> None:
    """Of what is to be seen alone. What is in a folder that is shown is not shown again."""
    root, here = os.environ["TMPDIR"], os.getcwd()
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    call("mount", b"tmpfs", root.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, b"size=1m,mode=755")
    if not given.writes:  # first: what is seen may lie in it
        os.mkdir(f"{root}/tmp")
        options = f"size={PRIVATE_MIB}m,mode=1777".encode()
        call("mount", b"tmpfs", f"{root}/tmp".encode(), b"tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
    shown: set[str] = set()
    for path in sorted(filter(os.path.lexists, given.sees), key=len):
        if shown.isdisjoint(path[:end] for end in range(1, len(path) + 1) if path[end : end + 1] in ("", "/")):
            show(path, root, MS_RDONLY | MS_NOSUID)
            shown.add(path)
    show("/proc", root, 0)  # until run() puts another in its place
    if given.writes:
        show(given.writes, root, MS_NOSUID | MS_NODEV)
    set_attributes(root, MS_RDONLY, 0)
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir(here if os.path.isdir(here) else "/")


def limit_access(given: Permissions, private: str) -> None:
    """By Landlock: to see and to run what may be seen, to do anything in what may be written."""
    version = libc.syscall(SYS_LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION)
    if version < 1:
        return  # sandbox.py says so
    everything = (1 << KINDS_OF_ACCESS[min(version, max(KINDS_OF_ACCESS))]) - 1
    handled = ctypes.c_uint64(everything)
    rules = call("syscall", SYS_LANDLOCK_CREATE_RULESET, ctypes.byref(handled), ctypes.sizeof(handled), 0)
    look = EXECUTE | READ_FILE | READ_FOLDER
    seen = [*given.sees, *["/proc"] * given.processes]
    for path, access in [*((path, look) for path in seen), (private, everything), ("/dev/null", everything)]:
        if os.path.exists(path):
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = struct.pack("<Qi", access if os.path.isdir(path) else access & OF_FILES, opened)
            call("syscall", SYS_LANDLOCK_ADD_RULE, rules, PATH_BENEATH, rule, 0)
            os.close(opened)
    call("syscall", SYS_LANDLOCK_RESTRICT_SELF, rules, 0)
    os.close(rules)


def run(command: list[str], given: Permissions) -> None:
    """With namespaces in the first process of the new one, with which all others end."""
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    if given.namespaces:
        kind, writable = (b"proc", 0) if given.processes else (b"tmpfs", MS_RDONLY)
        call("mount", kind, b"/proc", kind, MS_NOSUID | MS_NODEV | MS_NOEXEC | writable, None)
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    private = given.writes or ("/tmp" if given.namespaces else os.environ["TMPDIR"])
    limit_access(given, private)
    for name, most in given.limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    always = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TMPDIR": private}
    os.execve(command[0], command, {**always, **given.environment})


def main() -> None:
    given, command, guard = Permissions(**json.loads(sys.argv[1])), sys.argv[2:], os.getppid()
    write("/proc/self/oom_score_adj", "1000")  # where memory runs out, this is what the kernel ends
    if not given.namespaces:
        return run(command, given)
    if os.getuid() == 0:  # root may show what others cannot get to
        unshare(CLONE_NEWNS)
        make_file_system(given)
        become(given.user)
        enter_namespaces()
    else:
        enter_namespaces()
        make_file_system(given)
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        return  # it died before the line above
    child = os.fork()
    if child == 0:
        run(command, given)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    sys.exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        print(f"the jail: {error.strerror}" + (f": {error.filename}" if error.filename else ""), file=sys.stderr)
        os._exit(126)
