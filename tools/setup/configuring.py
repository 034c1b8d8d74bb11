"""Runs CMake's configure step for the chosen toolchain; says in a few lines why it failed; how files are compiled."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

from tools.setup import progress
from tools.setup.toolchain import ROOT, LabError, Toolchain

_INCLUDED = re.compile(r'^#include "(.*)"$', re.MULTILINE)
GENERATOR = "Ninja"
KEPT = {"setup.lock", "setup.log", "toolchain.json", "grade"}  # in a build folder that is configured anew


def configure(toolchain: Toolchain, log: Path) -> list[str]:
    """Returns what CMake said about the optional parts."""
    lines = run_cmake(toolchain, log)
    write_compile_commands(Path(toolchain.build_dir))
    return [line.removeprefix("-- ") for line in lines if line.startswith("-- CUDA")]


def run_cmake(toolchain: Toolchain, log: Path, *options: str) -> list[str]:
    """Configures its build folder, anew if it was for something else; returns CMake's last lines."""
    if not same_cache(toolchain):
        clear(Path(toolchain.build_dir))
    failed, lines = progress.run([*cmake_command(toolchain), *options], "Configuring with CMake", log)
    if failed:
        raise LabError(configure_failure(lines, log))
    return lines


def cmake_command(toolchain: Toolchain) -> list[str]:
    argv = [toolchain.cmake, "-S", str(ROOT), "-B", toolchain.build_dir, "-G", GENERATOR]
    argv += [f"-DCMAKE_CXX_COMPILER={toolchain.cxx}", f"-DDDP_LAB_PYTHON={toolchain.python or sys.executable}"]
    argv += [f"-DCMAKE_MAKE_PROGRAM={toolchain.ninja}"]
    return argv + [f"-DLIBTORCH={'' if toolchain.python else toolchain.libtorch}"]


def same_cache(toolchain: Toolchain) -> bool:
    """Whether the build folder was configured for this checkout, Ninja and compiler: CMake can't change those."""
    wanted = {"CMAKE_HOME_DIRECTORY": str(ROOT), "CMAKE_GENERATOR": GENERATOR, "CMAKE_CXX_COMPILER": toolchain.cxx}
    found = cache(Path(toolchain.build_dir))
    return not found or all(found.get(name) == value for name, value in wanted.items())


def cache(build_dir: Path) -> dict[str, str]:
    """CMake's variables of this build folder; none if it was not configured."""
    path = build_dir / "CMakeCache.txt"
    entries = [line.partition("=") for line in path.read_text().splitlines()] if path.exists() else []
    return {name.partition(":")[0]: value for name, _, value in entries}


def clear(build_dir: Path) -> None:
    for path in build_dir.iterdir():
        if path.name in KEPT:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def configure_failure(lines: list[str], log: Path) -> str:
    text = "\n".join(lines)
    if "No space left on device" in text:
        return f"the disk is full at {log.parent}. Free some space, then run it again."
    first = next((i for i, line in enumerate(lines) if line.startswith("CMake Error")), max(0, len(lines) - 12))
    excerpt = "\n".join("  | " + line for line in lines[first : first + 12])
    return f"CMake failed (all it said: {log}).\n{excerpt}"


def compile_commands(build_dir: Path) -> list[dict[str, str]]:
    """The build's compile_commands.json. Of files that CMake compiles together each has an entry of its own."""
    entries = []
    for entry in json.loads((build_dir / "compile_commands.json").read_text()):
        unit = Path(entry["file"])
        parts = _INCLUDED.findall(unit.read_text()) if unit.parent.name == "Unity" else [entry["file"]]
        entries += [entry | {"file": part, "command": entry["command"].replace(str(unit), part)} for part in parts]
    return entries


def write_compile_commands(build_dir: Path) -> None:
    """Into the checkout's root, where editors look for it."""
    fresh = build_dir / "compile_commands.expanded.json"
    fresh.write_text(json.dumps(compile_commands(build_dir), indent=1))
    fresh.replace(ROOT / "compile_commands.json")


def compile_command(build_dir: Path, source: Path) -> list[str]:
    """How the build compiles `source`, without its input and output."""
    words = _build_command(build_dir, source)
    output = words.index("-o")
    del words[output : output + 2]
    return [word for word in words if word not in ("-c", str(source))]


def object_of(build_dir: Path, source: Path) -> Path:
    """What the build has made of `source`."""
    words = _build_command(build_dir, source)
    return build_dir / words[words.index("-o") + 1]


def _build_command(build_dir: Path, source: Path) -> list[str]:
    for entry in json.loads((build_dir / "compile_commands.json").read_text()):
        if entry["file"] == str(source):
            return shlex.split(entry["command"])
    raise LabError(f"{source} is not in {build_dir}/compile_commands.json: make setup")
