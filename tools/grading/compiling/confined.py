"""Compiles a stage that nobody trusts, where the compiler finds nothing that its messages could give away.

In the jail (tools/grading/sandbox) it sees itself and the system, libtorch, the lab's public headers, the stage's
contract and precompiled header, what the stage is linked to, and what was handed in. It writes one folder, and has
limits. So it does not matter what the code says: an #include, an #embed or a linker script finds nothing else. Nothing
of the checkout is written, so several can be compiled and graded at a time. What is said of the code speaks of
assignments/<stage>/<name>.cpp, as at home.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.grading.compiling.compile_errors import condense
from tools.grading.running.processes import BoundedText, GuardedProcess
from tools.grading.running.records import printable
from tools.grading.sandbox import untrusted
from tools.grading.sandbox.sandbox import Sandbox
from tools.grading.scoring.results import DOES_NOT_COMPILE, USES_WHAT_IT_MAY_NOT, WAS_NOT_GRADED
from tools.grading.stages import Stage
from tools.setup import toolchain
from tools.setup.configuring import compile_command
from tools.setup.system_packages import is_clang
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError

COMPILE_S = 60  # of processor time
MEMORY = 4 << 30  # address space, of which a precompiled header takes much
LARGEST_FILE = 64 << 20
LONGEST_LINE = 2000  # of messages
PROCESSES = 64
LIMITS = {"CPU": COMPILE_S, "AS": MEMORY, "FSIZE": LARGEST_FILE, "CORE": 0}
LOG_LIMIT = 1 << 20
FLOOD = 16 << 20  # of messages
NAMES_OTHER_FILES = (".gnu_debuglink", ".gnu_debugaltlink", ".debug_sup")


@dataclass(frozen=True)
class Confined:
    """`folder` gets, for each stage, a copy of what was handed in and the library."""

    sandbox: Sandbox
    folder: Path

    def library(self, stage: Stage) -> Path:
        return self.folder / stage.name / "out" / "libstage.so"

    def build(self, stage: Stage, files: Mapping[str, bytes], impl: str = "assignments") -> tuple[str, str]:
        """`files` by their names. Why they cannot be graded, in full and in short; both empty if the library is there.
        Nothing of the code runs."""
        try:
            room = self._hand_in(stage, files, impl)
            home = ROOT / impl / stage.name
            if errors := self._compile(stage, room):
                lines = (line[:LONGEST_LINE] for line in errors.replace(str(room), str(home)).splitlines())
                return condense("\n".join(lines)), DOES_NOT_COMPILE
            self._forget_other_files(self.library(stage))
            found = untrusted.objections(stage, self.library(stage), room, self.sandbox)
            said = printable(found.replace(str(room), str(home.relative_to(ROOT))))  # names that the code has chosen
            return said, USES_WHAT_IT_MAY_NOT if found else ""
        except Exception as error:  # whatever code makes our tools meet is no crash of the grader
            return f"It could not be compiled and looked at: {type(error).__name__}: {error}", WAS_NOT_GRADED

    def _hand_in(self, stage: Stage, files: Mapping[str, bytes], impl: str) -> Path:
        room = self.folder / stage.name / impl / stage.name
        for folder in (room, self.library(stage).parent):
            folder.mkdir(parents=True)
        self.sandbox.give(self.library(stage).parent)
        for name, content in files.items():
            (room / name).write_bytes(content)
        return room

    def _compile(self, stage: Stage, room: Path) -> str:
        """The compiler's messages if it fails; else empty."""
        command = library_command(stage, self.library(stage), sorted(room.glob("*.cpp")))
        command += [f"-ffile-prefix-map={room.parents[1]}={ROOT}"]
        torch = Path(toolchain.load().libtorch)
        sees = [
            *compilers(command[0]),
            torch / "include",
            torch / "lib",
            *headers(stage),
            *precompiled(),
            *linked_with(stage),
            room,
        ]
        limits = LIMITS | ({"NPROC": PROCESSES} if self.sandbox.namespaces else {})
        out = self.library(stage).parent
        jailed = self.sandbox.command(command, sees, writes=str(out), processes=False, limits=limits)
        return output_of(jailed)

    def _forget_other_files(self, library: Path) -> None:
        """Its debug information may name files with more of it, which would be read when a place is looked up."""
        command = ["/usr/bin/objcopy", *(f"--remove-section={name}" for name in NAMES_OTHER_FILES), str(library)]
        sees, out = [library], str(library.parent)
        if said := output_of(self.sandbox.command(command, sees, writes=out, processes=False, limits=LIMITS)):
            raise LabError(f"objcopy failed: {said}")


def build_command(stub: Path) -> list[str]:
    """As the build compiles the stub; without ccache, which has a store of its own."""
    words, cxx = compile_command(BUILD_DIR, stub), toolchain.load().cxx
    words = words[words.index(cxx) :] if cxx in words else words
    no_files_of_crashes = ["-fno-crash-diagnostics"] if is_clang(cxx) else []
    return [
        *words,
        *no_files_of_crashes,
        *(["-fuse-ld=lld", "-Wl,--no-dependent-libraries"] if shutil.which("ld.lld") else []),
    ]


def library_command(stage: Stage, library: Path, sources: Iterable[Path]) -> list[str]:
    """Compiles them in the place of the stage's, and links them against what it is loaded with, so that what is
    nowhere defined is named with its line."""
    stub, torch = stage.sources("assignments")[0], toolchain.load().libtorch
    command = [*build_command(stub), "-iquote", str(stub.parent), "-shared", "-o", str(library), *map(str, sources)]
    return [*command, "-Wl,-z,defs", *map(str, linked_with(stage)), f"-L{torch}/lib", "-ltorch_cpu", "-lc10"]


def linked_with(stage: Stage) -> list[Path]:
    return [BUILD_DIR / "lib" / "libddp.so", *stage.given_libraries(BUILD_DIR)]


def headers(stage: Stage) -> list[Path]:
    return [header for folder in stage.header_folders() for header in folder.glob("*.h")]


def precompiled() -> list[Path]:
    return [*(BUILD_DIR / "CMakeFiles" / "precompiled.dir").glob("cmake_pch.hxx*")]


def compilers(cxx: str) -> list[Path]:
    """One that is not the system's, with what lies beside it."""
    own = Path(cxx).resolve()
    top = own.parent.parent
    return [Path(cxx), own, *([top] if own.parent.name == "bin" and not ROOT.is_relative_to(top) else [])]


def output_of(command: list[str]) -> str:
    output, began, written, stopped = BoundedText(LOG_LIMIT), time.monotonic(), 0, False
    with GuardedProcess(command, env={**os.environ, "LC_ALL": "C.UTF-8"}) as process:
        for _, data in process.events(tick_s=0.2):
            output.add(data)
            written += len(data)
            if time.monotonic() - began > 3 * COMPILE_S or written > FLOOD:
                stopped = True
                process.stop()
    text = printable(str(output), LOG_LIMIT)
    limit = f"The compiler was given {COMPILE_S} s, {MEMORY >> 30} GiB and {FLOOD >> 20} MiB of messages."
    if process.exit_code == 0 and not stopped:
        return ""
    return f"{text}\n{limit}" if stopped or process.exit_code < 0 or not text.strip() else text


@contextlib.contextmanager
def confined(sandbox: Sandbox) -> Iterator[Confined]:
    """With a folder that goes."""
    with tempfile.TemporaryDirectory(prefix="ddp-lab-graded-") as folder:
        os.chmod(folder, 0o755)  # a jail of root's runs as nobody
        yield Confined(sandbox, Path(folder))
