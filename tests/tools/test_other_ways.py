"""Other ways to run the tests: under sanitizers, as one of a launcher's ranks, and with gdb on one rank.

What sanitizers find is made up here; `make check SANITIZE=address` holds them to it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.tools.conftest import ALL_FAIL, ALL_PASS, FORBID, STAGE, Lab
from tools.grading.debugging import sanitizer_reports
from tools.setup.toolchain import BUILD_DIR, ROOT

SOURCE = f"assignments/{STAGE}/naive_ddp.cpp"
OVERFLOW = f"""\
=================================================================
==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60600 at pc 0x7f4 bp 0x7ff sp 0x7fd
WRITE of size 4 at 0x60600 thread T0
    #0 0x7f4ac in at::vec() {{root}}/.venv/lib/torch/include/ATen/vec.h:215
    #1 0x7f4ad in copy {{root}}/common/ddp/collectives.cpp:124
    #2 0x7f4ad in fill {{root}}/{SOURCE}:24
    #3 0x7f4ae in finish {{root}}/{SOURCE}:30
    #4 0x7f4af in run {{root}}/tests/grader/scenario.cpp:63

SUMMARY: AddressSanitizer: heap-buffer-overflow
"""
REPORTS = """
import re
(path,) = re.findall(r'log_path="(.*?)"', os.environ["ASAN_OPTIONS"])
open(f"{{path}}.7", "w").write({text!r})
def run(name): return {{'status': 'failed', 'failures': ['rank 1 died']}}
"""


@pytest.fixture
def watched(lab: Lab) -> Lab:
    """With a compiler that has sanitizers."""
    lab.script("g++", f"#!/bin/sh\necho {lab.write('libasan.so', '')}\n")
    state = json.loads((lab.root / "build/toolchain.json").read_text())
    state["toolchain"]["cxx"] = str(lab.root / "g++")
    lab.write("build/toolchain.json", json.dumps(state))
    return lab


def report(lab: Lab) -> str:
    """What is said of a stage that a sanitizer says this of."""
    code = REPORTS.format(text=OVERFLOW.format(root=lab.root))
    return lab.grade(code, "--stage=01", "--sanitize=address", code=1)


def test_a_finding_has_the_students_lines_and_is_no_grade(watched: Lab) -> None:
    """It has a build of its own."""
    watched.grade(ALL_PASS, "--stage=01")
    before = watched.results()
    said = report(watched)
    assert "SANITIZE=address: no grade" in said
    assert "ERROR: AddressSanitizer: heap-buffer-overflow\nWRITE of size 4 thread T0\n" in said
    assert f"    {SOURCE}:24 in fill\n    {SOURCE}:30 in finish\n" in said
    for other in "vec.h", "collectives.cpp", "scenario.cpp", "no line of it is in your files", "Total":
        assert other not in said
    assert "SANITIZE=address found 1, see above" in said
    assert (watched.results(), watched.kept()["score"]) == (before, 15)
    cache = (watched.root / "build/sanitized/CMakeCache.txt").read_text()
    assert cache == f"SANITIZE:STRING={sanitizer_reports.ADDRESS.flag}"
    assert ALL_PASS in (watched.root / "build/stages/assignments" / STAGE / "libstage.so").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["address", "undefined"])
def test_nothing_found(watched: Lab, choice: str) -> None:
    report(watched)  # which does not stay
    said = watched.grade(ALL_PASS, "--stage=01", f"--sanitize={choice}")
    assert f"SANITIZE={choice} found nothing." in said
    assert "3 of 3 tests passed." in said
    assert "no mistake of yours" in watched.grade(ALL_FAIL, "--stage=01", f"--sanitize={choice}", code=1)
    said = watched.grade("does not compile", "--stage=01", f"--sanitize={choice}", code=1)
    assert "naive_ddp.cpp:12:5: error: 'gruop' was not declared" in said
    assert "no mistake of yours" not in said


def test_a_compiler_without_sanitizers(watched: Lab) -> None:
    watched.script("g++", "#!/bin/sh\necho libasan.so\n")
    said = watched.grade(ALL_PASS, "--sanitize=address", code=3)
    assert "has no AddressSanitizer and UndefinedBehaviorSanitizer here" in said


CHOSEN = ("--stage=01", "--test=one_all_reduce_per_parameter")
DEBUGGED = ROOT / "solutions/01_naive_ddp/naive_ddp.cpp"
PATIENCE_S = 12  # more than any rank may be silent for: tests/grader/settings.h
SYS_PTRACE = {"x86_64": 101, "aarch64": 117}.get(os.uname().machine)
gdb_is_here = pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb here, which make debug needs")
# Another test's build may hold the checkout, and `make debug` would wait for it.
DEBUG = """
import contextlib, runpy
from tools.setup import checkout_lock
checkout_lock.hold = lambda path, doing: contextlib.nullcontext()
runpy.run_module('tools.grading.debugging.debug', run_name='__main__')
"""


def debug(*arguments: str, code: int, before: str = "", **environment: str) -> str:
    """What is printed, or for another code than 0 said."""
    done = subprocess.run(
        [sys.executable, "-c", before + DEBUG, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env={**os.environ, **environment}
    )  # fmt: skip
    assert done.returncode == code and "Traceback" not in done.stderr, done.stdout + done.stderr
    return done.stderr if code else done.stdout


def test_what_make_debug_needs() -> None:
    assert "make debug STAGE=01 TEST=<name> RANK=1" in debug("--stage=01", code=2)
    assert "gdb is missing: make debug needs it" in debug(*CHOSEN, code=3, PATH="/nowhere")


@gdb_is_here
@pytest.mark.skipif(not SYS_PTRACE, reason="an unknown machine")
def test_a_container_without_ptrace() -> None:
    """As Docker's are, unless they are told to allow it."""
    said = debug(*CHOSEN, before=f"{FORBID}forbid([{SYS_PTRACE}])", code=3)
    assert "ptrace: Operation not permitted" in said and "docker run --cap-add=SYS_PTRACE" in said


