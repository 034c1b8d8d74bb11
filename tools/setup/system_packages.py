"""What the lab needs from the system, in which Debian package it is, and how to install it.

It is little: what the Python package index has, tools/setup/virtual_environment.py takes from there, for everybody.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.setup import progress
from tools.setup.toolchain import LabError

MINIMUM_CMAKE = (3, 25)
MINIMUM_GCC, MINIMUM_CLANG = (12,), (14,)
CLANG_WITH_RANGES = (16,)  # older ones cannot compile the views that GCC's library has in <ranges>


@dataclass(frozen=True)
class Need:
    name: str
    package: str  # Debian's; "a|b": b where there is no a
    find: Callable[[], str]  # where it is; empty: missing
    without: str  # what happens without it

    def missing(self) -> bool:
        return not self.find()


def program(*names: str) -> Callable[[], str]:
    return lambda: next((path for name in names if (path := shutil.which(name))), "")


def header(name: str) -> Callable[[], str]:
    """Looks where CMake does."""

    def find() -> str:
        prefixes = [*filter(None, os.environ.get("CMAKE_PREFIX_PATH", "").split(":")), "/usr/local", "/usr"]
        paths = (f"{prefix}/include/{name}" for prefix in prefixes)
        return next((path for path in paths if os.path.exists(path)), "")

    return find


# The first is preferred. With a precompiled header, clang builds the lab in a third of GCC's time, 19 as fast as 14.
CLANGS = (*(f"clang++-{version}" for version in range(19, 15, -1)), "clang++")
COMPILERS = (*CLANGS, "g++", "c++")


def compiler() -> str:
    """The one that CXX names, else the first there is."""
    chosen = os.environ.get("CXX")
    return program(chosen)() if chosen else program(*COMPILERS)()


def usable_compiler() -> str:
    """As compiler(), but one that is too old only where there is no other."""
    if os.environ.get("CXX"):
        return compiler()
    found = [path for path in map(shutil.which, COMPILERS) if path]
    return next((path for path in found if not tool_gap(path)), found[0])


def preferred_compiler() -> str:
    """Nothing is missing where the user has chosen."""
    if chosen := os.environ.get("CXX"):
        return chosen
    found = program(*CLANGS)()
    return found if found and not lacks_ranges(found) else ""


def lacks_ranges(tool: str) -> bool:
    return is_clang(tool) and version_of(tool) < CLANG_WITH_RANGES


def is_clang(tool: str) -> bool:
    return "clang" in os.path.basename(os.path.realpath(tool))


def build_seconds(clang: bool) -> int:
    """Of all that `make test` builds, on one core: measured at 2 GHz or so, and told before it begins."""
    return 120 if clang else 380


CLANG = "clang-19|clang"
REQUIRED = [Need("C++ compiler", CLANG, compiler, "nothing can be built")]
OPTIONAL = [
    Need(
        "clang++ 16 or newer",
        CLANG,
        preferred_compiler,
        "g++ needs three times as long, and an older clang does not compile <ranges>",
    ),
    Need("addr2line", "binutils", program("addr2line"), "a crash is reported without its line"),
]
GDB = Need("gdb", "gdb", program("gdb"), "make debug needs it")
# All that is ever asked of the system, with what brought a user here. README.md and tools/setup/python3.sh repeat it.
PACKAGES = sorted(
    {need.package.partition("|")[0] for need in (*REQUIRED, *OPTIONAL, GDB)}
    | {"ca-certificates", "git", "make", "python3"}
)


def sanitizers() -> list[Need]:
    """Only ALL=1 and SANITIZE= of make check need them."""
    asked_for = any(os.environ.get(name) for name in ("ALL", "SANITIZE"))
    return sanitizers_of(usable_compiler()) if asked_for and compiler() else []


def sanitizers_of(tool: str) -> list[Need]:
    """Clang's, which Debian packs apart from it."""
    if not is_clang(tool):
        return []
    major = version_of(tool)[0]
    pattern = f"/usr/lib/llvm-{major}/lib/clang/*/lib/linux/libclang_rt.asan-*.so"
    return [
        Need("sanitizers", f"libclang-rt-{major}-dev", lambda: next(glob.iglob(pattern), ""), "SANITIZE= needs them")
    ]


# What the package index has, too: the system's is taken where it is there, and not too old.


def cmake() -> str:
    found = shutil.which("cmake") or ""
    return found if found and not tool_gap(found) else ""


ninja = program("ninja")
libraries = {  # as find_package() calls them
    "GTest": header("gtest/gtest.h"),
    "nlohmann_json": header("nlohmann/json.hpp"),
    "CLI11": header("CLI/CLI.hpp"),
}


