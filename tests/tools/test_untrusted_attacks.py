"""What code that got past the look at its includes and imports can do with UNTRUSTED=1: nothing that earns a point.

Each attack is C++ in a constructor, which runs as soon as a rank loads the library, beside a stub. It is run in the
jail and, to show that a rank's own confinement is enough, without.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

from tests.tools.grading_test import alive, require_jail
from tools.grading.compile_commands import object_of
from tools.grading.compiling.building import Builder
from tools.grading.running.runner import RunOptions, run_stage
from tools.grading.running.test_lists import ask
from tools.grading.scoring.results import StageReport, TestResult, TestSpec
from tools.grading.stages import named
from tools.grading.strangers.sandbox import Sandbox, make_sandbox
from tools.setup import toolchain
from tools.setup.toolchain import ROOT, LabError

STAGE = "04_sync_batch_norm"
TEST = "strides_do_not_matter"  # one body of two ranks
INCLUDES = "\n".join(
    f"#include <{header}>"
    for header in "dlfcn.h fcntl.h pthread.h signal.h stdio.h stdlib.h string.h unistd.h".split()
    + "sys/mman.h sys/ptrace.h sys/socket.h sys/uio.h".split()
)
# What a rank's harness tells its parent, and what it would say if the body had run. Its memory has the token twice.
FRAME = """
static void frame(const char* text, char kind) {
  const unsigned length = strlen(text);
  write(3, &kind, 1);
  write(3, &length, 4);
  write(3, text, length);
}
"""
FORGED = (
    FRAME
    + """
static char found[10000][21];  // not on the heap, where it would be found again
static int count = 0;
[[gnu::constructor]] static void attack() {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[512];
  while (fgets(line, sizeof(line), maps)) {
    unsigned long begin, end;
    if (sscanf(line, "%lx-%lx", &begin, &end) != 2 || !strstr(line, "[heap]")) continue;
    const char* run = nullptr;
    for (const char* at = (const char*)begin; at < (const char*)end; ++at) {
      if (*at >= '0' && *at <= '9') { run = run ? run : at; continue; }
      if (run && *at == 0 && at - run >= 16 && at - run <= 20 && count < 10000) memcpy(found[count++], run, at - run);
      run = nullptr;
    }
  }
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < i; ++j)
      if (!strcmp(found[i], found[j])) frame(found[i], 'f');
  _exit(0);
}
"""
)


# Python that makes system calls fail: x86-64's numbers below.
FORBID = """
import ctypes, struct
def forbid(calls):
    code = [(0x20, 0, 0, 0)]  # load the number
    for call in calls:
        code += [(0x15, 0, 1, call), (0x06, 0, 0, 0x00050001)]  # EPERM
    code += [(0x06, 0, 0, 0x7FFF0000)]
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    libc = ctypes.CDLL(None, use_errno=True)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(text)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
"""
SYS_UNSHARE, SYS_LANDLOCK, SYS_PRCTL = 272, 444, 157


def setUpModule() -> None:
    try:
        tools = toolchain.load()
    except LabError as error:
        raise unittest.SkipTest(str(error)) from None
    if not Builder(tools).program(named(STAGE)).exists():
        raise unittest.SkipTest("the stages are not built")


@functools.cache
def graded_test() -> TestSpec:
    return next(spec for spec in ask(Builder(toolchain.load()).program(named(STAGE))) if spec.name == TEST)


@functools.cache
def jail() -> Sandbox:
    return make_sandbox(Builder(toolchain.load()).program(named(STAGE)), [])


class Attack(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.folder.chmod(0o755)  # a jail of root's runs as nobody, who may not enter pytest's folders
        self.tools = toolchain.load()
        self.builder = Builder(self.tools)

    def library(self, code: str, beside: str) -> Path:
        """`code` as a stage's library, beside the stub or the solution, or alone."""
        source, library = self.folder / "attack.cpp", self.folder / "libstage.so"
        source.write_text(f"{INCLUDES}\n{code}\n")
        objects = [object_of(self.builder._build_dir, path) for path in named(STAGE).sources(beside)] if beside else []
        command = [self.tools.cxx, "-std=c++20", "-fPIC", "-shared", "-w", "-o", str(library), str(source)]
        subprocess.run([*command, *map(str, objects)], check=True)
        return library

    def graded(self, library: Path, sandbox: Sandbox) -> TestResult:
        report = StageReport(named(STAGE), [TestResult(graded_test())])
        options = RunOptions(seed=1, deadline_s=5, sandbox=sandbox)
        run_stage(self.builder.program(named(STAGE)), library, report, options, lambda result: None)
        return report.results[0]

    def assert_nothing_gained(self, code: str, says: str, beside: str = "assignments") -> None:
        library = self.library(code, beside)
        for sandbox in (jail(), Sandbox()):
            with self.subTest(jail=bool(sandbox.prefix)):
                result = self.graded(library, sandbox)
                self.assertEqual(result.score, 0)
                self.assertRegex("\n".join(result.failures), says)
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


