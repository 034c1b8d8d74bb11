"""Runs one command where it can change and reach nothing outside: `make test UNTRUSTED=1`.

usage: jail.py USER PROGRAM [ARGUMENT...]     PROGRAM is a path

New user, mount, process and network namespaces: the file system is read-only, except for the command's own TMPDIR;
/proc shows the command's own processes, which all end with it; there is no network. USER is the user id to run as: root
can give its own away, others cannot. The jail ends as the command ended: same exit code, same signal.

What a stage may do inside is narrower still: common/ddp/ranks/confine.h.
"""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import sys

PROCESSES = 2048  # threads count, too
PRIVATE_MIB = 64
NEW_NAMESPACES = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000  # user, mount, process, network, IPC
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_SLAVE = 2, 4, 8, 1 << 14, 1 << 19
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
libc = ctypes.CDLL(None, use_errno=True)


def call(what: str, *arguments: object) -> None:
    if getattr(libc, what)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def become(user: int) -> None:
    if user != os.getuid():
        os.chown(os.environ["TMPDIR"], user, user)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        call("prctl", PR_SET_DUMPABLE, 1)  # lost with the old user: /proc/self would be root's


def enter_namespaces() -> None:
    user, group = os.getuid(), os.getgid()
    call("unshare", NEW_NAMESPACES)
    write("/proc/self/setgroups", "deny")
    # Never as 0, which would get capabilities.
    write("/proc/self/uid_map", f"65534 {user} 1")
    write("/proc/self/gid_map", f"65534 {group} 1")
    resource.setrlimit(resource.RLIMIT_NPROC, (PROCESSES, PROCESSES))


def switch_on_loopback() -> None:
    """Ranks that report real times talk over it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def make_everything_read_only() -> None:
    call("mount", b"none", b"/", None, MS_REC | MS_SLAVE, None)
    read_only = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)
    call("syscall", SYS_MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, ctypes.byref(read_only), ctypes.sizeof(read_only))
    private = os.environ["TMPDIR"].encode()
    call("mount", b"tmpfs", private, b"tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, f"size={PRIVATE_MIB}m".encode())


def run(command: list[str]) -> None:
    """In the first process of the new namespace, with which all others end."""
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    call("mount", b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    os.execv(command[0], command)


def main() -> None:
    user, command, guard = int(sys.argv[1]), sys.argv[2:], os.getppid()
    write("/proc/self/oom_score_adj", "1000")  # where memory runs out, this is what the kernel ends
    become(user)
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        return  # it died before the line above
    enter_namespaces()
    switch_on_loopback()
    make_everything_read_only()
    child = os.fork()
    if child == 0:
        run(command)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    sys.exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        print(f"the jail: {error.strerror}", file=sys.stderr)
        os._exit(126)
