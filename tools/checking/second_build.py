"""A build of the lab beside the student's, in a folder of its own: by another compiler, on another torch, sanitized."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tools.checking.context import Context, describe, graded_stages
from tools.grading.compiling.compile_errors import condense
from tools.setup import system_packages
from tools.setup.configuring import cmake_command
from tools.setup.system_packages import Need, program, tool_gap, version_of
from tools.setup.toolchain import LabError, torch_range, torch_version

TESTED = {"clang++": range(14, 22), "g++": range(12, 17)}  # README.md says the same
ENDS = {"oldest": list, "newest": lambda versions: [*reversed(versions)]}


def compiler(context: Context, family: str, end: str) -> str:
    """The oldest or newest tested compiler that this machine can have, under whatever name; empty if there is none."""
    versions = ENDS[end](TESTED[family])
    names = [f"{family}-{version}" for version in versions]
    packages = "|".join(re.sub(r"^clang\+\+", "clang", name) for name in names)
    need = Need(names[0], packages, program(names[0]), "")
    if wanted := system_packages.to_install([need]):
        system_packages.apt_install(wanted, context.folder() / "compilers.log")
    return program(*names)() or _by_its_own_name(family, versions)


def _by_its_own_name(family: str, versions: Sequence[int]) -> str:
    found = shutil.which(family) or ""
    return found if found and not tool_gap(found) and version_of(found)[0] in versions else ""


def oldest_torch(context: Context) -> Path:
    """The oldest release that the lab builds on, beside the libraries of the one that is used; fetched if need be."""
    version = f"{torch_range()[0]}.0"
    torch = context.folder(f"torch_{version}") / "torch"
    if not torch_version(str(torch)).startswith(version):
        _fetch_torch(context, torch, version)
    beside = torch.parent / "nvidia"
    beside.unlink(missing_ok=True)
    beside.symlink_to(Path(context.toolchain.libtorch).parent / "nvidia")  # what libtorch_cpu.so needs of CUDA
    return torch


def _fetch_torch(context: Context, torch: Path, version: str) -> None:
    shutil.rmtree(torch, ignore_errors=True)
    log, python = torch.parent / "pip.log", context.toolchain.python or context.toolchain.figure_python
    with tempfile.TemporaryDirectory(dir=torch.parent) as folder:
        what = ["--progress-bar=off", "--no-deps", "-d", folder, f"torch=={version}"]
        code, text = context.run([python, "-m", "pip", "download", *what], log)
        if code:
            said = "\n".join(text.splitlines()[-8:])
            raise LabError(describe(f"torch {version} could not be downloaded", said, log))
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            parts = ("torch/include/", "torch/lib/", "torch/version.py")
            wheel.extractall(torch.parent, [name for name in wheel.namelist() if name.startswith(parts)])


def stage_targets() -> list[str]:
    return [target for stage in graded_stages() for target in (f"tests_{stage.name}", f"solutions_{stage.name}")]


def second_build(
    context: Context, name: str, targets: Sequence[str], options: Sequence[str] = (), **toolchain: str
) -> Context:
    """Builds `targets`, if any, in a folder of this name, with what differs in the toolchain; returns that build."""
    folder = context.folder(name)
    other = replace(context, toolchain=replace(context.toolchain, build_dir=str(folder), **toolchain))
    log = folder / "configure.log"
    code, text = other.run([*cmake_command(other.toolchain), *options], log)
    failure = describe(f"Configuring {name}", condense(text), log) if code else ""
    if failure := failure or (other.build(targets) if targets else ""):
        raise LabError(failure)
    return other
