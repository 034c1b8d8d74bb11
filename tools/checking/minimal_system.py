"""A minimal Debian in a folder, made by debootstrap, in which commands run as on a machine of its own.

Each command gets namespaces of its own. Its mounts and processes are in them, so that none is left when it has ended,
hangs or is stopped. Mirrors, proxies and certificates are this machine's; what is downloaded is kept for the next one.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tools.checking.context import Context, describe
from tools.setup.toolchain import LabError

ALONE = ("git", "make")  # all that a system has beside Debian's minimum
NAMESPACES = ("unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
COPIED = {
    Path("/etc/hosts"): "etc/hosts",
    Path("/etc/resolv.conf"): "etc/resolv.conf",
    CERTIFICATES: "etc/certificates_of_the_host.crt",  # not in the place of its own, which its package writes anew
}
# The root is changed as a container changes it, since in a chroot no user may make namespaces.
ENTER = """\
set -e
system=$1 cache=$2 shared=$3
mount --bind "$system" "$system"
mount -t proc proc "$system/proc"
mount --rbind /sys "$system/sys"
mount --rbind /dev "$system/dev"
mount -t tmpfs -o mode=1777 tmpfs "$system/dev/shm"
mount --bind "$cache/apt" "$system/var/cache/apt/archives"
mkdir -p "$system/var/cache/pip"
mount --bind "$cache/pip" "$system/var/cache/pip"
mount --bind "$shared" "$system/srv"
cd "$system"
pivot_root . mnt
cd /
umount -l mnt
set +e
shift 3
"$@"
exit $?
"""
TIMED_OUT = (124, 137)  # timeout's codes: it ended by itself, and it had to be killed


@dataclass(frozen=True)
class Ran:
    code: int
    text: str
    processor_s: float


def gap() -> str:
    """Why this machine can make no minimal systems, and what to do; empty if it can."""
    if os.geteuid() != 0:
        return "only root can make minimal systems: run it as root, on a machine or in a container for this"
    if not shutil.which("debootstrap"):
        return "there is no debootstrap, which makes minimal systems: apt-get install debootstrap"
    if subprocess.run([*NAMESPACES, "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True, check=False).returncode:
        return "this system lets not even root mount anything in namespaces: run it outside of the container"
    return ""


class System:
    """A copy of a suite's base, for one user, root or another. What lies in `shared` is in its /srv."""

    def __init__(self, context: Context, suite: str, folder: Path, user: str, shared: Path) -> None:
        self._context, self._user, self._shared = context, user, shared
        self._cache = context.folder("machines", "cache", suite)
        self.root = folder
        base = _base(context, suite, self._cache)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", base, folder], check=True)
        subprocess.run(["chmod", "-R", "a+rwX", self._cache / "pip"], check=True)  # users of all machines share it
        for source, name in COPIED.items():
            if source.exists():
                shutil.copyfile(source, folder / name)

    def run(self, script: str, log: Path, seconds: int, user: str = "", env: dict[str, str] | None = None) -> Ran:
        """Runs a script of bash in the user's home folder, or in another's."""
        before = _processor_s()
        code, text = self._context.run([*self._enter(), *self._as(user or self._user, script, seconds, env)], log)
        return Ran(code, text, _processor_s() - before)

    def _enter(self) -> list[str]:
        return [*NAMESPACES, "bash", "-c", ENTER, "bash", *map(str, (self.root, self._cache, self._shared))]

    def _as(self, user: str, script: str, seconds: int, env: dict[str, str] | None) -> list[str]:
        home = "/root" if user == "root" else f"/home/{user}"
        variables = {"HOME": home, "USER": user, "PATH": "/usr/local/bin:/usr/bin:/bin", **_network(), **(env or {})}
        if user == "root":
            variables["PATH"] = f"/usr/local/sbin:/usr/sbin:/sbin:{variables['PATH']}"
        return [
            *("timeout", "--kill-after=10", str(seconds)),
            *("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"),
            *("env", "-i", *(f"{name}={value}" for name, value in variables.items())),
            *("bash", "-c", f"cd\n{script}"),
        ]


def _base(context: Context, suite: str, cache: Path) -> Path:
    """Made once, and as a whole."""
    folder = context.folder("machines") / f"base-{suite}"
    for kind in ("apt", "pip"):
        (cache / kind).mkdir(exist_ok=True)
    if not folder.exists():
        fresh, log = folder.with_suffix(".new"), folder.with_suffix(".log")
        shutil.rmtree(fresh, ignore_errors=True)
        options = ["--variant=minbase", f"--include={','.join(ALONE)}", f"--cache-dir={cache / 'apt'}"]
        code, text = context.run(["debootstrap", *options, suite, str(fresh)], log)
        if code:
            raise LabError(describe(f"debootstrap {suite} ended with code {code}", text[-1000:], log))
        fresh.rename(folder)
    return folder


def _network() -> dict[str, str]:
    """How this machine reaches package indices, with files as they are called in a system."""
    given = {name: value for name, value in os.environ.items() if name.lower().startswith(("pip_", "ssl_cert_file"))}
    given |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    known = {name: value.replace(str(CERTIFICATES), f"/{COPIED[CERTIFICATES]}") for name, value in given.items()}
    return {**known, "PIP_CACHE_DIR": "/var/cache/pip"}


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
