"""A build of the lab beside the student's, in a folder of its own: by another compiler, on another torch, sanitized.

Two steps of `make check ALL=1` are here, too: other compilers than the chosen one, and another PyTorch, build the
stages, and the solutions get full marks. What they build is alike for a student, whatever is installed.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tools.checking.context import CORES, Context, Outcome, describe, describe_tests, graded_stages
from tools.grading.compiling import unresolved
from tools.grading.compiling.compile_errors import condense
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import Status
from tools.grading.stages import Stage
from tools.setup import system_packages
from tools.setup.configuring import cmake_command
from tools.setup.system_packages import Need, program, tool_gap, version_of
from tools.setup.toolchain import torch_range, torch_version

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


def stage_targets() -> list[str]:
    return [target for stage in graded_stages() for target in (f"tests_{stage.name}", f"solutions_{stage.name}")]


def second_build(
    context: Context, name: str, targets: Sequence[str], options: Sequence[str] = (), **toolchain: str
) -> tuple[Context, str]:
    """Builds `targets` in a folder of this name, with what is different in the toolchain. Returns the context of that
    build, and what went wrong; empty if nothing did."""
    folder = context.folder(name)
    other = replace(context, toolchain=replace(context.toolchain, build_dir=str(folder), **toolchain))
    build = [other.toolchain.cmake, "--build", str(folder), "--parallel", str(CORES), "--target", *targets]
    for command in ([*cmake_command(other.toolchain), *options], build):
        log = folder / "build.log"
        code, text = other.run(command, log)
        if code:
            return other, describe(f"The build in {name}", condense(text), log)
    return other, ""


def lacking(needs: list[Need], log: Path) -> str:
    """What of these is not there and could not be installed, and what to do; empty if all is there."""
    if packages := system_packages.to_install(needs):
        system_packages.apt_install(packages, log)
    missing = [need for need in needs if need.missing()]
    names = ", ".join(need.name for need in missing)
    packages = sorted({need.package.partition("|")[0] for need in missing})
    return f"{names}: missing. {system_packages.how_to_install(packages)}" if missing else ""


def build_and_grade(context: Context, name: str, **toolchain: str) -> Outcome:
    """The stages are built, and the solutions get full marks; benchmarks are left to the toolchain that was chosen."""
    other, failure = second_build(context, name, stage_targets(), **toolchain)
    if not failure and (missing := unresolved.missing_in(other.build_dir)):
        failure = describe(f"{name} lacks what nothing defines", "\n".join(missing))
    if failure:
        return Outcome.of(failure)
    return grade_solutions(other, RunOptions(other.seed))


def fetch_torch(context: Context, torch: Path, version: str, *options: str) -> str:
    """Unpacks what the lab needs of this PyTorch into the folder `torch`, unless it is there; pip takes `options`.
    Returns what went wrong; empty if nothing did."""
    if torch_version(str(torch)).startswith(version):
        return ""
    shutil.rmtree(torch, ignore_errors=True)
    torch.parent.mkdir(parents=True, exist_ok=True)
    log, python = torch.parent / "pip.log", context.toolchain.python or context.toolchain.figure_python
    with tempfile.TemporaryDirectory(dir=torch.parent) as folder:
        what = ["--progress-bar=off", "--no-deps", *options, "-d", folder, f"torch=={version}"]
        code, text = context.run([python, "-m", "pip", "download", *what], log)
        if code:
            said = "\n".join(text.splitlines()[-8:])
            return describe(
                f"torch {version} {' '.join(options)} could not be downloaded".replace("  ", " "), said, log
            )
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            parts = ("torch/include/", "torch/lib/", "torch/version.py")
            wheel.extractall(torch.parent, [name for name in wheel.namelist() if name.startswith(parts)])
    return ""


def grade_solutions(other: Context, options: RunOptions, untimed: bool = False) -> Outcome:
    """The solutions get full marks in that build. `untimed`: but for the reports about speed."""
    return Outcome().take(other.each(partial(_grade, other, options, untimed), graded_stages()))


def _grade(other: Context, options: RunOptions, untimed: bool, stage: Stage) -> Outcome:
    tests = [spec for spec in other.tests_of(stage) if spec.points or not untimed]
    report = other.grade(stage, other.builder.library(stage, "solutions"), tests, options)
    bad = [result for result in report.results if result.status not in (Status.PASSED, Status.SKIPPED)]
    return Outcome.of(describe(f"{stage.name} in {other.build_dir.name}", describe_tests(bad)) if bad else "")
