"""Set-up, doctor and the Makefile, the checkout's own Python environment, and what a GPU needs.

Nothing real is installed or configured: cmake, g++ and apt-get are small scripts that record their arguments,
and torch is a folder of empty files.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

import pytest

from tests.harness.cuda_driver_test import driver
from tools.checking.context import Context
from tools.setup import gpus, setup, system_packages, toolchain, virtual_environment
from tools.setup.toolchain import LabError

ROOT = Path(__file__).resolve().parents[2]
CMAKE = """\
#!/bin/sh
[ "$1" = --version ] && { echo "cmake version ${FAKE_CMAKE_VERSION:-3.25.1}"; exit; }
echo "$@" >> "$FAKE_LOG"
[ -z "$FAKE_CMAKE_FIFO" ] || { echo $$ > "$FAKE_CMAKE_FIFO"; exec sleep 1000; }
[ -z "$FAKE_CMAKE_FAILS" ] || { echo "CMake Error at CMakeLists.txt:7:"; echo "  no such thing"; exit 1; }
cat > "$4/CMakeCache.txt" <<END
CMAKE_HOME_DIRECTORY:INTERNAL=$2
CMAKE_GENERATOR:INTERNAL=$6
CMAKE_CXX_COMPILER:STRING=${7#*=}
END
touch "$4/build.ninja"
echo [] > "$4/compile_commands.json"
echo "-- CUDA: off, no toolkit"
"""


SYSTEM_TOOLS = ("sh", "env", "cat", "touch", "sleep", "make", "awk", "uname", "git", "rm")


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def fake_torch(folder: Path, version: str = "2.11.0+cpu") -> Path:
    for part in ("include/ATen/ATen.h", "lib/libtorch_cpu.so", "lib/libc10.so", "__init__.py"):
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        (folder / part).touch()
    (folder / "version.py").write_text(f"__version__ = '{version}'\n")
    return folder


class Checkout(unittest.TestCase):
    """A copy of the files that set-up reads, and a PATH that contains only what a test puts there."""

    @classmethod
    def setUpClass(cls) -> None:
        """Behind "&" a shell may ignore interrupts, and what the tests start would, too."""
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def setUp(self) -> None:
        self.top = self.folder
        self.lab, self.bin, self.log = self.top / "lab", self.top / "bin", self.top / "asked"
        shutil.copytree(ROOT / "tools", self.lab / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        (self.lab / "cmake").mkdir()
        for name in ("Makefile", "instructor.mk", "requirements.txt", "cmake/libraries.txt"):
            shutil.copy(ROOT / name, self.lab / name)
        for name in ("gtest/gtest.h", "nlohmann/json.hpp", "CLI/CLI.hpp"):
            (self.top / "include" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.top / "include" / name).touch()
        self.bin.mkdir()
        for name in SYSTEM_TOOLS:
            if path := shutil.which(name):
                (self.bin / name).symlink_to(path)
        script(self.bin / "cmake", CMAKE)
        script(self.bin / "clang++", "#!/bin/sh\necho 'clang version 19.1.7'\n")
        script(self.bin / "ninja", "#!/bin/sh\necho 1.11.1\n")
        script(self.bin / "addr2line", "#!/bin/sh\necho 2.40\n")
        script(self.bin / "apt-get", '#!/bin/sh\necho apt-get "$@" >> "$FAKE_LOG"\necho "E: no network"; exit 100\n')
        script(self.bin / "python3", f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
        self.python = self.make_python("python-with-torch")
        self.environment = {"PATH": str(self.bin), "HOME": str(self.top), "FAKE_LOG": str(self.log)}
        self.environment["CMAKE_PREFIX_PATH"] = str(self.top)

    def make_python(self, name: str, version: str = "2.11.0+cpu") -> str:
        """A Python whose only package is a fake torch; no version: no torch."""
        packages = self.top / f"{name}-packages"
        if version:
            fake_torch(packages / "torch", version)
        text = f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" -S "$@"\n'
        return script(self.top / name, text)

    def start(self, *argv: str, **environment: str) -> subprocess.Popen:
        return subprocess.Popen(
            argv, cwd=self.lab, env={**self.environment, **environment}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run_tool(self, *argv: str, code: int = 0, **environment: str) -> str:
        process = self.start(*argv, **environment)
        output = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, code, output)
        self.assertNotIn("Traceback", output)
        return output

    def set_up(self, *flags: str, code: int = 0, **environment: str) -> str:
        return self.run_tool("python3", "-m", "tools.setup.setup", *flags, code=code, **environment)

    def asked(self, program: str = "-S") -> list[str]:
        """The arguments of the fake programs: cmake's lines begin with -S, apt-get's with its name."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(program)]


class Choosing(Checkout):
    def test_given_python_is_used_as_it_is_and_remembered_until_another_is_given(self) -> None:
        other = self.make_python("other-python", "2.11.1")
        self.set_up(PYTHON=self.python)
        assert not (self.lab / ".venv").exists()
        assert self.set_up() == "" and self.set_up(PYTHON=self.python) == ""
        self.set_up(PYTHON=other)
        first, second = self.asked()
        assert f"-DDDP_LAB_PYTHON={self.python}" in first and f"-DDDP_LAB_PYTHON={other}" in second

    def test_active_environment_with_torch_is_used(self) -> None:
        environment = self.top / "environment"
        (environment / "bin").mkdir(parents=True)
        shutil.copy(self.python, environment / "bin" / "python")
        self.set_up(VIRTUAL_ENV=str(environment))
        assert self.toolchain().libtorch == str(self.top / "python-with-torch-packages" / "torch")

    def test_libtorch_needs_no_python_with_torch(self) -> None:
        folder = fake_torch(self.top / "libtorch")
        (folder / "version.py").unlink()
        (folder / "build-version").write_text("2.11.0+cpu\n")
        self.set_up(LIBTORCH=str(folder))
        assert f"-DLIBTORCH={folder}" in self.asked()[0]
        assert self.toolchain().python == ""

    def test_what_does_not_fit_is_refused_with_the_reason(self) -> None:
        cases = {
            self.make_python("old-python", "2.8.0"): "has torch 2.8.0, the lab needs 2.11 to 2.15",
            self.make_python("new-python", "2.16.0"): "has torch 2.16.0, the lab needs",
            self.make_python("bare-python", ""): "has no torch",
            str(self.bin / "ninja"): "does not start as a Python",
            str(self.top): f"is a folder. Name the program in it: PYTHON={self.top}/bin/python",
            "no-such-python": "no such program",
        }
        for python, reason in cases.items():
            assert reason in self.set_up(code=1, PYTHON=python)
        self.assertIn("has no include/ATen/ATen.h", self.set_up(code=1, LIBTORCH=str(self.top)))
        self.assertEqual(self.asked(), [])

    def toolchain(self) -> toolchain.Toolchain:
        return toolchain.load(self.lab / "build")


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "arm64"), ("Linux", "riscv64")])
def test_a_system_that_is_not_supported_is_told_so_at_once(
    system: str, machine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert toolchain.unsupported_system() == ""  # this one is
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("sys.argv", ["setup"])
    assert setup.main() == 1
    assert re.search("runs on Linux alone, and this is macOS|no build for riscv64", capsys.readouterr().err)


class DoingNothing(Checkout):
    def test_each_change_that_matters_is_noticed(self) -> None:
        changes = {
            "build files removed": lambda: (self.lab / "build" / "build.ninja").unlink(),
            "torch replaced": lambda: fake_torch(self.top / "python-with-torch-packages" / "torch", "2.11.2"),
            "requirements edited": lambda: (self.lab / "requirements.txt").write_text("torch==2.15.0\n"),
            "compiler replaced": lambda: script(self.bin / "clang++", "#!/bin/sh\necho 'clang version 18.0.0 '\n"),
            "state damaged": lambda: (self.lab / "build" / "toolchain.json").write_text("{"),
        }
        self.set_up(PYTHON=self.python)
        for count, (name, change) in enumerate(changes.items(), start=2):
            change()
            self.set_up(PYTHON=self.python)
            assert len(self.asked()) == count, name

    def test_moved_checkout_is_configured_anew(self) -> None:
        self.set_up(PYTHON=self.python)
        (self.lab / "build" / "stale.o").touch()
        self.lab = self.lab.rename(self.top / "moved")
        self.set_up()
        self.assertFalse((self.lab / "build" / "stale.o").exists())
        assert f"-S {self.lab}" in self.asked()[1]


class Failing(Checkout):
    def test_cmake_error_is_shown_and_the_next_run_tries_again(self) -> None:
        output = self.set_up(code=1, PYTHON=self.python, FAKE_CMAKE_FAILS="1")
        assert "CMake Error at CMakeLists.txt:7" in output and "setup.log" in output
        self.set_up()  # the choice of Python is kept, too
        assert f"-DDDP_LAB_PYTHON={self.python}" in self.asked()[1]

    def test_no_compiler(self) -> None:
        (self.bin / "clang++").unlink()
        output = self.set_up(code=1, PYTHON=self.python)
        assert "C++ compiler is missing" in output
        assert system_packages.how_to_install() in output
        installs = [line for line in self.asked("apt-get") if "install" in line]
        self.assertEqual(len(installs), 1 if os.geteuid() == 0 else 0)

    def test_gcc_is_taken_where_there_is_no_fitting_clang(self) -> None:
        script(self.bin / "g++", "#!/bin/sh\necho 'g++ 12.2.0'\n")
        assert f"{self.bin}/g++, {self.bin}/cmake" in self.set_up(PYTHON=self.python, CXX="g++")
        script(self.bin / "clang++", "#!/bin/sh\necho 'clang version 11.0.1'\n")
        self.assertIn(f"{self.bin}/g++, {self.bin}/cmake", self.set_up(PYTHON=self.python))
        told = self.set_up(PYTHON=self.python, CXX="clang++", code=1)
        assert f"{self.bin}/clang++ is version 11.0.1, the lab needs 14 or newer: install a newer one" in told
        (self.bin / "clang++").unlink()
        (self.lab / "build" / "toolchain.json").unlink()
        assert "clang++ 16 or newer is missing: g++ needs three times as long" in self.set_up(PYTHON=self.python)
        assert "DCMAKE_CXX_COMPILER=" + str(self.bin / "g++") in self.asked()[-1]
        assert "there is no fitting clang++" in self.run_tool("python3", "-m", "tools.setup.doctor")

    @unittest.skipUnless(os.geteuid() == 0, "skipped: only root installs")
    def test_a_clang_that_cannot_compile_ranges_is_replaced_or_taken_with_a_word(self) -> None:
        """By clang-19; where the system has none, by its own clang; where nothing helps, the old one builds the lab."""
        script(self.bin / "clang++", "#!/bin/sh\necho 'clang version 14.0.6'\n")
        for known, package in (("clang clang-19", "clang-19"), ("clang", "clang")):
            script(self.bin / "apt-cache", f"#!/bin/sh\nprintf '%s\\n' {known}\n")
            output = self.set_up(PYTHON=self.python)
            self.assertTrue([line for line in self.asked("apt-get") if "install" in line][-1].endswith(f" {package}"))
            assert "an older clang does not compile <ranges>" in output
            assert "DCMAKE_CXX_COMPILER=" + str(self.bin / "clang++") in self.asked()[-1]
            (self.lab / "build" / "toolchain.json").unlink()
        script(self.bin / "clang++-19", "#!/bin/sh\necho 'clang version 19.1.7'\n")
        self.assertIn(f"{self.bin}/clang++-19", self.set_up(PYTHON=self.python))

    def test_interrupt_leaves_nothing_running(self) -> None:
        for signum in (signal.SIGINT, signal.SIGTERM):
            fifo = self.top / f"fifo-{signum}"
            os.mkfifo(fifo)
            process = self.start("python3", "-m", "tools.setup.setup", PYTHON=self.python, FAKE_CMAKE_FIFO=str(fifo))
            child = int(fifo.read_text())
            process.send_signal(signum)
            output = process.communicate(timeout=60)[0]
            assert (process.returncode, "interrupted" in output, "Traceback" in output) == (130, True, False), output
            self.assertRaises(ProcessLookupError, os.kill, child, 0)


class FrontDoor(Checkout):
    def test_a_missing_python_is_said_with_the_line_that_all_the_rest_needs_too(self) -> None:
        (self.bin / "python3").unlink()
        script(self.bin / "id", "#!/bin/sh\necho 1000\n")
        line = f"apt-get install --no-install-recommends {' '.join(system_packages.PACKAGES)}"
        for target in ("doctor", "test", "reset", "release"):
            self.assertIn(f"Ask an administrator to run: {line}", self.run_tool("make", target, code=2))
        script(self.bin / "sudo", "#!/bin/sh\n")
        self.assertIn(f"To install: sudo {line}", self.run_tool("make", "setup", code=2))
        self.assertEqual(self.asked("apt-get"), [])
        assert f"sudo {line}" in (toolchain.ROOT / "README.md").read_text()

    def test_unknown_variable_and_target_name_the_known_ones(self) -> None:
        output = self.run_tool("make", "test", "STAEG=02", code=2)
        assert "unknown variable STAEG=" in output
        assert "STAGE= TEST= IMPL=" in output
        self.assertIn("make help", self.run_tool("make", "tset", code=2))

    def test_variables_reach_the_grader_whatever_they_hold(self) -> None:
        self.set_up(PYTHON=self.python)
        (self.lab / "tools" / "grading" / "grade.py").write_text("import sys; print('|'.join(sys.argv[1:]))")
        output = self.run_tool("make", "test", "STAGE=0 2", "TEST=it's;", "VERBOSE=1")
        self.assertEqual(output, "--stage=0 2|--test=it's;|--verbose=1\n")
        self.assertEqual(self.run_tool("make", "test"), "\n")


class Environment(Checkout):
    """_run stands in for python3 -m venv and pip; everything else is real."""

    def setUp(self) -> None:
        super().setUp()
        self.venv, self.pip = self.lab / ".venv", []
        self.pip_output: list[str] | None = None  # None: it works
        marker = self.venv / ".ddp-lab"
        for patch in (
            mock.patch.multiple(virtual_environment, VENV=self.venv, MARKER=marker, LIBRARIES=self.venv / "libraries"),
            mock.patch.object(virtual_environment, "NEEDED_BYTES", {False: 1, True: 1}),
            mock.patch.object(virtual_environment, "active_pythons", lambda: [sys.executable]),
            mock.patch.object(virtual_environment.progress, "run", self._run),
        ):
            self.enterContext(patch)

    def _run(self, argv: list[str], *rest) -> tuple[int, list[str]]:
        if "venv" in argv:
            (self.venv / "bin").mkdir()
            packages = self.venv / "lib" / "python3" / "site-packages"
            packages.mkdir(parents=True)
            text = f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" -S "$@"\n'
            script(self.venv / "bin" / "python", text)
            return 0, []
        words = [word for word in argv[4:] if not word.startswith("--")]
        self.pip.append(" ".join(words))
        if self.pip_output is None and any(word.startswith("torch==") for word in words):
            packages = self.venv / "lib" / "python3" / "site-packages"
            fake_torch(packages / "torch")
            needs = "filelock\nRequires-Dist: cuda-toolkit[cublas,cudart,cupti]==13.0.2; platform_system == 'Linux'\n"
            (packages / "torch-2.11.0.dist-info").mkdir(exist_ok=True)
            (packages / "torch-2.11.0.dist-info" / "METADATA").write_text(f"Requires-Dist: {needs}")
        return int(self.pip_output is not None), self.pip_output or []

    def provide(self, *parts: str) -> None:
        virtual_environment.provide(self.top / "log", frozenset({"torch", *parts}))


class VirtualEnvironment(Environment):
    def test_made_once_and_parts_come_when_they_are_needed(self) -> None:
        self.provide()
        self.provide()
        assert self.pip == [f"torch=={toolchain.pinned('torch')}"]
        self.provide("figures")
        self.provide("figures")
        assert len(self.pip) == 2 and f"matplotlib=={toolchain.pinned('matplotlib')}" in self.pip[1]
        assert virtual_environment.parts_there() == {"torch", "figures"}
        (self.venv / "kept").touch()
        with mock.patch.object(virtual_environment, "requirements_hash", lambda: "other"):
            self.provide()
        assert len(self.pip) == 3 and (self.venv / "kept").exists(), "what was installed is brought up to date"

    def test_libraries_go_by_what_the_loader_misses(self) -> None:
        real, said = subprocess.run, ""

        def run(argv, *rest, **options):
            return subprocess.CompletedProcess(argv, 0, said, "") if argv[0] == "ldd" else real(argv, *rest, **options)

        with mock.patch.object(virtual_environment.subprocess, "run", run):
            self.provide()
            assert len(self.pip) == 1
            shutil.rmtree(self.venv)
            said = "\tlibcudart.so.13 => not found\n\tlibc10.so => /x/libc10.so\n\tlibcupti.so.13 => not found\n"
            self.provide()
            assert self.pip[-1] == "cuda-toolkit[cudart,cupti]==13.0.2"

    @pytest.mark.slow
    def test_half_made_or_broken_is_made_anew(self) -> None:
        for reason, said in (
            ("ERROR: broken wheel", "broken wheel"),
            ("Temporary failure in name resolution", "no network.*PYTHON=.*2.11 to 2.15.*LIBTORCH="),
            ("ERROR: [Errno 28] No space left on device", "disk is full"),
        ):
            self.pip_output = ["WARNING: Retrying", reason]
            self.assertRaisesRegex(toolchain.LabError, f"(?s){said}", self.provide)
        (self.venv / "left-over").touch()
        self.pip_output = None
        self.provide()
        assert not (self.venv / "left-over").exists()
        (self.venv / "bin" / "python").unlink()
        self.provide()
        assert self.pip[-2:] == [f"torch=={toolchain.pinned('torch')}"] * 2

    def test_somebody_elses_is_never_touched_and_a_full_disk_never_begun(self) -> None:
        with mock.patch.object(virtual_environment, "NEEDED_BYTES", {False: 1 << 60, True: 1 << 60}):
            self.assertRaisesRegex(toolchain.LabError, "GB free", self.provide)
        (self.venv / "bin").mkdir(parents=True)
        self.assertRaisesRegex(toolchain.LabError, "was not made by the lab", self.provide)
        assert self.pip == []


class WhatTheSystemLacks(Environment):
    def test_comes_into_the_environment(self) -> None:
        gaps = {
            "cmake": lambda: (self.bin / "cmake").write_text("#!/bin/sh\necho cmake version 3.18.4\n"),
            "ninja": lambda: (self.bin / "ninja").unlink(),
            "headers": lambda: shutil.rmtree(self.top / "include" / "CLI"),
        }
        here = lambda path: str(path).startswith(str(self.top)) and Path(path).exists()  # noqa: E731
        with mock.patch.dict("os.environ", self.environment), mock.patch("os.path.exists", here):
            self.assertEqual(virtual_environment.system_gaps(), set())
            for number, make_gap in enumerate(gaps.values(), start=1):
                make_gap()
                self.assertEqual(virtual_environment.system_gaps(), set(list(gaps)[:number]))
        virtual_environment.provide(self.top / "log", frozenset({"cmake", "ninja"}))
        self.assertEqual(self.pip, [f"{name}=={toolchain.pinned(name)}" for name in ("cmake", "ninja")])


def test_pins_are_read() -> None:
    assert (toolchain.wanted_torch(), toolchain.pinned("torch")) == ("2.11 to 2.15", "2.15.0")
    cmake = (toolchain.ROOT / "CMakeLists.txt").read_text()
    assert f"find_package(Libtorch {toolchain.OLDEST_TORCH} " in cmake
    with pytest.raises(toolchain.LabError):
        toolchain.pinned("no-such-package")


FITS, OLD = gpus.OLDEST[gpus.CUDA], (7, 0)
ELSEWHERE = "make setup DEVICE=all"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """From now on the driver answers so, whoever asks."""
    return lambda **answers: monkeypatch.setenv("LD_LIBRARY_PATH", driver(tmp_path, **answers))


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"init": 100}, "shows no GPU.*cuInit returned 100.*CUDA_VISIBLE_DEVICES"),
        ({"init": 999}, "cuInit returned 999.*nvidia-smi"),
        ({"cuda": 12080, "gpus_there": [FITS]}, "runs CUDA 12.8 at most, PyTorch needs 13.0. Update the driver"),
        ({"gpus_there": [OLD]}, r"capability 7.5 or newer. Too old: Stand-in 0 \(7.0\). Take a newer"),
        ({"gpus_there": [FITS, OLD, FITS]}, "Stand-in 1 .*Leave only .*CUDA_VISIBLE_DEVICES=0,2"),
        ({"crashes": True}, "ended the program that asked it, with status -6"),
        ({"hangs": True}, "did not answer within 2 s"),
    ],
)
def test_a_gap_is_said_with_what_to_do(answers: dict, said: str, install, monkeypatch: pytest.MonkeyPatch) -> None:
    if "hangs" in answers:
        monkeypatch.setattr(gpus, "PATIENCE_S", 2)
    install(**answers)
    assert re.search(said, gpus.gap(gpus.ask()))