def version_of(tool: str) -> tuple[int, ...]:
    """The first dotted number that `tool --version` prints; empty if it does not run."""
    try:
        text = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"\b(\d+(?:\.\d+)+)\b", text)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def tool_gap(tool: str) -> str:
    """Why this compiler or CMake is too old, and what to do; empty if it is not."""
    name, found = os.path.basename(os.path.realpath(tool)), version_of(tool)
    if name.startswith("cmake"):
        wanted, advice = MINIMUM_CMAKE, "python3 -m pip install --user cmake"
    elif is_clang(tool):
        wanted, advice = MINIMUM_CLANG, "install a newer one and name it: CXX=clang++-19 make test"
    else:
        wanted, advice = MINIMUM_GCC, "install a newer one and name it: CXX=g++-12 make test"
    if found >= wanted:
        return ""
    return f"{tool} is version {dotted(found) or 'unknown'}, the lab needs {dotted(wanted)} or newer: {advice}"


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def how_to_install(packages: Iterable[str] = PACKAGES) -> str:
    """By default one line for all that may lack, so that nobody has to ask an administrator twice."""
    command = f"apt-get install --no-install-recommends {' '.join(packages)}"
    if os.geteuid() == 0:
        return f"To install: {command}"
    return f"To install: sudo {command}" if shutil.which("sudo") else f"Ask an administrator to run: {command}"


def can_install() -> bool:
    return os.geteuid() == 0 and bool(shutil.which("apt-get"))


def to_install(needs: list[Need]) -> list[str]:
    """The packages that provide() would install."""
    missing = [need.package for need in needs if need.missing()]
    return list(dict.fromkeys(missing)) if can_install() else []


def provide(needs: list[Need], log: Path) -> None:
    """Installs missing packages if permitted; raises LabError if a required one is still missing.

    A missing optional package is only reported, once, and the set-up continues.
    """
    if packages := to_install(needs):
        apt_install(packages, log)
    missing = [need for need in needs if need.missing()]
    if not missing:
        return
    lines = [f"  {need.name} is missing: {need.without}" for need in missing]
    if any(need in (*REQUIRED, GDB) for need in missing):
        raise LabError("\n".join(["The system lacks what this needs.", *lines, how_to_install()]))
    print("\n".join([*lines, f"  {how_to_install()}"]), flush=True)


def apt_install(packages: list[str], log: Path) -> None:
    """Installs, as root, the packages that this system has: for one unknown name apt-get would install none."""
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    options = ["-y", "-q", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=2"]
    progress.run(["apt-get", "update", *options], "Reading Debian's package lists", log, quiet)
    known = _known_packages()
    choices = [(package, _first_known(package, known)) for package in packages]
    there = [name for _, name in choices if name]
    if unknown := [package for package, name in choices if not name]:
        print(f"  apt-get knows no {', '.join(unknown).replace('|', ' or ')} (all it said: {log})", flush=True)
    if not there:
        return
    command = ["apt-get", "install", "--no-install-recommends", *options, *there]
    failed, lines = progress.run(command, f"Installing {', '.join(there)}", log, quiet)
    if failed:
        reason = next((line for line in lines if line.startswith("E: ")), "no reason given")
        print(f"  apt-get: {reason}\n  (all it said: {log})", flush=True)


def _first_known(package: str, known: set[str]) -> str:
    names = package.split("|")
    return next((name for name in names if name in known), "" if known else names[0])


def _known_packages() -> set[str]:
    """Empty: apt does not say."""
    try:
        return {*subprocess.run(["apt-cache", "pkgnames"], capture_output=True, text=True, check=False).stdout.split()}
    except OSError:
        return set()


# What pip is called in Debian, for environments: any user may fetch and unpack it.
_FETCH = """\
cd "$0" && mkdir -p state/lists/partial cache/archives/partial &&
set -- -q -o Dir::State="$0/state" -o Dir::Cache="$0/cache" -o Dir::State::status=/var/lib/dpkg/status &&
apt-get "$@" update && apt-get "$@" download python3-pip-whl && dpkg-deb -x python3-pip-whl_*.deb ."""


def fetch_pip(folder: Path, log: Path) -> str:
    """The wheel of pip that Debian gives to environments; needs no root. Empty: not to be had."""
    places = "usr/share/python-wheels/pip-*.whl"
    if not list(Path("/").glob(places)) and shutil.which("apt-get"):
        progress.run(["sh", "-c", _FETCH, str(folder)], "Fetching Debian's pip", log)
    return next((str(path) for root in (Path("/"), folder) for path in root.glob(places)), "")
