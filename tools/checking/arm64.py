"""Step of `make check ALL=1`: everything is compiled and linked for arm64, on whatever machine this is.

By clang, with PyTorch's own build for arm64 and Debian's C and C++ libraries for cross compiling. Nothing of it runs
here; each function that a program or library lacks must be in what it is loaded with. docs/machines.md has what came
when it ran.
"""

from __future__ import annotations

import glob
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tools.checking.context import Context, Outcome, describe
from tools.checking.second_build import second_build
from tools.setup import system_packages
from tools.setup.system_packages import Need
from tools.setup.toolchain import ROOT, pinned, torch_version

MACHINE = "aarch64"
TOOLCHAIN = ROOT / "cmake" / MACHINE / "toolchain.cmake"
SYSTEM_LIBRARIES = Path("/usr/aarch64-linux-gnu/lib")
_USED_OF_THEM = ("libc", "libm", "libstdc++", "libgcc_s", "ld-linux-aarch64")
_WHEEL = "manylinux_2_28_aarch64"


def _first(pattern: str) -> str:
    return next(iter(glob.glob(pattern)), "")


NEEDS = [
    Need("clang++", "clang", system_packages.program("clang++"), "g++ compiles for one machine alone"),
    Need("lld", "lld", system_packages.program("ld.lld"), "nothing is linked"),
    Need("nm", "binutils", system_packages.program("nm"), "nobody looks for what is undefined"),
    Need(
        "arm64's C++ library",
        "g++-aarch64-linux-gnu",
        lambda: _first("/usr/lib/gcc-cross/aarch64-linux-gnu/*/libstdc++.so"),
        "nothing is compiled",
    ),
    Need("GoogleTest's source", "googletest", lambda: _first("/usr/src/googletest/googletest"), "no test is linked"),
]


def check_arm64(context: Context) -> Outcome:
    if platform.machine() == MACHINE:
        return Outcome(skipped=["this machine is an arm64: all other steps check it"])
    log = context.folder() / "arm64_packages.log"
    if system_packages.can_install() and (missing := [need for need in NEEDS if need.missing()]):
        system_packages.apt_install(missing, log)
    if missing := [need for need in NEEDS if need.missing()]:
        names = ", ".join(need.name for need in missing)
        return Outcome(skipped=[f"{names}: missing. To install: {system_packages.install_command(missing)}"])
    torch = context.folder("torch_for_arm64") / "torch"
    if not torch_version(str(torch)).startswith(pinned("torch")) and (failure := fetch_torch(context, torch)):
        return Outcome.of(failure)
    compiler = context.toolchain.cxx if context.uses_clang else shutil.which("clang++")
    on_arm64 = replace(context, toolchain=replace(context.toolchain, python="", libtorch=str(torch)))
    other, failure = second_build(on_arm64, "arm64", compiler, ["all"], [f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}"])
    return Outcome.of(failure or describe_undefined(other.build_dir, torch / "lib"))


def fetch_torch(context: Context, torch: Path) -> str:
    """Brings the headers and libraries of PyTorch's build for arm64. Returns what went wrong; empty if nothing did."""
    shutil.rmtree(torch, ignore_errors=True)
    log, python = torch.parent / "pip.log", context.toolchain.python or context.toolchain.figure_python
    with tempfile.TemporaryDirectory(dir=torch.parent) as folder:
        context.show("downloading torch for arm64, 420 MB")
        what = ["--no-deps", "--only-binary=:all:", f"--platform={_WHEEL}", f"torch=={pinned('torch')}"]
        code, text = context.run([python, "-m", "pip", "download", "--progress-bar=off", "-d", folder, *what], log)
        if code:
            return describe("PyTorch for arm64 could not be downloaded", "\n".join(text.splitlines()[-8:]), log)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            parts = ("torch/include/", "torch/lib/", "torch/version.py")
            wheel.extractall(torch.parent, [name for name in wheel.namelist() if name.startswith(parts)])
    return ""


def describe_undefined(build_dir: Path, torch_libraries: Path) -> str:
    built = [*build_dir.glob("lib/*.so"), *build_dir.glob("bin/*"), *build_dir.glob("stages/solutions/*/libstage.so")]
    there = [path for name in _USED_OF_THEM for path in SYSTEM_LIBRARIES.glob(f"{name}.so.*")]
    there += torch_libraries.glob("*.so*")
    lines = [f"{path.relative_to(build_dir)}: {name}" for path, name in undefined(built, there)]
    return describe("Built for arm64, and nowhere defined", "\n".join(lines)) if lines else ""


def undefined(built: list[Path], there: Iterable[Path]) -> list[tuple[Path, str]]:
    """What the built programs and libraries use, and neither they nor the libraries that are there define."""
    defined = {name for path in [*built, *there] for name in _symbols(path, "--defined-only")}
    return [(path, name) for path in built for name in _symbols(path, "--undefined-only") if name not in defined]


def _symbols(path: Path, which: str) -> list[str]:
    """By name, without versions; not those that may be missing (weak ones)."""
    said = subprocess.run(["nm", "-D", "-P", which, str(path)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^([^\s@]+)\S* (?![wv] )", said, re.MULTILINE)
