"""What a test program needs and nothing defines, looked for once it is linked, and not when a test calls it.

A program may be linked without the functions of its stage or of baselines, which a rank gets with a library that it
loads. So the linker cannot tell that anything else is missing, as it is where the compiler does not fit the one
that has built libtorch.

    python3 -m tools.grading.compiling.unresolved     of all that is built, a line each; make doctor asks
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tools.grading.stages import all_stages, short_paths
from tools.setup.toolchain import BUILD_DIR, ROOT

BASELINES = ROOT / "common" / "ddp" / "baselines"
_MISSING = re.compile(r"undefined symbol: (\S+?)(?:, version \S+)?\s+\((.*)\)")


def missing(program: Path) -> list[str]:
    """What the loader does not find for this program, a line each, beside the functions that the headers of stages and
    baselines declare. Empty where the system cannot tell."""
    if not (shutil.which("ldd") and shutil.which("c++filt")):
        return []
    found = dict(_MISSING.findall(_said(["ldd", "-r", str(program)])))
    names = _said(["c++filt"], "\n".join(found)).splitlines() if found else []
    headers = [*(path for stage in all_stages() for path in stage.headers()), *BASELINES.glob("*.h")]
    contracts = "".join(path.read_text() for path in headers)
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
