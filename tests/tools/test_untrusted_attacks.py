"""What code that got past the look at its includes and imports can do with UNTRUSTED=1: nothing that earns a point.

Each attack is C++ in a constructor, which runs as soon as a rank loads the library, beside a stub. It is run in the jail
and, to show that a rank's own confinement is enough, without.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tests.tools.grading_test import alive
from tools.grading.building import Builder
from tools.grading.compile_commands import object_of
from tools.grading.results import StageReport, TestResult
from tools.grading.runner import RunOptions, run_stage
from tools.grading.sandbox import Sandbox, make_sandbox
from tools.grading.stages import named
from tools.grading.test_lists import ask
from tools.setup import toolchain
from tools.setup.toolchain import ROOT, LabError

STAGE = "02_overlapped_ddp"
TEST = "destruction_removes_the_hooks"
INCLUDES = "\n".join(
    f"#include <{header}>"
    for header in "cstdio cstdlib cstring string vector dlfcn.h fcntl.h signal.h sys/mman.h sys/ptrace.h sys/socket.h "
    "sys/stat.h sys/syscall.h sys/uio.h sys/wait.h unistd.h pthread.h".split()
)
ON_LOAD = "[[gnu::constructor]] static void attack()"
# What the rank's harness would say to its parent, had the body run: the token is in the rank's memory.
FORGED = """
static void frame(const char* text, unsigned length) {
  write(3, "f", 1);
  write(3, &length, 4);
  write(3, text, length);
}
%s {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  while (fgets(line, sizeof(line), maps)) {
    unsigned long begin, end;
    char rights[5];
    if (sscanf(line, "%%lx-%%lx %%4s", &begin, &end, rights) != 3 || !strstr(line, "[heap]")) continue;
    const char* run = nullptr;
    for (const char* at = (const char*)begin; at < (const char*)end; ++at) {
      if (*at >= '0' && *at <= '9') { if (!run) run = at; continue; }
      if (run && *at == 0 && at - run >= 16 && at - run <= 20) frame(run, at - run);
      run = nullptr;
    }
  }
  _exit(0);
}
""" % ON_LOAD


def setUpModule() -> None:
    try:
        tools = toolchain.load()
    except LabError as error:
        raise unittest.SkipTest(str(error)) from None
    if not Builder(tools).program(named(STAGE)).exists():
        raise unittest.SkipTest("the stages are not built")


class Attack(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        self.folder.chmod(0o755)  # a jail of root's runs as nobody
        self.tools = toolchain.load()
        self.builder = Builder(self.tools)

    def library(self, code: str, stage: str = STAGE, beside: str = "assignments") -> Path:
        """`code` beside a stub, as a stage's library."""
        source, library = self.folder / "attack.cpp", self.folder / "libstage.so"
        source.write_text(f"{INCLUDES}\n{code}\n")
        objects = [object_of(self.builder._build_dir, path) for path in named(stage).sources(beside)] if beside else []
        command = [self.tools.cxx, "-std=c++20", "-fPIC", "-shared", "-w", "-o", str(library), str(source)]
        subprocess.run([*command, *map(str, objects)], check=True)
        return library

    def sandbox(self, jail: bool, stage: str = STAGE) -> Sandbox:
        return make_sandbox(self.builder.program(named(stage)), []) if jail else Sandbox()

    def graded(self, library: Path, jail: bool, *tests: str, stage: str = STAGE, deadline_s: float = 5) -> StageReport:
        program = self.builder.program(named(stage))
        specs = [spec for spec in ask(program) if spec.name in (tests or (TEST,))]
        report = StageReport(named(stage), [TestResult(spec) for spec in specs])
        options = RunOptions(seed=1, deadline_s=deadline_s, sandbox=self.sandbox(jail, stage))
        run_stage(program, library, report, options, lambda result: None)
        return report

    def assert_nothing_gained(self, code: str, says: str, *tests: str, beside: str = "assignments") -> None:
        library = self.library(code, beside=beside)
        for jail in (True, False):
            with self.subTest(jail=jail):
                report = self.graded(library, jail, *tests)
                self.assertEqual(report.score, 0)
                self.assertRegex("\n".join(text for result in report.results for text in result.failures), says)
                self.assertEqual(self.left_running(library), [])

    def left_running(self, library: Path) -> list[str]:
        """Processes that have the library in their command line, as all of a test program's have."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if str(library).encode() in (process / "cmdline").read_bytes() and alive(int(process.name)):
                    found.append(process.name)
            except OSError:
                pass
        return found


class Cheating(Attack):
    def test_finished_said_without_a_body(self) -> None:
        self.assert_nothing_gained(FORGED, "did not run")