def test_which_parts_of_the_environment_a_run_needs(install, monkeypatch: pytest.MonkeyPatch) -> None:
    def needed(device: str, has: tuple[str, ...] = (), then: bool = True, likely: bool = False) -> set[str]:
        monkeypatch.setenv("DEVICE", device)
        monkeypatch.setattr(gpus, "parts_there", lambda: frozenset(has))
        monkeypatch.setattr(gpus, "likely", lambda: likely)
        return set(gpus.with_usable_gpus(gpus.needed_parts(False, False, then)))

    install(gpus_there=[FITS])
    assert needed("cuda") == needed("", likely=True) == {"cuda"}
    assert needed("") == set()
    install(init=100)
    with pytest.raises(LabError, match=f"(?s)DEVICE=cuda: .*shows no GPU.*{ELSEWHERE}"):
        needed("cuda")
    assert needed("cpu", likely=True) == set()
    assert needed("cuda", has=("torch", "cuda")) == {"cuda"}, "nobody asks about what is there"
    assert needed("all", then=False) == {"cuda"}, "for another machine"
    assert needed("all") == set()


class SetUp(Checkout):
    def test_nothing_is_downloaded_in_vain(self) -> None:
        found = driver(self.top, init=100)
        said = self.set_up("tools.grading.grade", code=1, DEVICE="cuda", LD_LIBRARY_PATH=found)
        self.assertIn("the NVIDIA driver shows no GPU", said)
        self.assertNotIn("come over the network", said)
        self.assertFalse((self.lab / ".venv").exists())


def test_what_is_said_of_pytorch_before_its_download_is_true_of_the_installed_one(context: Context) -> None:
    folder = Path(context.toolchain.libtorch)
    library, made_for = (
        folder / "lib/libtorch_python.so",
        re.search(r"\+cu(\d+)\d$", toolchain.torch_version(str(folder))),
    )
    if not made_for or not library.exists():
        pytest.skip("skipped: this torch is no CUDA build of a Python's")
    oldest = re.search(rb"\0sm_(\d+)(\d)( sm_\d+a?)*\0", library.read_bytes())
    assert (int(made_for[1]), int(oldest[1]), int(oldest[2])) == (gpus.CUDA, *gpus.OLDEST[gpus.CUDA])
