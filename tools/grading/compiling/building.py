"""Builds what a grading run needs, each stage apart, and says in a few lines why a stage does not compile."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path, PurePath

from tools.grading import released
from tools.grading.compiling import unresolved
from tools.grading.compiling.compile_errors import condense, full_disk
from tools.grading.compiling.confined import Confined
from tools.grading.running.processes import BoundedText, GuardedProcess
from tools.grading.running.records import printable
from tools.grading.stages import Stage, short_paths
from tools.setup import system_packages
from tools.setup.columns import listed
from tools.setup.configuring import object_of
from tools.setup.progress import ProgressLine
from tools.setup.toolchain import ROOT, LabError, Toolchain, how_to_restore

SHOWN = 5
HALF = "The lab's own code was built and lacks what no library here defines; this is not your stage's fault:"
OLD_CLANG = """\
clang before 16 cannot compile the views in GCC's <ranges>, right or wrong. Install clang-19 and run it again, or take
another compiler: CXX=g++ make test
"""
_IN_RANGES = re.compile(r"^/\S+/(?:ranges|bits/ranges_\w+\.h):\d+:\d+: error: ", re.MULTILINE)
DOES_NOT_FIT = """\
This compiler does not fit the one that libtorch was built with. Take another: CXX=clang++ make test, or CXX=g++ make
test; README.md, Requirements, has those that are tested."""
NOTHING_TO_BUILD_S = 0.8  # a build says nothing before its first file is done; one that takes longer builds something
LOG_LIMIT = 8 << 20
_PROGRESS = re.compile(r"^\[\s*(\d+/\d+|\d+%)\]\s*(.*)")


@dataclass(frozen=True)
class BuildLog:
    ok: bool
    text: str
    path: Path


class Builder:
    """`confined`: where stages are compiled that nobody trusts; none: they are trusted."""

    def __init__(self, toolchain: Toolchain, device: str = "cpu", confined: Confined | None = None) -> None:
        self._toolchain, self._confined = toolchain, confined
        self.problems: dict[str, str] = {}  # why a stage that compiles is not graded, in short, by its name
        self._for_device = ["ddp_cuda"] if device == "cuda" else []  # found by its place, so no other target names it
        self._build_dir = Path(toolchain.build_dir)

    def program(self, stage: Stage) -> Path:
        return self._build_dir / "bin" / f"tests_{stage.name}"

    def library(self, stage: Stage, impl: str) -> Path:
        if self._confined:
            return self._confined.library(stage)
        return self._build_dir / "stages" / impl / stage.name / "libstage.so"

    def debug_library(self, stage: Stage, impl: str) -> Path:
        return self._build_dir / "stages" / "debug" / impl / stage.name / "libstage.so"

    def common_libraries(self) -> list[Path]:
        """What test programs load, their own code included."""
        return sorted((self._build_dir / "lib").glob("lib*.so"))

    def digest(self, stage: Stage, impl: str) -> str:
        return digest(stage, impl, regular_content if self._confined else Path.read_bytes)

    def build_common(self, targets: list[str]) -> None:
        """What does not depend on the student: where this fails, the lab is broken, or the machine."""
        with Watch() as watch:
            self._build_common(targets, watch)

    def _build_common(self, targets: list[str], watch: Watch) -> None:
        log = self._build("common", targets, watch)
        if not log.ok and not watch.stopped:
            raise LabError(_why_common_failed(log))

    def build(self, stages: list[Stage], impl: str) -> dict[str, str]:
        """Builds everything for these stages. Returns, for each that does not compile, its name and the message."""
        with StageBuilds(self, stages, impl) as builds:
            errors = {stage.name: builds.wait_for(stage) for stage in stages}
        return {name: error for name, error in errors.items() if error}

    def build_stage(self, stage: Stage, impl: str, watch: Watch, debug: bool = False) -> str:
        """Builds a stage, its tests, and what they stand on. Returns why the stage does not compile; empty: it does.
        `debug`: compiled for a debugger, apart from the graded one."""
        prefix, programs = "debug_" * debug, ["ddp", f"tests_{stage.name}"]
        if not stage.sources(impl):
            self._build_common(programs, watch)
            folder = f"{impl}/{stage.name}"
            return f"There is no .cpp file in {folder}. To get the original back: {how_to_restore(folder)}"
        if self._confined:
            return self._build_confined(self._confined, stage, impl, watch)
        if not debug:
            forget_if_changed(self._build_dir, stage, impl)
        log = self._build(f"{prefix}{stage.name}", [*programs, f"{prefix}{impl}_{stage.name}"], watch)
        if log.ok and not debug:
            remember(self._build_dir, stage, impl)
        return "" if log.ok else self._why_stage_failed(programs, log, watch)

    def _build_confined(self, confined: Confined, stage: Stage, impl: str, watch: Watch) -> str:
        self._build_common(["ddp", f"tests_{stage.name}"], watch)
        watch.tick()
        contract = f"{stage.name.partition('_')[2]}.h"
        own = [path for path in (ROOT / impl / stage.name).glob("*.h") if path.name != contract]
        files = {path.name: regular_content(path) for path in [*stage.sources(impl), *own]}
        error, self.problems[stage.name] = confined.build(stage, files, impl)
        return error

    def _why_stage_failed(self, programs: list[str], log: BuildLog, watch: Watch) -> str:
        self._build_common(programs, watch)
        if full_disk(log.text):
            raise LabError(_why_common_failed(log))
        clangs_fault = _IN_RANGES.search(log.text) and system_packages.lacks_ranges(self._toolchain.cxx)
        note = OLD_CLANG if clangs_fault else ""
        return f"{condense(log.text)}\n{note}{edited_note()}\nThe whole log: {short_paths(str(log.path))}"

    def _build(self, name: str, targets: list[str], watch: Watch) -> BuildLog:
        log = self._build_once(name, targets, watch)
        if not log.ok and not watch.stopped and forget_precompiled(self._build_dir, log.text):
            log = self._build_once(name, targets, watch)
        return log

    def _build_once(self, name: str, targets: list[str], watch: Watch) -> BuildLog:
        targets = [*self._for_device, *targets]
        command = [self._toolchain.cmake, "--build", str(self._build_dir), "--target", *targets, "--", "-k0"]
        cores = str(len(os.sched_getaffinity(0)))
        env = {"CMAKE_BUILD_PARALLEL_LEVEL": cores, **os.environ, "LC_ALL": "C.UTF-8"}
        output, began = BoundedText(LOG_LIMIT), time.monotonic()
        with GuardedProcess(command, env=env) as process:
            for _, data in process.events(tick_s=0.2):
                output.add(data)
                watch.feed(data)
                if time.monotonic() - began > NOTHING_TO_BUILD_S:
                    watch.tick()
                if watch.stopped:
                    process.stop()
        path = self._build_dir / "grade" / "logs" / f"{name}.build.log"
        log = BuildLog(process.exit_code == 0, printable(str(output), LOG_LIMIT), path)
        with contextlib.suppress(OSError):  # what matters of it is printed
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(log.text, encoding="utf-8")
        if log.ok:
            self._must_be_whole([self._build_dir / "bin" / target for target in targets])
        return log

    def _must_be_whole(self, programs: list[Path]) -> None:
        if missing := [line for program in programs if program.exists() for line in unresolved.missing(program)]:
            raise LabError("\n".join([HALF, *listed([*dict.fromkeys(missing)], SHOWN), edited_note() or DOES_NOT_FIT]))


class Watch:
    """How far a build is, shown in one line; nothing if there is nothing to build. Ends the build when it is stopped.

    One thread may build and another show and hide.
    """

    def __init__(self, visible: bool = True) -> None:
        self.stopped = False
        self._visible = visible
        self._lock = threading.Lock()
        self._line: ProgressLine | None = None
        self._pending = ""
        self._detail = ""

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.hide("failed" if kind else "done")

    def feed(self, data: bytes) -> None:
        *lines, self._pending = (self._pending + data.decode(errors="replace")).split("\n")
        for line in lines:
            found = _PROGRESS.match(line)
            if found and "globbed directories" not in found[2]:  # a look at the folders is no building
                self._show(f"[{found[1]}] {re.split(r'[/ ]', found[2])[-1].removesuffix('.o')}")

    def _show(self, detail: str) -> None:
        with self._lock:
            self._detail = detail
            if self._visible:
                self._line = self._line or ProgressLine("Building")
                self._line.show(detail)

    def tick(self) -> None:
        """Time has passed: something is built, even if nothing is done yet."""
        self._show(self._detail)

    def reveal(self) -> None:
        with self._lock:
            self._visible = True

    def hide(self, outcome: str) -> None:
        with self._lock:
            self._visible = False
            if self._line:
                self._line.done(outcome)
            self._line = None


class StageBuilds:
    """Builds stages in their order, on a thread, so that the first can be graded while the others still build."""

    def __init__(self, builder: Builder, stages: list[Stage], impl: str) -> None:
        self.impl = impl
        self._builder, self._stages = builder, stages
        self._watch = Watch(visible=False)
        self._results: dict[str, Future[str]] = {stage.name: Future() for stage in stages}
        self.sources: dict[str, str] = {}  # of what is built, the digests; a save while it compiles is another content
        self._waited_for: set[str] = set()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> StageBuilds:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.stopped = True
        self._thread.join()
        self._watch.hide("stopped")

    def wait_for(self, stage: Stage) -> str:
        """Shows progress until the stage is built. Returns why it does not compile; empty: it does."""
        self._waited_for.add(stage.name)
        self._watch.reveal()
        outcome = "failed"
        try:
            error = self._results[stage.name].result()
            outcome = outcome if error else "done"
            return error
        finally:
            self._watch.hide(outcome)

    def next_build(self) -> Future[str] | None:
        """The build of the first stage that nobody has waited for; None if there is none left."""
        return next((build for name, build in self._results.items() if name not in self._waited_for), None)

    def _run(self) -> None:
        for stage in self._stages:
            result = self._results[stage.name]
            try:
                self.sources[stage.name] = self._builder.digest(stage, self.impl)
                result.set_result(self._builder.build_stage(stage, self.impl, self._watch))
            except Exception as error:  # raised again where it is waited for
                result.set_exception(error)


def _why_common_failed(log: BuildLog) -> str:
    if full := full_disk(log.text):
        return f"The disk is full at {log.path.parents[2]}. Free some space, then run it again. What failed:\n  {full}"
    what, whole = "The lab's own code could not be built", f"The whole log: {short_paths(str(log.path))}."
    if edited := edited_note():
        return f"{what}.\n\n{condense(log.text)}\n{edited}\n{whole}"
    advice = "What may be missing here: make doctor"
    return f"{what}; this is not your stage's fault.\n\n{condense(log.text)}\n\n{whole} {advice}"


def edited_note() -> str:
    """Names the lab's own files that are not as they were handed out, and how to get them back; empty if all are, or
    git does not know."""
    files = [name for name in released.edited(with_new=False) or () if _is_built(name)]
    if not files:
        return ""
    back = f"git checkout {released.handed_out()[:12]} -- <file>"
    return "\n".join(["", f"This is not as the lab has it (to get a file back: {back}):", *listed(files, SHOWN), ""])


def _is_built(name: str) -> bool:
    path = PurePath(name)
    in_build = path.parts[0] in ("CMakeLists.txt", "cmake", "common", "tests") or path.match("assignments/*/*.h")
    return in_build and not released.is_students(name)


# What was built of other contents than a stage has now, although it is newer: a file that was restored with its old
# time, or a clock that was set back. The build looks at times alone, and would keep it.
_UPGRADED = "has been modified since the precompiled header"


def forget_if_changed(build_dir: Path, stage: Stage, impl: str) -> None:
    """Removes the objects of a stage whose contents are not those of its last build."""
    note = _note(build_dir, stage, impl)
    if note.exists() and note.read_text() != digest(stage, impl):
        for source in stage.sources(impl):
            with contextlib.suppress(LabError, OSError):  # one that is new has none
                object_of(build_dir, source).unlink()


def forget_precompiled(build_dir: Path, said: str) -> bool:
    """Removes the precompiled headers if clang said that a header they are made of has changed: a package was upgraded,
    whose files are older than the build. Whether there were any."""
    stale = list(build_dir.glob("CMakeFiles/precompiled.dir/*.pch")) if _UPGRADED in said else []
    for file in stale:
        file.unlink()
    return bool(stale)


def remember(build_dir: Path, stage: Stage, impl: str) -> None:
    """To be called when the stage is built."""
    with contextlib.suppress(OSError):  # a full disk; the times are nearly always right
        _note(build_dir, stage, impl).write_text(digest(stage, impl))


def _note(build_dir: Path, stage: Stage, impl: str) -> Path:
    return build_dir / "grade" / f"{impl}.{stage.name}.sha256"


def regular_content(path: Path) -> bytes:
    """Of code that nobody trusts: a link could lead to what its author must not read, and a pipe never ends."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise LabError(f"{short_paths(str(path))} is a link, or cannot be read: {error.strerror}") from None
    with open(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise LabError(f"{short_paths(str(path))} is no regular file")
        return file.read()


def digest(stage: Stage, impl: str, read: Callable[[Path], bytes] = Path.read_bytes) -> str:
    """Of what a stage consists of."""
    headers = [header for room in {impl, "assignments"} for header in (ROOT / room / stage.name).glob("*.h")]
    found = hashlib.sha256()
    for path in [*stage.sources(impl), *sorted(headers)]:
        found.update(path.name.encode() + b"\0" + hashlib.sha256(read(path)).digest())
    return found.hexdigest()
