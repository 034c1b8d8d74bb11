"""What a test program needs and nothing defines, looked for once it is linked, and not when a test calls it.

A program may be linked without its stage's functions, which a rank gets with the stage's library. So the linker cannot
tell that anything else is missing, as it is where the compiler does not fit the one that has built libtorch.

    python3 -m tools.grading.compiling.unresolved     of all that is built, a line each; make doctor asks
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tools.grading.stages import all_stages, short_paths
from tools.setup.toolchain import BUILD_DIR

_MISSING = re.compile(r"undefined symbol: (\S+?)(?:, version \S+)?\s+\((.*)\)")


def missing(program: Path) -> list[str]:
    """What the loader does not find for this program, a line each, beside the functions that the stages' headers
    declare. Empty where the system cannot tell."""
    if not (shutil.which("ldd") and shutil.which("c++filt")):
        return []
    found = dict(_MISSING.findall(_said(["ldd", "-r", str(program)])))
    names = _said(["c++filt"], "\n".join(found)).splitlines() if found else []
    contracts = "".join(path.read_text() for stage in all_stages() for path in stage.headers())
    libraries = dict(zip(names, found.values()))
    return [
        f"{name}, for {short_paths(os.path.normpath(library))}"
        for name, library in libraries.items()
        if not _declared(name, contracts)
    ]


def missing_in(build_dir: Path) -> list[str]:
    """The same of all that is built there, each once."""
    programs = sorted((build_dir / "bin").glob("*"))
    return list(dict.fromkeys(line for program in programs for line in missing(program)))


def _said(command: list[str], given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def _declared(name: str, contracts: str) -> bool:
    function = re.match(r"ddp::(?:\w+::)*(\w+)", name)
    return bool(function) and bool(re.search(rf"\b{function[1]}\(", contracts))


if __name__ == "__main__":
    print("".join(f"{line}\n" for line in missing_in(BUILD_DIR)), end="")
