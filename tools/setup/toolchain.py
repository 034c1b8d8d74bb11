"""What the lab is built with: found by tools/setup/setup.py, read by all other tools.

toolchain = load()
subprocess.run([toolchain.cmake, "--build", toolchain.build_dir, ...])
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD_DIR = ROOT / "build"
VENV = ROOT / ".venv"
REQUIREMENTS = ROOT / "requirements.txt"
RELEASE = "release.json"  # in what was handed out to students; tools/grading/released.py
OLDEST_TORCH = "2.11"  # as CMakeLists.txt has it, too; the newest is the one that requirements.txt pins
DEFAULT_CUDA_HOME = "/usr/local/cuda"
SYSTEMS = {"Darwin": "macOS"}  # others are called what they call themselves
MACHINES = ("x86_64", "aarch64")
# What the scripts in figures/ import.
FIGURE_PACKAGES = ("jsonschema", "matplotlib", "numpy", "pandas", "tabulate")


class LabError(Exception):
    """A mistake or a gap that the user can fix; its text says what, where, and what to do."""


def unsupported_system() -> str:
    """Why the lab cannot run on this system at all, and what can be done; empty where it can."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux":
        return (
            f"The lab runs on Linux alone, and this is {SYSTEMS.get(system, system)}: its ranks are made of what only "
            "Linux has. Run it in a Linux container (such as the devcontainer), in WSL or on another machine; "
            "docs/setup.md says what is tested."
        )
    if machine not in MACHINES:
        return f"The lab needs PyTorch, of which there is no build for {machine}: only for {' and '.join(MACHINES)}."
    return ""


@dataclass(frozen=True)
class Toolchain:
    python: str  # the Python whose torch is used; empty with LIBTORCH=
    figure_python: str  # the Python that draws figures; without FIGURE_PACKAGES if no Python has them
    libtorch: str  # the folder with include/ and lib/
    torch_version: str  # such as 2.15.0+cu132
    cxx: str
    cmake: str
    ninja: str
    build_dir: str


def how_to_restore(name: str) -> str:
    """The command that gets a file or folder of the lab back as it was."""
    return f"git checkout -- {name}" if (ROOT / ".git").exists() else "unpack the course's archive again"


def load(build_dir: Path = BUILD_DIR) -> Toolchain:
    """The toolchain that the last set-up chose; if there is none, ends the program with advice."""
    try:
        return Toolchain(**json.loads((build_dir / "toolchain.json").read_text())["toolchain"])
    except (OSError, ValueError, KeyError, TypeError):
        raise SystemExit("The lab is not set up here. Run: make setup") from None


def torch_range() -> tuple[str, str]:
    """The oldest and the newest torch release that the lab builds on, such as 2.15: any patch of it fits."""
    return OLDEST_TORCH, ".".join(pinned("torch").split(".")[:2])


def wanted_torch() -> str:
    """The same in words."""
    return " to ".join(torch_range())


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def pinned(package: str) -> str:
    match = re.search(rf"^{package}==(\S+)", REQUIREMENTS.read_text(), re.MULTILINE)
    if not match:
        raise LabError(f"requirements.txt pins no {package}. Restore it: {how_to_restore('requirements.txt')}")
    return match[1]


_MISSING = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        print(name)
"""


def require_packages(python: str, names: Iterable[str]) -> None:
    """Stops where this Python lacks one of these packages: one that the user has given, which nobody else adds to."""
    found = subprocess.run([python, "-c", _MISSING, *names], capture_output=True, text=True, check=False)
    if missing := found.stdout.split():
        pins = " ".join(f"{name}=={pinned(name)}" for name in missing)
        raise LabError(
            f"{python} lacks {', '.join(missing)}. Install what it lacks: {shlex.quote(python)} -m pip install {pins}"
        )


@dataclass(frozen=True)
class PythonFacts:
    """What one Python has, found without importing any of it."""

    executable: str
    version: tuple[int, int]
    torch: str  # the package's folder; empty without torch
    can_draw: bool  # has FIGURE_PACKAGES
    has_pip: bool  # for an environment that it makes


_PROBE = f"""
import importlib.util as u, json, sys
def where(name):
    spec = u.find_spec(name)
    return list(spec.submodule_search_locations)[0] if spec and spec.submodule_search_locations else ""
print(json.dumps([sys.executable, sys.version_info[:2], where("torch"),
                  all(map(where, {FIGURE_PACKAGES})), bool(where("ensurepip"))]))
"""


def probe(python: str) -> PythonFacts | None:
    """The facts about a Python; None if it does not start or is not one."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=60, cwd=ROOT, stdin=subprocess.DEVNULL
        )
        executable, version, torch, can_draw, has_pip = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return PythonFacts(executable, tuple(version), torch, can_draw, has_pip)


def torch_version(folder: str) -> str:
    """The version of a torch package or an unpacked libtorch; empty if it has none."""
    for name in ("version.py", "build-version"):
        try:
            match = re.search(r"\d+\.\d+\.\d+[\w.+]*", Path(folder, name).read_text())
        except (OSError, UnicodeDecodeError):
            continue
        if match:
            return match[0]
    return ""


def torch_gap(folder: str) -> str:
    """Why the lab cannot be built on the torch in this folder; empty if it can."""
    if not folder:
        return "has no torch"
    for part in ("include/ATen/ATen.h", "lib/libtorch_cpu.so", "lib/libc10.so"):
        if not Path(folder, part).exists():
            return f"has no {part}, which the lab builds on"
    found, (oldest, newest) = torch_version(folder), map(_release, torch_range())
    if not oldest <= _release(found) <= newest:
        return f"has torch {found or 'of an unknown version'}, the lab needs {wanted_torch()}"
    return ""


def active_pythons() -> list[str]:
    """The user's Pythons, beside .venv: an activated environment's, then python3 on the path."""
    environment = os.environ.get("VIRTUAL_ENV")
    candidates = [f"{environment}/bin/python" if environment else "", shutil.which("python3") or ""]
    return [path for path in candidates if path and VENV not in Path(path).parents]


def nvcc(home: str = "") -> str:
    """The CUDA Toolkit's compiler, of this folder, of CUDA_HOME's or the usual one; empty without one."""
    home = home or os.environ.get("CUDA_HOME") or DEFAULT_CUDA_HOME
    return shutil.which(f"{home}/bin/nvcc") or shutil.which("nvcc") or ""