@gdb_is_here
@pytest.mark.slow
@pytest.mark.builds("tests_01_naive_ddp", "solutions_01_naive_ddp")
class TestGdb:
    def gdb(self, *commands: str, rank: int = 0) -> str:
        """What gdb says after it has stopped in the student's code."""
        line = " ".join(["-nx -batch", *(f"-ex '{each}'" for each in commands)])
        return debug(*CHOSEN, "--impl=solutions", "--seed=7", f"--rank={rank}", f"--gdb-args={line}", code=0)

    def test_a_local_variable_of_rank_1(self) -> None:
        """At a breakpoint, after longer than the grader's patience, while the other rank waits."""
        line = next(i for i, each in enumerate(DEBUGGED.read_text().splitlines(), 1) if "contiguous.div_(" in each)
        library = BUILD_DIR / "stages/solutions/01_naive_ddp/libstage.so"
        graded = library.stat().st_mtime_ns
        said = self.gdb(
            f"break {DEBUGGED.name}:{line}", "continue", "print gradients.size()", f"shell sleep {PATIENCE_S}",
            "next", "next", "continue", rank=1,
        )  # fmt: skip
        assert "gdb comes to rank 1 of" in said
        assert re.search(r"Breakpoint \d+, ddp::make_naive_ddp \(", said)  # the first of the student's functions
        stop = rf"average_each \(gradients=.*{DEBUGGED.name}:{line}\n"
        before, size, after_the_wait = re.split(r"\$1 = ([1-9]\d*)\n", said)
        assert re.search(stop, before) and re.search(stop, after_the_wait)  # at the next gradient
        assert "SIGKILL" not in said
        assert graded == library.stat().st_mtime_ns, "the graded library was built anew"
