"""Builds what a grading run needs, each stage apart, and says in a few lines why a stage does not compile."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tools.grading.processes import BoundedText, GuardedProcess
from tools.setup.progress import ProgressLine
from tools.grading.records import printable
from tools.grading.stages import Stage, short_paths
from tools.setup.toolchain import LabError, Toolchain

ERRORS_SHOWN = 3
LOG_LIMIT = 8 << 20
_PROGRESS = re.compile(r"^\[\s*(\d+/\d+|\d+%)\]\s*(.*)")
_ERROR = re.compile(r"^(?P<place>[^\s:][^:]*:\d+):(?:\d+:)? (?:fatal )?error: ")
_LINKER_ERROR = re.compile(r"undefined reference|multiple definition|ld(\.\w+)?: (error|cannot)|cannot find -l")
_CALLER = re.compile(r"(assignments|solutions)/.*required from")
_SOURCE_LINE = re.compile(r"^\s*\d* \|")


@dataclass(frozen=True)
class BuildLog:
    ok: bool
    text: str
    path: Path


class Builder:
    def __init__(self, toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        self._build_dir = Path(toolchain.build_dir)
        self._keep_going = "-k0" if toolchain.generator == "Ninja" else "-k"

    def program(self, stage: Stage) -> Path:
        return self._build_dir / "bin" / f"tests_{stage.name}"

    def library(self, stage: Stage, impl: str) -> Path:
        return self._build_dir / "stages" / impl / stage.name / "libstage.so"

    def build_programs(self, stages: list[Stage]) -> None:
        self.build_common(_programs(stages))

    def build_common(self, targets: list[str]) -> None:
        """Builds what does not depend on the student: if this fails, the lab or the machine is broken."""
        log = self._build("common", targets)
        if not log.ok:
            raise LabError(
                f"The lab's own code could not be built; this is not your stage's fault.\n\n{condense(log.text)}\n\n"
                f"The whole log: {short_paths(str(log.path))}. What may be missing here: make doctor"
            )

    def build(self, stages: list[Stage], impl: str) -> dict[str, str]:
        """Builds everything for these stages. Returns the names of those that do not compile, with the messages."""
        errors = {stage.name: _no_sources(stage, impl) for stage in stages if not stage.sources(impl)}
        buildable = [stage for stage in stages if stage.name not in errors]
        targets = {stage.name: f"{impl}_{stage.name}" for stage in buildable}
        everything = self._build("all", [*_programs(stages), *targets.values()])
        if everything.ok:
            return errors
        self.build_programs(stages)
        for name, target in targets.items():
            # The log of a single stage is its own: there is no need to compile it again.
            log = self._keep(everything, name) if len(targets) == 1 else self._build(name, [target])
            if not log.ok:
                errors[name] = f"{condense(log.text)}\n\nThe whole log: {short_paths(str(log.path))}"
        return errors

    def _build(self, name: str, targets: list[str]) -> BuildLog:
        command = [self._toolchain.cmake, "--build", str(self._build_dir), "--target", *targets, "--", self._keep_going]
        cores = str(len(os.sched_getaffinity(0)))
        env = {"CMAKE_BUILD_PARALLEL_LEVEL": cores, **os.environ, "LC_ALL": "C.UTF-8"}
        output, progress = BoundedText(LOG_LIMIT), _Progress()
        with GuardedProcess(command, env=env) as process:
            for channel, data in process.events():
                output.add(data)
                progress.feed(data)
        ok = process.exit_code == 0
        progress.done(ok)
        return self._keep(BuildLog(ok, printable(str(output), LOG_LIMIT), Path()), name)

    def _keep(self, log: BuildLog, name: str) -> BuildLog:
        path = self._build_dir / "grade" / "logs" / f"{name}.build.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(log.text, encoding="utf-8")
        return BuildLog(log.ok, log.text, path)


class _Progress:
    """Shows the build's progress; nothing if there is nothing to build."""

    def __init__(self) -> None:
        self._line: ProgressLine | None = None
        self._pending = ""
        self._detail = ""

    def feed(self, data: bytes) -> None:
        *lines, self._pending = (self._pending + data.decode(errors="replace")).split("\n")
        for line in lines:
            found = _PROGRESS.match(line)
            if found and "globbed directories" not in found[2]:  # looking at the folders is not building
                self._detail = f"[{found[1]}] {re.split(r'[/ ]', found[2])[-1].removesuffix('.o')}"
                self._line = self._line or ProgressLine("Building")
        if self._line:
            self._line.show(self._detail)

    def done(self, ok: bool) -> None:
        if self._line:
            self._line.done("done" if ok else "failed")


def _programs(stages: list[Stage]) -> list[str]:
    return ["ddp", *(f"tests_{stage.name}" for stage in stages)]


def _no_sources(stage: Stage, impl: str) -> str:
    folder = f"{impl}/{stage.name}"
    return f"There is no .cpp file in {folder}. To get the original back: git checkout -- {folder}"


def condense(log: str) -> str:
    """The first errors of a compiler's log, each with its source line; paths as seen from the checkout."""
    lines = short_paths(log).splitlines()
    errors = [index for index, line in enumerate(lines) if _ERROR.match(line)]
    shown = [line for index in errors[:ERRORS_SHOWN] for line in _error_with_source(lines, index)]
    if not errors:
        shown = [line for line in lines if _LINKER_ERROR.search(line)][:ERRORS_SHOWN] or lines[-15:]
    if len(errors) > ERRORS_SHOWN:
        shown.append(f"... and {len(errors) - ERRORS_SHOWN} more errors, which may follow from these")
    if "No space left on device" in log:
        shown.append("The disk is full: free some space and run again.")
    if re.search(r"Killed signal terminated program|std::bad_alloc|out of memory", log):
        shown.append("The compiler ran out of memory: close other programs, or set CMAKE_BUILD_PARALLEL_LEVEL=1.")
    return "\n".join(shown)


def _error_with_source(lines: list[str], index: int) -> list[str]:
    block = [lines[index]]
    for line in lines[index + 1 : index + 4]:
        if not _SOURCE_LINE.match(line):
            break
        block.append(line)
    if not lines[index].startswith(("assignments/", "solutions/")):  # an error within a template: find its caller
        callers = [line for line in lines[max(0, index - 30) : index] if _CALLER.match(line)]
        block += callers[-1:]
    return block
