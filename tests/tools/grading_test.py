"""What tests of the grader share: a scratch checkout with the real tools, a fake compiler and a fake test program.

The fake compiler copies a stage's source to the place of its library, and the fake test program runs that text as
Python. So each test writes, as "student's code", the outcome of stage 01's tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
import unittest
from pathlib import Path

from tools.grading.strangers.sandbox import make_sandbox
from tools.setup.toolchain import ROOT

STAGE = "01_naive_ddp"
NAMES = ["broadcasts_rank_0", "gradients_equal_the_oracle", "one_all_reduce_per_parameter"]
ALL_PASS = "def run(name): return {'status': 'passed'}\n"
PROGRAM = """\
#!{python}
import json, os, sys, time
TESTS = [
    dict(name="broadcasts_rank_0", points=5, hint="Use broadcast.", file="{root}/tests/01_naive_ddp/a.cpp", line=3),
    dict(name="gradients_equal_the_oracle", points=6, hint="Divide.", file="{root}/tests/01_naive_ddp/a.cpp", line=9),
    dict(name="one_all_reduce_per_parameter", points=4, hint="Count.", file="{root}/tests/01_naive_ddp/a.cpp", line=20),
]
if "--list" in sys.argv:
    print(json.dumps(TESTS))
    sys.exit()
options = [argument[2:].split("=", 1) for argument in sys.argv[1:] if "=" in argument]
flags = dict(options)
fd = int(flags["records-fd"])
seed, device = int(flags["seed"]), flags["device"]

def write(text):
    os.write(fd, text.encode())

def record(**fields):
    write(json.dumps(fields) + "\\n")

exec(open(flags["stage-library"]).read())
for key, name in options:
    if key == "test":
        record(event="test_started", name=name)
        record(event="test_finished", name=name, **{{"seconds": 0.01, "failures": [], "measured": [], **run(name)}})
record(event="run_finished")
"""


# As the program above has them: names, points, hints and lines.
DECLARED = """\
const char* const kCount = "one_all_reduce_per_parameter";

const GradedTest kBroadcast{{.name = "broadcasts_rank_0", .points = 5, .hint = "Use broadcast."}, [] {}};





const GradedTest kMean{
    {.name = "gradients_equal_the_oracle",
     .points = 6,
     .hint = "Div"
             "ide."},
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
        print(f"{{root}}/common/ddp/ranks/launch.cpp:7:1: error: expected ';'", file=sys.stderr)
        broken = True
    elif target == "ddp" and (root / "build_waits").exists():
        while (root / "build_waits").exists():
            time.sleep(0.01)
    elif target == "ddp" and (root / "build_hangs").exists():
        (root / "build_hangs").write_text("started")
        time.sleep(600)
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


class Checkout:
    """A scratch checkout with one graded stage."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT / "tools", root / "tools")  # including compiled modules, which save time
        (root / "build/bin").mkdir(parents=True)
        fields = {"python": sys.executable, "root": str(root)}
        self.script("cmake", CMAKE.format(**fields))
        self.script(f"build/bin/tests_{STAGE}", PROGRAM.format(**fields))
        keys = ("python", "figure_python", "libtorch", "torch_version", "cxx", "ninja")
        chosen = dict.fromkeys(keys, "") | {"cmake": str(root / "cmake"), "build_dir": str(root / "build")}
        self.write("build/toolchain.json", json.dumps({"toolchain": chosen}))
        self.write(f"build/lib/libtests_{STAGE}_code.so", "")
        self.write(f"tests/{STAGE}/a.cpp", DECLARED)
        for manifest in (ROOT / "assignments").glob("*/stage.json"):
            self.write(f"assignments/{manifest.parent.name}/stage.json", manifest.read_text())

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    def script(self, path: str, text: str) -> None:
        self.write(path, text).chmod(0o755)

    def student(self, text: str, impl: str = "assignments", stage: str = STAGE) -> None:
        self.write(f"{impl}/{stage}/{stage[3:]}.cpp", text)

    def command(self, tool: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", f"tools.grading.{tool}", *arguments]

    def results(self) -> dict:
        return json.loads((self.root / "build/grade/results.json").read_text())

    def kept_score(self) -> float | None:
        """What `make submit` would pack."""
        kept = self.root / "build/grade/scores.json"
        return json.loads(kept.read_text())["score"] if kept.exists() else None

    def statuses(self) -> list[str]:
        return [test["extra_data"]["status"] for test in self.results()["tests"]]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes_in(folder: Path) -> list[str]:
    """The command lines of all processes that work in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(process / "cwd")).is_relative_to(folder):
                found.append((process / "cmdline").read_bytes().decode(errors="replace"))
    return found


def wait_for(condition, what: str, seconds: float = 20.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.01)
    return value


def require_jail(test: unittest.TestCase) -> None:
    """Skips a test of the jail where the system allows none; a rank's own confinement is tested there, too."""
    sandbox = make_sandbox(Path("/bin/true"), [])
    if not sandbox.prefix:
        test.skipTest(" ".join(sandbox.gaps))


class GraderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        """Behind "&" a shell may ignore interrupts, and what the tests start would, too."""
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def setUp(self) -> None:
        self.checkout = Checkout(self.folder / "lab")
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self.temporary)}

    def tool(self, name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.checkout.command(name, *arguments),
            capture_output=True,
            text=True,
            timeout=60,
            env={**self.environment, **environment},
            cwd=self.checkout.root,
        )

    def grade(self, student: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.checkout.student(student)
        done = self.tool("grade", *arguments, **environment)
        self.assertNotIn("Traceback", done.stdout + done.stderr)
        self.assertEqual(list(self.temporary.iterdir()), [], "temporary files were left")
        return done

    def on_terminal(self, *arguments: str, width: int = 80, **environment: str) -> Terminal:
        return Terminal(self, self.checkout.command("grade", *arguments), width, environment)

    def start(self, student: str, **options: object) -> subprocess.Popen[str]:
        self.checkout.student(student)
        process = subprocess.Popen(
            self.checkout.command("grade", "--stage=1"),
            cwd=self.checkout.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
            **options,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, test: GraderTest, command: list[str], width: int, environment: dict[str, str]) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, width, 0, 0))
        env = {**test.environment, "TERM": "xterm", **environment}
        env.pop("COLUMNS", None)
        self.process = subprocess.Popen(command, cwd=test.checkout.root, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        test.addCleanup(os.close, self._ours)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)
        self.output = ""

    def read_until(self, text: str) -> None:
        while text not in self.output:
            if not self._read():
                raise AssertionError(f"{text!r} was not printed, but:\n{self.output}")

    def read_all(self) -> str:
        while self._read():
            pass
        self.process.wait(20)
        return self.output

    def lines(self) -> list[str]:
        """What stays on the screen, without colours."""
        plain = re.sub(r"\x1b\[[\d;]*m", "", self.read_all())
        return [line.split("\x1b[K")[-1].rstrip("\r") for line in plain.split("\n")]

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # on Linux, when the other side has closed
            return False
        self.output += data.decode()
        return bool(data)
