#!/usr/bin/env python3
"""Sets up the lab: Python and torch, system packages, CMake. Returns at once if all of it is done.

The choice is kept in build/toolchain.json, for the other tools and for the next run: PYTHON=, LIBTORCH= and CUDA_HOME,
once given, remain valid until another is given or the build folder is removed.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    sys.exit(f"The lab needs Linux, and Python 3.11 or newer; here is {sys.platform}, and {sys.version.split()[0]}.")

import argparse
import errno
import json
import os
import runpy
import shlex
import shutil
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from tools.setup import checkout_lock, configuring, system_packages, virtual_environment
from tools.setup.columns import columns, fold
from tools.setup.cuda import needed_parts, with_usable_gpus
from tools.setup.toolchain import (
    BUILD_DIR,
    DEFAULT_CUDA_HOME,
    ROOT,
    VENV,
    LabError,
    PythonFacts,
    Toolchain,
    active_pythons,
    load,
    nvcc,
    pinned,
    probe,
    require_packages,
    torch_gap,
    torch_version,
    unsupported_system,
    wanted_torch,
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """What the user chose; empty: the set-up chooses."""

    python: str
    libtorch: str
    cuda: str = ""  # the toolkit's folder


def main() -> int:
    arguments = parse_arguments()
    if gap := unsupported_system():
        return stop(gap)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.default_int_handler)
    try:
        set_up(needed_parts(arguments.for_figures, arguments.for_check, bool(arguments.then)))
        if arguments.for_check:
            require_packages(load().figure_python, virtual_environment.PACKAGES_OF_CHECK)
    except LabError as error:
        return stop(str(error))
    except KeyboardInterrupt:
        return stop("interrupted; run it again to go on.", 130)
    except OSError as error:
        return stop(explain(error))
    if arguments.then and arguments.with_packages:
        python = load().figure_python
        sys.stdout.flush()
        os.execv(python, [python, "-m", *arguments.then])
    if arguments.then:
        sys.argv = arguments.then
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Sets the lab up. From the environment: PYTHON (a Python with torch), LIBTORCH (an unpacked "
        "libtorch), CXX (a compiler)."
    )
    parser.add_argument("--for-figures", action="store_true", help="also what draws figures and sets the writeup")
    parser.add_argument("--for-check", action="store_true", help="also what only `make check` needs")
    parser.add_argument("--with-packages", action="store_true", help="run the module in the Python that has them")
    parser.add_argument("then", nargs=argparse.REMAINDER, help="a module to run then, with its arguments")
    return parser.parse_args()


def stop(message: str, code: int = 1) -> int:
    sys.stdout.flush()
    print(fold(f"\nSet-up stopped: {message}", columns()), file=sys.stderr)
    return code


def explain(error: OSError) -> str:
    where = error.filename or ROOT
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full at {where}. Free some space (`make clean` removes what is built), then run it again."
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"cannot write {where}: it is read-only or belongs to someone else. Clone into a folder of your own."
    return f"{error}"


def set_up(parts: frozenset[str]) -> None:
    for_check = virtual_environment.CHECK in parts
    lacks = for_check and any(need.missing() for need in system_packages.sanitizers())
    if complete(read_state(), parts) and not lacks:
        return
    with checkout_lock.hold(BUILD_DIR / "setup.lock", "setting up"):
        log = BUILD_DIR / "setup.log"
        state = read_state()  # again: whoever we waited for may have done it all
        if not complete(state, parts):
            renew(state, parts, log)
        if for_check:
            system_packages.provide(system_packages.sanitizers(), log)


def complete(state: dict, parts: frozenset[str]) -> bool:
    if not state or state["fingerprint"] != fingerprint(requested(state), state["toolchain"]):
        return False
    return not is_own(state["toolchain"].python) or parts <= virtual_environment.parts_there()


def is_own(python: str) -> bool:
    """True of the Python of a .venv that the lab has made."""
    return bool(python) and VENV in Path(python).parents and bool(virtual_environment.state())


def renew(state: dict, parts: frozenset[str], log: Path) -> None:
    """All steps; each of them does nothing where it is done already."""
    request = requested(state)
    os.environ["CUDA_HOME"] = request.cuda  # where CMake looks
    given = python_with_torch(request, state)
    own = not (request.libtorch or given)
    parts = with_usable_gpus(parts) if own else parts
    parts_here = virtual_environment.system_gaps() | (
        parts | {virtual_environment.TORCH, virtual_environment.PAGES} if own else frozenset()
    )
    needs = [*system_packages.REQUIRED, *system_packages.OPTIONAL]
    announce(virtual_environment.megabytes_to_come(parts_here), system_packages.to_install(needs), bool(state))
    system_packages.provide(needs, log)
    cxx = system_packages.usable_compiler()
    if gap := system_packages.tool_gap(cxx):
        raise LabError(gap)
    made = virtual_environment.provide(log, parts_here) if parts_here else None
    facts = None if request.libtorch else given or made
    libtorch = facts.torch if facts else request.libtorch
    cmake = system_packages.cmake() or virtual_environment.cmake()
    ninja = system_packages.ninja() or virtual_environment.ninja()
    python = facts.executable if facts else ""
    drawing, version = figure_python(request, facts), torch_version(libtorch)
    toolchain = Toolchain(python, drawing, libtorch, version, cxx, cmake, ninja, str(BUILD_DIR))
    write_state(request, toolchain, {})  # remembers the choice even if CMake fails
    with checkout_lock.hold(BUILD_DIR / "grade" / "lock", "setting up"):  # no build may be running
        notes = configuring.configure(toolchain, log)
    write_state(request, toolchain, fingerprint(request, toolchain))
    origin = toolchain.libtorch if request.libtorch else toolchain.python
    print(f"Set up: torch {toolchain.torch_version} of {origin}, {cxx}, {cmake}.")
    for note in notes if virtual_environment.CUDA in parts else ():
        print(note)
    sys.stdout.flush()


def announce(megabytes: int, packages: list[str], built_before: bool) -> None:
    """How long it will take, before anything is done."""
    to_come = [f"{megabytes} MB of Python packages"] if megabytes else []
    to_come += [f"Debian's {', '.join(name.partition('|')[0] for name in packages)}"] if packages else []
    parts = [f"download {' and '.join(to_come)}"] if to_come else []
    if not built_before:
        cores = len(os.sched_getaffinity(0))
        clang = system_packages.is_clang(system_packages.compiler()) or system_packages.can_install()
        minutes = system_packages.build_seconds(clang) / 60 / cores
        parts.append(f"build for about {max(1, round(minutes))} min on {cores} core{'s' if cores > 1 else ''}")
    if parts:
        print(f"The set-up will {', then '.join(parts)}. Later runs take seconds.", flush=True)


# What was chosen, and whether it still holds


def read_state() -> dict:
    try:
        state = json.loads((BUILD_DIR / "toolchain.json").read_text())
        return {**state, "toolchain": Toolchain(**state["toolchain"]), "request": Request(**state["request"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_state(request: Request, toolchain: Toolchain, fingerprint_now: dict) -> None:
    state = {"toolchain": vars(toolchain), "request": vars(request), "fingerprint": fingerprint_now}
    fresh = BUILD_DIR / "toolchain.json.new"
    fresh.write_text(json.dumps(state, indent=2) + "\n")
    fresh.replace(BUILD_DIR / "toolchain.json")


def requested(state: dict) -> Request:
    """What is given now, else what was given before."""
    libtorch = os.environ.get("LIBTORCH", "")
    folder = os.path.abspath(os.path.expanduser(libtorch)) if libtorch else ""
    given = Request(resolve_python(os.environ.get("PYTHON", "")), folder)
    before = state.get("request", given)
    chosen = given if given.python or given.libtorch else before
    return replace(chosen, cuda=os.path.realpath(os.environ.get("CUDA_HOME") or before.cuda or DEFAULT_CUDA_HOME))


def resolve_python(given: str) -> str:
    if not given:
        return ""
    path = os.path.expanduser(given)
    if os.path.isdir(path):
        program = shlex.quote(f"{path.rstrip('/')}/bin/python")
        raise LabError(f"PYTHON={given} is a folder. Name the program in it: PYTHON={program}")
    found = shutil.which(path)
    if not found:
        raise LabError(f"PYTHON={given}: no such program, or not yours to run. Give a path: PYTHON=/usr/bin/python3")
    return os.path.abspath(found)


def fingerprint(request: Request, toolchain: Toolchain) -> dict:
    """Everything whose change requires a new set-up. Uses file times only: starts no program."""
    files = [
        shutil.which("python3"),
        shutil.which("ccache"),
        toolchain.python,
        toolchain.figure_python,
        nvcc(request.cuda),
        toolchain.cxx,
    ]
    files += [*map(shutil.which, system_packages.COMPILERS), toolchain.cmake, toolchain.ninja]
    files += [virtual_environment.nccl_header()] if is_own(toolchain.python) else []
    files += [*(find() for find in system_packages.libraries.values()), str(virtual_environment.LIBRARIES)]
    files += [f"{toolchain.libtorch}/{name}" for name in ("version.py", "build-version", "lib/libtorch_cpu.so")]
    return {
        "checkout": str(ROOT),
        "request": vars(request),
        "environment": [os.environ.get(name, "") for name in ("VIRTUAL_ENV", "CXX")],
        "requirements": virtual_environment.requirements_hash(),
        "files": [identity(path) for path in files],
        "configured": all(Path(toolchain.build_dir, name).exists() for name in ("build.ninja", "CMakeCache.txt")),
    }


def identity(path: str | None) -> list:
    try:
        facts = os.stat(path or "")
    except OSError:
        return [path or "", "missing"]
    return [path, os.path.realpath(path), facts.st_mtime_ns, facts.st_size]


def python_with_torch(request: Request, state: dict) -> PythonFacts | None:
    """The given Python, else an active one that fits, else the one used before; none where a libtorch is given."""
    if request.libtorch:
        if gap := torch_gap(request.libtorch):
            wanted = f"an unpacked libtorch {wanted_torch()}, a folder with include/ and lib/"
            raise LabError(f"LIBTORCH={request.libtorch} {gap}. Give {wanted} (make clean forgets it).")
        return None
    if request.python:
        facts = probe(request.python)
        if not facts:
            raise LabError(f"PYTHON={request.python} does not start as a Python. Name another (make clean forgets it).")
        if gap := torch_gap(facts.torch):
            pip = f"{shlex.quote(request.python)} -m pip install torch=={pinned('torch')}"
            raise LabError(f"PYTHON={request.python} {gap}. Name another (make clean forgets it), or: {pip}")
        return replace(facts, executable=request.python)
    before = [state["toolchain"].python] if state and state["toolchain"].python else []
    others = [path for path in before if virtual_environment.VENV not in Path(path).parents]
    for python in [*active_pythons(), *others]:
        facts = probe(python)
        if facts and not torch_gap(facts.torch):
            return facts
    return None


def figure_python(request: Request, chosen: PythonFacts | None) -> str:
    """A Python with matplotlib, else the first one found: figures then say what to install."""
    if chosen and chosen.can_draw:
        return chosen.executable
    paths = [request.python] if request.python else [*active_pythons(), f"{virtual_environment.VENV}/bin/python"]
    found = [facts for facts in [chosen, *map(probe, paths)] if facts]
    return next((facts.executable for facts in found if facts.can_draw), found[0].executable if found else "python3")


if __name__ == "__main__":
    sys.exit(main())
