"""What tests of the grader share: a scratch checkout with the real tools, a fake compiler and a fake test program.

The fake compiler copies a stage's source to the place of its library, and the fake test program runs that text as
Python. So each test writes, as "student's code", the outcome of stage 01's tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.grading.sandbox.sandbox import make_sandbox
from tools.setup.toolchain import ROOT

STAGE, OTHER = "01_naive_ddp", "02_overlapped_ddp"
NAMES = ["broadcasts_rank_0", "gradients_equal_the_oracle", "one_all_reduce_per_parameter"]
ALL_PASS = "def run(name): return {'status': 'passed'}\n"
ALL_FAIL = "def run(name): return {'status': 'failed', 'failures': ['wrong']}\n"
PROGRAM = """\
#!{python}
import json, os, sys, time
TESTS = [
    dict(name="broadcasts_rank_0", points=5, hint="Use broadcast.", file="{root}/tests/01_naive_ddp/a.cpp", line=3),
    dict(name="gradients_equal_the_oracle", points=6, hint="Divide.", file="{root}/tests/01_naive_ddp/a.cpp", line=4),
    dict(name="one_all_reduce_per_parameter", points=4, hint="Count.", file="{root}/tests/01_naive_ddp/a.cpp", line=12),
]
if "--list" in sys.argv:
    print(json.dumps(TESTS))
    sys.exit()
options = [argument[2:].split("=", 1) for argument in sys.argv[1:] if "=" in argument]
flags = dict(options)
fd = int(flags["records-fd"])
seed, device = int(sys.stdin.readline()), flags["device"]

def write(text):
    os.write(fd, text.encode())

def record(**fields):
    write(json.dumps(fields) + "\\n")

exec(open(flags["stage-library"]).read())
for key, name in options:
    if key == "test":
        record(event="test_started", name=name)
        record(event="test_finished", name=name, **{{"seconds": 0.01, "failures": [], "notes": [], **run(name)}})
record(event="run_finished")
"""


def in_the_second_test(does: str) -> str:
    """A student's code that passes the others, and this one if it goes on."""
    return f"""
def run(name):
    if name == 'gradients_equal_the_oracle':
        {does}
    return {{'status': 'passed'}}
"""


# As the program above has them: names, points, hints and lines.
DECLARED = """\
const char* const kCount = "one_all_reduce_per_parameter";

const GradedTest kBroadcast{{.name = "broadcasts_rank_0", .points = 5, .hint = "Use broadcast."}, [] {}};
const GradedTest kMean{
    {.name = "gradients_equal_the_oracle",
     .points = 6,
     .hint = "Div"
             "ide.",
     .more = "How often do you "
             "divide?"},
    [] { judge(all_training(), mean); }};

const GradedTest kOneEach{{.name = kCount, .points = 4, .hint = "Count."}, [] {}};
"""
CMAKE = """\
#!{python}
import pathlib, shutil, sys, time
root = pathlib.Path("{root}")
if "-S" in sys.argv:
    folder = pathlib.Path(sys.argv[sys.argv.index("-B") + 1])
    (folder / "build.ninja").touch()
    (folder / "CMakeCache.txt").write_text("SANITIZE:STRING=" + " ".join(sys.argv).partition("SANITIZE=")[2])
    sys.exit()
build = pathlib.Path(sys.argv[2])
targets = sys.argv[sys.argv.index("--target") + 1:sys.argv.index("--")]
(root / "build/targets").write_text(" ".join(targets))
broken = False
for target in targets:
    impl, _, stage = target.partition("_")
    if target.startswith("tests_") and build != root / "build":
        (build / "bin").mkdir(exist_ok=True)
        shutil.copy(root / "build/bin" / target, build / "bin")
    if target.startswith("tests_") and (root / "common_is_broken").exists():
        print("[1/2] Building CXX object ddp.cpp.o")
        print(f"{{root}}/common/ddp/launching/launch.cpp:7:1: error: expected ';'", file=sys.stderr)
        broken = True
    elif target == "ddp":
        while (root / "build_waits").exists():
            time.sleep(0.01)
    elif impl in ("assignments", "solutions"):
        source = root / impl / stage / (stage[3:] + ".cpp")
        if "fills the disk" in source.read_text():
            print("[2/2] Linking CXX shared library libstage.so")
            print("/usr/bin/ld: final link failed: No space left on device")
            broken = True
        elif "does not compile" in source.read_text():
            print("[1/2] Building CXX object naive_ddp.cpp.o")
            print(f"{{source}}:12:5: error: 'gruop' was not declared in this scope")
            print("   12 |     gruop->allreduce(tensors);")
            print("      |     ^~~~~")
            broken = True
        else:
            library = build / "stages" / impl / stage / "libstage.so"
            library.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, library)
sys.exit(broken)
"""
# The compiler of what nobody trusts, where there is no Python.
CXX = """\
#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in -o) out=$2 ;; *.cpp) source=$1 ;; esac
  shift
done
exec cp "$source" "$out"
"""
# Python that makes system calls fail.
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