def on_load(code: str) -> str:
    return f"[[gnu::constructor]] static void attack() {{ {code} }}"


class Cheating(Attack):
    def test_finished_said_without_a_body(self) -> None:
        self.assert_nothing_gained(FORGED, r"without doing what it had to do: of \d\d+ .* there were 0")

    def test_operators_that_nobody_observes(self) -> None:
        code = "namespace at { void clearCallbacks(); } void* deafen(void*) { for (;;) at::clearCallbacks(); }"
        code += on_load("pthread_t thread; pthread_create(&thread, 0, deafen, 0);")
        self.assert_nothing_gained(code, "something has switched off what looks at tensors", beside="solutions")

    def test_the_built_solution(self) -> None:
        solution = self.builder.library(named(STAGE), "solutions")
        code = on_load(f'if (!dlopen("{solution}", RTLD_NOW | RTLD_GLOBAL)) fprintf(stderr, "%s", dlerror());')
        self.assert_nothing_gained(code, "the stage does not define ddp::", beside="")

    def test_a_place_that_a_shell_would_run(self) -> None:
        """Where a rank crashed, its parent asks a program by way of a shell."""
        marker = self.folder / "marker"
        place = f"{self.folder}/libstage.so 0;touch${{IFS}}{marker} f"
        code = on_load(f"frame(\"{place}\", 's'); abort();")
        self.assert_nothing_gained(FRAME + code, "SIGABRT")
        self.assertFalse(marker.exists())

    def test_an_answer_in_a_file(self) -> None:
        source = named(STAGE).sources("solutions")[0]
        code = on_load(f'perror(fopen("{source}", "r") ? "opened" : "closed"); abort();')
        self.assert_nothing_gained(code, "closed: Permission denied")


class ReachingOut(Attack):
    """What is forbidden ends the rank, with a line that says what it was."""

    def assert_caught(self, code: str, what: str) -> None:
        self.assert_nothing_gained(on_load(code), rf"UNTRUSTED=1: the stage asked the system to {what} \(")

    def test_memory_of_its_own_process_through_a_file(self) -> None:
        self.assert_caught('open("/proc/self/mem", O_RDWR);', "write or change a file")

    def test_memory_of_its_parent(self) -> None:
        self.assert_caught(
            'char path[40]; sprintf(path, "/proc/%d/mem", getppid()); if (open(path, O_RDONLY) >= 0) _exit(0);'
            "char byte = 0; iovec part{&byte, 1};"
            "process_vm_writev(getppid(), &part, 1, &part, 1, 0);",
            "reach into another process",
        )
        self.assert_caught("ptrace(PTRACE_ATTACH, getppid(), 0, 0);", "reach into another process")

    def test_ending_the_grader(self) -> None:
        self.assert_caught("kill(getppid(), SIGKILL);", "signal a process")
        self.assert_caught("kill(-1, SIGKILL);", "signal a process")

    def test_ending_the_grader_without_being_told(self) -> None:
        self.assert_nothing_gained(on_load("signal(SIGSYS, SIG_IGN); kill(-1, SIGKILL);"), "SIGSYS")

    def test_survivors(self) -> None:
        self.assert_caught("if (fork() == 0) { setsid(); if (fork() == 0) sleep(600); _exit(0); }", "start a process")
        self.assert_caught('execl("/bin/sleep", "sleep", "600", nullptr);', "start a process")

    def test_result_files_and_programs(self) -> None:
        results = self.builder._build_dir / "grade" / "results.json"
        program = self.builder.program(named("05_ring_all_reduce"))
        before = program.read_bytes()
        self.assert_caught(f'fopen("{results}", "w");', "write or change a file")
        self.assert_caught(f'rename("/proc/self/exe", "{program}");', "write or change a file")
        self.assert_caught(f'unlink("{program}");', "write or change a file")
        self.assertEqual(program.read_bytes(), before)

    def test_the_network(self) -> None:
        self.assert_caught("socket(AF_INET, SOCK_STREAM, 0);", "use the network")


