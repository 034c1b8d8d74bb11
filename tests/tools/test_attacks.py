"""What code that got past the look at its includes and imports can do with UNTRUSTED=1: nothing that earns a point.

Each attack is C++ in a constructor, which runs as soon as a rank loads the library, beside a stub. It is run in the
jail and, to show that a rank's own confinement is enough, without.
"""

from __future__ import annotations

import ctypes
import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from string import Template

import pytest

from tests.lab.marks import builds
from tests.tools.attacks import CAUGHT, FORBIDDEN, FORGED, OTHERS, PLAIN, POST, TOOLS
from tests.tools.conftest import FORBID, processes_in, require_jail
from tools.checking.context import Context
from tools.grading.compiling.building import Builder
from tools.grading.running import minimum_activity
from tools.grading.running.runner import RunOptions, run_stage
from tools.grading.running.test_lists import tests_of
from tools.grading.sandbox.sandbox import Sandbox, make_sandbox
from tools.grading.scoring.results import StageReport, TestResult
from tools.grading.stages import IMPLEMENTATIONS, Stage, named
from tools.setup import toolchain
from tools.setup.configuring import compile_command, object_of
from tools.setup.toolchain import ROOT

STAGE = "04_sync_batch_norm"
TEST = "strides_do_not_matter"  # one scenario of two ranks
pytestmark = builds(named(STAGE), *IMPLEMENTATIONS)
# x86-64's numbers
SYS_UNSHARE, SYS_LANDLOCK, SYS_PRCTL, SYS_MSEAL = 272, 444, 157, 462


@pytest.fixture
def builder() -> Builder:
    return Builder(toolchain.load())


@functools.cache
def made_sandbox(program: Path) -> Sandbox:
    return make_sandbox(program)


@pytest.fixture
def jail(builder: Builder) -> Sandbox:
    return made_sandbox(builder.program(named(STAGE)))


@pytest.fixture
def graded() -> TestResult:
    return TestResult(next(spec for spec in tests_of(named(STAGE)) if spec.name == TEST))


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # a jail of root's runs as nobody, who may not enter pytest's folders
        yield Path(name)


def library_of(code: str, beside: str, builder: Builder, folder: Path, stage: Stage) -> Path:
    """`code` as a stage's library, beside the stub or the solution, or alone."""
    source, library = folder / "attack.cpp", folder / "libstage.so"
    if "attack()" not in code:
        code = f"[[gnu::constructor]] static void attack() {{ {code} }}"
    source.write_text(TOOLS + code)
    objects = [object_of(toolchain.BUILD_DIR, path) for path in stage.sources(beside)] if beside else []
    compiler = [toolchain.load().cxx, "-std=c++20", "-fPIC"]
    if "#include" in code:  # the lab's headers
        compiler = compile_command(toolchain.BUILD_DIR, stage.sources("solutions")[0])
    command = [*compiler, "-shared", "-w", "-o", str(library), str(source)]
    subprocess.run([*command, *map(str, objects)], check=True)
    return library


def tier(plain: bool) -> list[pytest.MarkDecorator]:
    return [] if plain else [pytest.mark.slow]


@pytest.mark.parametrize(
    "code, says, beside",
    [
        *(pytest.param(code, FORBIDDEN.format(what), "assignments", id=name, marks=tier(name == next(iter(codes))))
          for what, codes in CAUGHT.items() for name, code in codes.items()),
        *(pytest.param(code, says, *(beside or ["assignments"]), id=name, marks=tier(name in PLAIN))
          for name, (code, says, *beside) in OTHERS.items()),
    ],
)  # fmt: skip
def test_nothing_is_gained(
    code: str,
    says: str,
    beside: str,
    builder: Builder,
    graded: TestResult,
    jail: Sandbox,
    folder: Path,
    context: Context,
) -> None:
    if says.startswith("sealed") and ctypes.CDLL(None).syscall(SYS_MSEAL, 0, 0, 0):
        pytest.skip("Linux 6.10 and newer seal memory")
    context.provide_activity(named(STAGE))
    stage, victim, marker = named(STAGE), folder / "victim", folder / "marker"
    victim.write_text("as it was")
    victim.chmod(0o666)
    places = {"victim": victim, "marker": marker, "library": folder / "libstage.so",
              "built": builder.library(stage, "solutions"), "solution": stage.sources("solutions")[0],
              "activity": minimum_activity.known(stage)}  # fmt: skip
    library = library_of(Template(code).safe_substitute(places), beside, builder, folder, stage)
    for sandbox in jail, Sandbox():
        report = StageReport(stage, [replace(graded)])
        options = RunOptions(seed=1, deadline_s=5, sandbox=sandbox)
        run_stage(builder.program(stage), library, report, options, lambda result: None)
        (result,) = report.results
        said = "\n".join(result.failures)
        assert result.score == 0 and re.search(says, said), (sandbox.namespaces, said)
        assert processes_in(folder) == []
        assert victim.read_text() == "as it was" and not marker.exists()


@pytest.mark.parametrize(
    "stage, test, code, says",
    [
        pytest.param(named(stage), *attack, id=name, marks=builds(named(stage), *IMPLEMENTATIONS))
        for name, (stage, *attack) in FORGED.items()
    ],
)
def test_what_a_rank_forges_is_its_failure(
    stage: Stage, test: str, code: str, says: str, builder: Builder, folder: Path
) -> None:
    """Even where nothing is known of how often a rank goes to a place, which would stop it before."""
    report = StageReport(stage, [TestResult(spec) for spec in tests_of(stage) if spec.name == test])
    library = library_of(POST + f"[[gnu::constructor]] static void attack() {{ {code} }}", "solutions",
                         builder, folder, stage)  # fmt: skip
    run_stage(builder.program(stage), library, report, RunOptions(seed=1, alive=False), lambda result: None)
    (result,) = report.results
    assert result.score == 0 and f"cannot be judged: {says}" in "\n".join(result.failures), result


@pytest.mark.parametrize(
    "forbidden, said",
    [
        ([], "^$"),
        ([SYS_UNSHARE], "^no namespaces here .*unshare: Operation not permitted.*threads"),
        ([SYS_LANDLOCK], "^no Landlock here .*stages can read"),
        ([SYS_UNSHARE, SYS_LANDLOCK], "^LabError UNTRUSTED=1 needs namespaces or Landlock .* is solutions"),
        ([SYS_PRCTL], "^LabError UNTRUSTED=1 needs a kernel with seccomp"),
    ],
)
def test_what_a_system_lacks_is_said(forbidden: list[int], said: str, builder: Builder) -> None:
    """On one that forbids what the sandbox is made of, as containers do: with filters of our own."""
    require_jail()
    ask = f"""
from pathlib import Path
from tools.grading.sandbox.sandbox import make_sandbox
forbid({forbidden})
try:
    print(*make_sandbox(Path({str(builder.program(named(STAGE)))!r})).gaps)
except Exception as error:
    print(type(error).__name__, error)
"""
    command = [sys.executable, "-c", FORBID + ask]
    gaps = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    assert re.search(said, re.sub(r"root alone can read.*?limited\. ?", "", gaps))


def test_a_program_that_changed_is_not_run(builder: Builder, tmp_path: Path) -> None:
    file = tmp_path / "tests_05"
    file.write_text("a")
    sandbox = made_sandbox(builder.program(named(STAGE))).sealed([file])
    assert sandbox.broken_seal() == ""
    file.write_text("b")
    assert "tests_05 changed after the first stage had begun" in sandbox.broken_seal()
    file.unlink()
    assert "tests_05 changed" in sandbox.broken_seal()