class Lab:
    """A scratch checkout with one graded stage, and what a user types there."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.root, self.temporary, self._stack = folder / "lab", folder / "tmp", stack
        self.temporary.mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self.temporary)}
        shutil.copytree(ROOT / "tools", self.root / "tools")  # including compiled modules, which save time
        self.source = self.root / "assignments" / STAGE / "naive_ddp.cpp"
        self.program = self.root / "build/bin" / f"tests_{STAGE}"
        fields = {"python": sys.executable, "root": str(self.root)}
        self.script("cmake", CMAKE.format(**fields))
        self.script(f"build/bin/tests_{STAGE}", PROGRAM.format(**fields))
        keys = ("python", "figure_python", "libtorch", "torch_version", "cxx", "ninja")
        chosen = dict.fromkeys(keys, "") | {"cmake": str(self.root / "cmake"), "build_dir": str(self.root / "build")}
        self.write("build/toolchain.json", json.dumps({"toolchain": chosen}))
        self.script("cxx", CXX)
        commands = [{"file": str(self.root / "assignments" / stage / f"{stage[3:]}.cpp"), "directory": str(self.root),
                     "command": f"{self.root}/cxx -o {stage}.o"} for stage in (STAGE, OTHER)]  # fmt: skip
        self.write("build/compile_commands.json", json.dumps(commands))
        self.write("build/CMakeCache.txt", "DDP_LAB_CUDA:INTERNAL=on\n")
        self.write(f"build/lib/libtests_{STAGE}_code.so", "")
        self.write(f"tests/{STAGE}/a.cpp", DECLARED)
        self.write(f"tests/{STAGE}/minimum_activity.json", "{}")
        for manifest in (ROOT / "assignments").glob("*/stage.json"):
            self.write(f"assignments/{manifest.parent.name}/stage.json", manifest.read_text())

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text()
        assert old in text
        (self.root / path).write_text(text.replace(old, new))

    def script(self, path: str, text: str) -> None:
        self.write(path, text).chmod(0o755)

    def student(self, text: str, impl: str = "assignments", stage: str = STAGE) -> None:
        self.write(f"{impl}/{stage}/{stage[3:]}.cpp", text)

    def second_stage(self, student: str) -> None:
        """With the tests of the first."""
        shutil.copy(self.program, self.program.with_name(f"tests_{OTHER}"))
        self.write(f"build/lib/libtests_{OTHER}_code.so", "")
        self.write(f"tests/{OTHER}/a.cpp", "")
        self.write(f"tests/{OTHER}/minimum_activity.json", "{}")
        self.student(student, stage=OTHER)

    def tool(self, name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {**self.environment, **environment}
        command = [sys.executable, "-m", f"tools.grading.{name}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd=self.root)
        assert "Traceback" not in done.stdout + done.stderr
        return done

    def grade(self, student: str, *arguments: str, code: int = 0, **environment: str) -> str:
        """What is printed, and said of errors, where full marks or another ending are due."""
        self.student(student)
        done = self.tool("grade", *arguments, **environment)
        assert done.returncode == code, done.stdout + done.stderr
        assert list(self.temporary.iterdir()) == [], "temporary files were left"
        return done.stdout + done.stderr

    def start(self, tool: str, *arguments: str, **options: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", f"tools.grading.{tool}", *arguments]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": self.environment}
        process = subprocess.Popen(command, cwd=self.root, text=True, **{**output, **options})
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process

    def results(self) -> dict:
        return json.loads((self.root / "build/grade/results.json").read_text())

    def kept(self) -> dict:
        """What `make submit` would pack."""
        kept = self.root / "build/grade/scores.json"
        return json.loads(kept.read_text()) if kept.exists() else {}

    def statuses(self) -> list[str]:
        return [test["extra_data"]["status"] for test in self.results()["tests"]]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes_in(folder: Path) -> list[str]:
    """The command lines of all processes that work in this folder, or name it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes().decode(errors="replace")
            if str(folder) in command or Path(os.readlink(process / "cwd")).is_relative_to(folder):
                found.append(command)
    return found


def wait_for(condition, what: str, seconds: float = 20.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.01)
    return value


def require_jail() -> None:
    """Skips a test of the jail where the system allows none; a rank's own confinement is tested there, too."""
    sandbox = make_sandbox(Path("/bin/true"))
    if not sandbox.namespaces:
        pytest.skip(" ".join(sandbox.gaps))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A checkout to grade in; what was started there ends with the test."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it behind "&", and so would tools
    with contextlib.ExitStack() as stack:
        yield Lab(tmp_path, stack)