class UsingUp(Attack):
    """What a machine has little of; the deadline is short, so that the tests are."""

    def test_a_gigabyte_of_printing(self) -> None:
        code = on_load(
            "static char much[1 << 20]; for (int i = 0; i < 1024; ++i) write(1, much, sizeof(much)); abort();"
        )
        self.assert_nothing_gained(code, "bytes left out")

    def test_a_bomb_of_processes(self) -> None:
        self.assert_nothing_gained(on_load("for (;;) fork();"), "start a process")

    def test_a_bomb_of_threads(self) -> None:
        code = "void* sleep(void*) { return sleep(600), nullptr; }"
        code += on_load("pthread_t thread; while (!pthread_create(&thread, 0, sleep, 0)) {} abort();")
        self.assert_nothing_gained(code, "SIGABRT")

    def test_memory(self) -> None:
        code = on_load(
            "while (mmap(0, 1 << 24, 3, MAP_PRIVATE | MAP_ANON, -1, 0) != MAP_FAILED) {} perror(0); abort();"
        )
        self.assert_nothing_gained(code, "Cannot allocate memory")

    def test_files_in_memory(self) -> None:
        code = on_load("static char much[1 << 20]; for (;;) if (write(4, much, sizeof(much)) <= 0) abort();")
        self.assert_nothing_gained(code, "SIGXFSZ")

    def test_no_end(self) -> None:
        code = on_load("for (volatile int i = 0;; ++i) {}")
        self.assert_nothing_gained(code, "hung: nothing was heard of any rank|s of processor time")


class WhatIsLacking(Attack):
    """On systems that forbid what the sandbox is made of, as containers do: with filters of our own."""

    def setUp(self) -> None:
        require_jail(self)
        super().setUp()

    def gaps(self, *forbidden: int) -> str:
        """What make_sandbox() says where these system calls fail; the first is allowed to only this process."""
        program = self.builder.program(named(STAGE))
        code = (
            FORBID
            + f"forbid({list(forbidden)})\n"
            + textwrap.dedent(f"""
            from pathlib import Path
            from tools.grading.strangers.sandbox import make_sandbox
            try:
                print(*make_sandbox(Path({str(program)!r}), []).gaps)
            except Exception as error:
                print(type(error).__name__, error)
            """)
        )
        said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        # Said of a clone, or of a TMPDIR as `make check` has it, in a folder that only root can enter.
        return re.sub(r"the lab is in a folder that only root can enter.*?limited\. ?", "", said)

    def test_nothing(self) -> None:
        self.assertEqual(self.gaps(), "")

    def test_namespaces(self) -> None:
        self.assertRegex(self.gaps(SYS_UNSHARE), "^no namespaces here .*unshare: Operation not permitted.*threads")

    def test_landlock(self) -> None:
        self.assertRegex(self.gaps(SYS_LANDLOCK), "^no Landlock here .*stages can read")

    def test_seccomp(self) -> None:
        self.assertRegex(self.gaps(SYS_PRCTL), "^LabError UNTRUSTED=1 needs a kernel with seccomp")


class Seals(Attack):
    def test_a_program_that_changed_is_not_run(self) -> None:
        file = self.folder / "tests_05"
        file.write_text("a")
        sandbox = make_sandbox(self.builder.program(named(STAGE)), [file])
        self.assertEqual(sandbox.broken_seal(), "")
        file.write_text("b")
        self.assertIn("tests_05 changed after the first stage had begun", sandbox.broken_seal())
        file.unlink()
        self.assertIn("tests_05 changed", sandbox.broken_seal())
