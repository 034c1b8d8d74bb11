"""How the build compiles a file, from its compile_commands.json."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from tools.grading.stages import short_paths
from tools.setup.toolchain import LabError


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
    raise LabError(f"{short_paths(str(source))} is not in {build_dir}/compile_commands.json: make setup")
