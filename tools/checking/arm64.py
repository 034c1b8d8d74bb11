"""Step of `make check ALL=1`: everything is compiled and linked for arm64, on whatever machine this is.

By clang, with PyTorch's own build for arm64 and Debian's C and C++ libraries for cross compiling. Nothing of it runs
here; each function that a program or library lacks must be in what it is loaded with. docs/machines.md has what came
when it ran.
"""

from __future__ import annotations

import glob
import platform
import re
import subprocess
from pathlib import Path

from tools.checking.context import Context, Outcome, describe, graded_stages
from tools.checking.second_build import fetch_torch, lacking, second_build
from tools.grading.strangers.untrusted import refused_functions
from tools.setup.system_packages import CLANG, CLANGS, Need, program
from tools.setup.toolchain import ROOT, pinned

MACHINE = "aarch64"
TOOLCHAIN = ROOT / "cmake" / MACHINE / "toolchain.cmake"
SYSTEM_LIBRARIES = Path("/usr/aarch64-linux-gnu/lib")
_USED_OF_THEM = ("libc", "libm", "libstdc++", "libgcc_s", "ld-linux-aarch64")
_LIBSTDCXX = "/usr/lib/gcc-cross/aarch64-linux-gnu/*/libstdc++.so"
_WHEEL = "manylinux_2_28_aarch64"


def _first(pattern: str) -> str:
    return next(iter(glob.glob(pattern)), "")


NEEDS = [
    Need("clang++", CLANG, program(*CLANGS), "g++ compiles for one machine alone"),
    Need("lld", "lld", program("ld.lld"), "nothing is linked"),
    Need("nm", "binutils", program("nm"), "nobody looks for what is undefined"),
    Need("arm64's C++ library", "g++-aarch64-linux-gnu", lambda: _first(_LIBSTDCXX), "nothing is compiled"),
    Need("GoogleTest's source", "googletest", lambda: _first("/usr/src/googletest/googletest"), "no test is linked"),
]


def check_arm64(context: Context) -> Outcome:
    if platform.machine() == MACHINE:
        return Outcome(skipped=["this machine is an arm64: all other steps check it"])
    if gap := lacking(NEEDS, context.folder() / "arm64_packages.log"):
        return Outcome(skipped=[gap])
    torch = context.folder("torch_for_arm64") / "torch"
    if failure := fetch_torch(context, torch, pinned("torch"), "--only-binary=:all:", f"--platform={_WHEEL}"):
        return Outcome.of(failure)
    compiler = context.toolchain.cxx if context.uses_clang else program(*CLANGS)()
    changes = {"cxx": compiler, "python": "", "libtorch": str(torch)}
    other, failure = second_build(context, "arm64", ["all"], [f"-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}"], **changes)
    if failure:
        return Outcome.of(failure)
    found = (describe_undefined(other.build_dir, torch / "lib"), describe_refused(other))
    return Outcome().take(map(Outcome.of, found))


def describe_undefined(build_dir: Path, torch_libraries: Path) -> str:
    built = [*build_dir.glob("lib/*.so"), *build_dir.glob("bin/*"), *build_dir.glob("stages/solutions/*/libstage.so")]
    there = [path for name in _USED_OF_THEM for path in SYSTEM_LIBRARIES.glob(f"{name}.so.*")]
    there += torch_libraries.glob("*.so*")
    lines = [f"{path.relative_to(build_dir)}: {name}" for path, name in undefined(built, there)]
    return describe("Built for arm64, and nowhere defined", "\n".join(lines)) if lines else ""


def describe_refused(other: Context) -> str:
    """What compilers bring into a stage on arm64 alone, UNTRUSTED=1 has to know, too."""
    lines = [
        f"{stage.name}: {name}"
        for stage in graded_stages()
        for name in refused_functions(stage, other.builder.library(stage, "solutions"))
    ]
    return describe("UNTRUSTED=1 refuses, on arm64, what solutions use", "\n".join(lines)) if lines else ""


def undefined(built: list[Path], there: list[Path]) -> list[tuple[Path, str]]:
    """What the built programs and libraries use, and neither they nor the libraries that are there define."""
    defined = {name for path in [*built, *there] for name in _symbols(path, "--defined-only")}
    return [(path, name) for path in built for name in _symbols(path, "--undefined-only") if name not in defined]


def _symbols(path: Path, which: str) -> list[str]:
    """By name, without versions; not those that may be missing (weak ones)."""
    said = subprocess.run(["nm", "-D", "-P", which, str(path)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^([^\s@]+)\S* (?![wv] )", said, re.MULTILINE)
