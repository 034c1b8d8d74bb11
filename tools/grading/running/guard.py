"""Runs one command and leaves nothing behind: no process, however it detached itself, and no temporary file.

usage: guard.py PARENT_PID COMMAND [ARGUMENT...]

The guard adopts every process that the command's descendants abandon (Linux: child subreaper). When the command has
ended, or the guard is told to stop (SIGTERM, SIGINT, SIGHUP), or its own parent has died, it kills all that still runs
and removes the command's private TMPDIR. The guard ends as the command ended: same exit code, same signal.
"""

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
STOP = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
prctl = ctypes.CDLL(None).prctl


def start(command: list[str], folder: str) -> int:
    """Starts the command in its own process group; returns its process id."""
    child = os.fork()
    if child:
        return child
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.environ["TMPDIR"] = folder
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)


def wait(command: int) -> int:
    """Returns the command's wait status, or that of a SIGTERM if the guard was told to stop first."""
    while True:
        if signal.sigwait(STOP | {signal.SIGCHLD}) in STOP:
            return signal.SIGTERM
        pid = 1
        while pid:  # reaps adopted processes, too
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == command:
                return status


def descendants() -> dict[int, int]:
    """The process ids of all descendants, each with its process group."""
    parents, groups = {}, {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
                parents[pid], groups[pid] = map(int, stat.read().rpartition(")")[2].split()[1:3])
        except OSError:
            pass  # it has ended meanwhile
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: groups[pid] for pid in found - {os.getpid()}}


def kill(deliver, target: int) -> None:
    try:
        deliver(target, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_descendants(group: int) -> None:
    """Returns when none is left: orphans become our children."""
    kill(os.killpg, group)
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
            left = descendants()
            for each in set(left.values()) - {os.getpgrp()}:  # whole groups: a single process may fork before it dies
                kill(os.killpg, each)
            for pid in left:
                kill(os.kill, pid)
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def remove(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        import shutil  # only here: most runs leave an empty folder, and the import takes longer than they do

        shutil.rmtree(folder, ignore_errors=True)


def end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        signum = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if signum != signal.SIGKILL:
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.kill(os.getpid(), signum)
    sys.exit(os.WEXITSTATUS(status))


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP | {signal.SIGCHLD})
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return  # the parent died before the line above
    given = os.environ.get("TMPDIR", "")  # may be another user's, whose rights were given up
    folder = os.path.join(given if os.access(given, os.W_OK) else "/tmp", f"ddp-lab-{os.urandom(6).hex()}")
    os.mkdir(folder, 0o700)
    group = start(command, folder)
    try:
        status = wait(group)
    finally:
        kill_descendants(group)
        remove(folder)
    end_as(status)


if __name__ == "__main__":
    main()
