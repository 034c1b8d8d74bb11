"""Steps of `make check ALL=1`: other compilers than the chosen one, and another PyTorch, build the stages too, and the
solutions get full marks. What they build is alike for a student, whatever is installed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tools.checking.context import Context, Outcome
from tools.checking.second_build import build_and_grade, fetch_torch, lacking
from tools.setup.system_packages import Need, program, tool_gap, version_of
from tools.setup.toolchain import torch_range

TESTED = {"clang++": range(14, 20), "g++": range(12, 15)}  # README.md says the same


def check_compilers(context: Context) -> Outcome:
    """The oldest and the newest clang and g++ that this machine can have, without the one that was chosen."""
    outcome, log = Outcome(), context.folder() / "compilers.log"
    for family, versions in TESTED.items():
        ends = [_provide(family, some, log) for some in (versions, reversed(versions))]
        if not any(ends):
            outcome.skipped.append(f"no {family} {versions[0]} to {versions[-1]} is here or can be installed")
        for compiler in sorted({*filter(None, ends)}):
            if Path(compiler).resolve() != Path(context.toolchain.cxx).resolve():
                outcome.take([build_and_grade(context, f"built_by_{Path(compiler).name}", cxx=compiler)])
    return outcome


def _provide(family: str, versions: range | reversed, log: Path) -> str:
    """The first of these versions that is here or can be installed, under whatever name."""
    names = [f"{family}-{version}" for version in versions]
    packages = "|".join(re.sub(r"^clang\+\+", "clang", name) for name in names)
    lacking([Need(names[0], packages, program(names[0]), "")], log)
    return program(*names)() or _by_its_own_name(family, versions)


def _by_its_own_name(family: str, versions: range | reversed) -> str:
    found = shutil.which(family) or ""
    return found if found and not tool_gap(found) and version_of(found)[0] in [*versions] else ""


def check_oldest_torch(context: Context) -> Outcome:
    """The oldest release that the lab builds on, beside the libraries of the one that is used."""
    version = f"{torch_range()[0]}.0"
    torch = context.folder(f"torch_{version}") / "torch"
    if failure := fetch_torch(context, torch, version):
        return Outcome.of(failure)
    beside = torch.parent / "nvidia"
    beside.unlink(missing_ok=True)
    beside.symlink_to(Path(context.toolchain.libtorch).parent / "nvidia")  # what libtorch_cpu.so needs of CUDA
    return build_and_grade(context, f"built_on_torch_{version}", python="", libtorch=str(torch))
