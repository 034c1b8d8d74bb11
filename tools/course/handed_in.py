"""Compiles a stage that somebody handed in, as the build compiles the stage's stub, in a folder of its own.

Nothing of the checkout is written, so several can be compiled and graded at a time. The code is looked at first, and
again when it is compiled (tools/grading/sandbox/untrusted.py). What the compiler and the tests say of it speaks of
assignments/<stage>/<name>.cpp, as at home.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from tools.grading.compiling.compile_errors import condense
from tools.grading.running.processes import BoundedText, GuardedProcess
from tools.grading.running.records import printable
from tools.grading.sandbox import untrusted
from tools.grading.scoring.results import DOES_NOT_COMPILE
from tools.grading.stages import Stage
from tools.setup import toolchain
from tools.setup.configuring import compile_command
from tools.setup.toolchain import ROOT

COMPILE_S = 60
LOOK_S = 20  # of processor time
MEMORY = 6 << 30  # address space, of which a precompiled header takes much
LARGEST_LIBRARY = 256 << 20
LOG_LIMIT = 1 << 20
USES_WHAT_IT_MAY_NOT = "uses what it may not"


@dataclass(frozen=True)
class HandedIn(untrusted.Compiled):
    """`folder` has a copy of what was handed in, and gets the library."""

    folder: Path = Path()

    @property
    def stub(self) -> Path:
        return self.stage.sources("assignments")[0]

    @property
    def room(self) -> Path:
        return self.folder / self.stub.parent.relative_to(ROOT)

    @property
    def sources(self) -> list[Path]:
        return sorted(self.room.glob("*.cpp"))

    def compile_command(self, source: Path) -> list[str]:
        return self.limited_command(f"--cpu={LOOK_S}")

    def limited_command(self, *limits: str) -> list[str]:
        """As the build compiles the stub, with prlimit's limits where there is prlimit."""
        prlimit = shutil.which("prlimit")
        limited = [prlimit, f"--as={MEMORY}", *limits] if prlimit else []
        return [*limited, *compile_command(self.build_dir, self.stub), "-iquote", str(self.stub.parent)]

    def as_at_home(self, text: str) -> str:
        return text.replace(f"{self.folder}/", "")


def hand_in(stage: Stage, files: dict[str, bytes], build_dir: Path, folder: Path) -> HandedIn:
    """`files` by their names, the stage's source among them."""
    code = HandedIn(stage, "assignments", folder / stage.name / "libstage.so", build_dir, folder)
    for place in (code.library.parent, code.room):
        place.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (code.room / name).write_bytes(content)
    return code


def build(code: HandedIn) -> tuple[str, str]:
    """Why it cannot be graded, in full and in short; both empty if its library is there. Nothing of the code runs."""
    try:
        found = untrusted.objections_to_sources(code)
    except untrusted.CannotLook as error:  # a preprocessor's messages quote no other file
        return condense(error.said.replace(str(code.folder), str(ROOT))), DOES_NOT_COMPILE
    if found:
        return code.as_at_home(found), USES_WHAT_IT_MAY_NOT
    if errors := _compile(code):
        return errors, DOES_NOT_COMPILE
    found = untrusted.objections_to_library(code)
    return code.as_at_home(found), USES_WHAT_IT_MAY_NOT if found else ""


def _compile(code: HandedIn) -> str:
    """The compiler's first errors; empty if there are none."""
    command = code.limited_command(f"--cpu={COMPILE_S}", f"--fsize={LARGEST_LIBRARY}")
    command += [f"-ffile-prefix-map={code.folder}={ROOT}", "-shared", "-o", str(code.library), *map(str, code.sources)]
    # Against what it is loaded with, so that what is nowhere defined is named with its line.
    torch = f"-L{toolchain.load().libtorch}/lib"
    command += ["-Wl,-z,defs", str(code.build_dir / "lib" / "libddp.so"), torch, "-ltorch_cpu", "-lc10"]
    output, began, late = BoundedText(LOG_LIMIT), time.monotonic(), False
    with GuardedProcess(command, env={**os.environ, "LC_ALL": "C.UTF-8"}) as process:
        for _, data in process.events(tick_s=0.2):
            output.add(data)
            if time.monotonic() - began > 2 * COMPILE_S:
                late = True
                process.stop()
    if process.exit_code == 0:
        return ""
    text = condense(printable(str(output), LOG_LIMIT).replace(str(code.folder), str(ROOT)))
    limit = f"The compiler was given {COMPILE_S} s and {MEMORY >> 30} GiB."
    return f"{text}\n{limit}" if late or process.exit_code < 0 else text
