"""What the lab needs from the system, in which Debian package it is, and how to install it."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.setup import progress
from tools.setup.toolchain import LabError

HEADER_FOLDERS = ("/usr/include", "/usr/local/include")
MINIMUM_CMAKE = (3, 25)
MINIMUM_GCC, MINIMUM_CLANG = (11,), (14,)


@dataclass(frozen=True)
class Need:
    name: str
    package: str  # Debian's
    find: Callable[[], str]  # where it is; empty: missing
    without: str  # what happens without it

    def missing(self) -> bool:
        return not self.find()


def program(*names: str) -> Callable[[], str]:
    return lambda: next((path for name in names if (path := shutil.which(name))), "")


def header(name: str) -> Callable[[], str]:
    return lambda: next((f"{folder}/{name}" for folder in HEADER_FOLDERS if os.path.exists(f"{folder}/{name}")), "")


# The first is preferred: with a precompiled header, clang builds the lab in a third of GCC's time.
COMPILERS = ("clang++", "g++", "c++")


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
    return os.environ.get("CXX") or program(COMPILERS[0])()


def build_seconds(clang: bool) -> int:
    """Of all that `make test` builds, on one core: measured at 2 GHz or so, and told before it begins."""
    return 120 if clang else 380


def sanitizer() -> str:
    """Clang's, which Debian packs apart from it; only ALL=1 and SANITIZE= need it."""
    found = glob.glob("/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-*.so")
    asked_for = any(os.environ.get(name) for name in ("ALL", "SANITIZE"))
    return found[0] if found else "" if asked_for else "not asked for"


REQUIRED = [
    Need("C++ compiler", "clang", compiler, "nothing can be built"),
    Need("cmake", "cmake", program("cmake"), "nothing can be built"),
]
PREFERRED = Need("clang++", "clang", preferred_compiler, "g++ is taken, which needs three times as long")
LIBRARIES = [
    Need("GoogleTest", "libgtest-dev", header("gtest/gtest.h"), "a copy is downloaded and built"),
    Need("nlohmann-json", "nlohmann-json3-dev", header("nlohmann/json.hpp"), "a copy is downloaded"),
    Need("CLI11", "libcli11-dev", header("CLI/CLI.hpp"), "a copy is downloaded"),
]
OPTIONAL = [
    PREFERRED,
    Need("ninja", "ninja-build", program("ninja"), "builds start more slowly, with make"),
    Need("addr2line", "binutils", program("addr2line"), "a crash is reported without its line"),
]
FOR_CHECK = [
    Need("clang-format", "clang-format", program("clang-format-14", "clang-format"), "make check cannot judge format"),
    Need("clang-tidy", "clang-tidy", program("clang-tidy-14", "clang-tidy"), "make check cannot lint"),
    Need("sanitizers", "libclang-rt-14-dev", sanitizer, "make check ALL=1 skips them"),
]
PYTHON_VENV = Need("python3 -m venv", "python3-venv", lambda: "", "no virtual environment can be made")


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
    elif "clang" in name:
        wanted, advice = MINIMUM_CLANG, "install a newer one and name it: CXX=clang++-14 make test"
    else:
        wanted, advice = MINIMUM_GCC, "install a newer one and name it: CXX=g++-12 make test"
    if found >= wanted:
        return ""
    return f"{tool} is version {dotted(found) or 'unknown'}, the lab needs {dotted(wanted)} or newer: {advice}"


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def install_command(needs: list[Need]) -> str:
    packages = " ".join(dict.fromkeys(need.package for need in needs))
    return f"sudo apt-get install {packages}"


def can_install() -> bool:
    return os.geteuid() == 0 and bool(shutil.which("apt-get"))


def provide(needs: list[Need], log: Path) -> None:
    """Installs missing packages if permitted; raises LabError if a required one is still missing.

    A missing optional package is only reported, once, and the set-up continues.
    """
    missing = [need for need in needs if need.missing()]
    if missing and can_install():
        apt_install(missing, log)
        missing = [need for need in missing if need.missing()]
    if not missing:
        return
    lines = [f"  {need.name} is missing: {need.without}" for need in missing]
    how = f"To install: {install_command(missing)}"
    if any(need in REQUIRED for need in missing):
        raise LabError("\n".join(["The system lacks what the lab is built with.", *lines, how]))
    print("\n".join([*lines, f"  {how}"]), flush=True)


def apt_install(needs: list[Need], log: Path) -> bool:
    """Installs as root; returns whether that worked."""
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    options = ["-y", "-q", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=2"]
    title = f"Installing {', '.join(dict.fromkeys(need.package for need in needs))}"
    progress.run(["apt-get", "update", *options], "Reading Debian's package lists", log, quiet)
    packages = list(dict.fromkeys(need.package for need in needs))
    installed, lines = progress.run(
        ["apt-get", "install", "--no-install-recommends", *options, *packages], title, log, quiet
    )
    if not installed:
        reason = next((line for line in lines if line.startswith("E: ")), "no reason given")
        print(f"  apt-get: {reason}\n  (all it said: {log})", flush=True)
    return installed
