"""Tests of set-up: tools/setup/setup.py, tools/setup/doctor.py and the Makefile, in a checkout and on a PATH of their own.

Nothing real is installed or configured: cmake, g++ and apt-get are small scripts that record their arguments,
and torch is a folder of empty files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]

from tools.setup import setup
from tools.setup import system_packages
from tools.setup import toolchain
from tools.setup import virtual_environment

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
touch "$4/build.ninja" "$4/Makefile" "$4/compile_commands.json"
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


def setUpModule() -> None:
    """Behind "&" a shell may ignore interrupts, and what the tests start would, too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Checkout(unittest.TestCase):
    """A copy of the files that set-up reads, and a PATH that contains only what a test puts there."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="ddp-lab-setup-")
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name).resolve()
        self.lab, self.bin, self.log = self.top / "lab", self.top / "bin", self.top / "asked"
        shutil.copytree(ROOT / "tools", self.lab / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("Makefile", "requirements.txt"):
            shutil.copy(ROOT / name, self.lab)
        self.bin.mkdir()
        for name in SYSTEM_TOOLS:
            if path := shutil.which(name):
                (self.bin / name).symlink_to(path)
        script(self.bin / "cmake", CMAKE)
        script(self.bin / "clang++", "#!/bin/sh\necho 'clang version 14.0.6'\n")
        script(self.bin / "ninja", "#!/bin/sh\necho 1.11.1\n")
        script(self.bin / "addr2line", "#!/bin/sh\necho 2.40\n")
        script(self.bin / "apt-get", '#!/bin/sh\necho apt-get "$@" >> "$FAKE_LOG"\necho "E: no network"; exit 100\n')
        script(self.bin / "python3", f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
        self.python = self.make_python("python-with-torch")
        self.environment = {"PATH": str(self.bin), "HOME": str(self.top), "FAKE_LOG": str(self.log)}

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
    def test_given_python_is_used_as_it_is_and_remembered(self) -> None:
        self.set_up(PYTHON=self.python)
        self.assertIn(f"-DDDP_LAB_PYTHON={self.python}", self.asked()[0])
        self.assertFalse((self.lab / ".venv").exists())
        self.assertEqual(self.set_up(), "")
        self.assertEqual(len(self.asked()), 1)

    def test_active_environment_with_torch_is_used(self) -> None:
        environment = self.top / "environment"
        (environment / "bin").mkdir(parents=True)
        shutil.copy(self.python, environment / "bin" / "python")
        self.set_up(VIRTUAL_ENV=str(environment))
        self.assertIn(str(self.top / "python-with-torch-packages" / "torch"), self.toolchain()["libtorch"])

    def test_libtorch_needs_no_python_with_torch(self) -> None:
        folder = fake_torch(self.top / "libtorch")
        (folder / "version.py").unlink()
        (folder / "build-version").write_text("2.11.0+cpu\n")
        self.set_up(LIBTORCH=str(folder))
        self.assertIn(f"-DLIBTORCH={folder}", self.asked()[0])
        self.assertEqual(self.toolchain()["python"], "")

    def test_another_choice_configures_again(self) -> None:
        other = self.make_python("other-python", "2.11.1")
        self.set_up(PYTHON=self.python)
        self.set_up(PYTHON=other)
        self.assertIn(f"-DDDP_LAB_PYTHON={other}", self.asked()[1])

    def test_what_does_not_fit_is_refused_with_the_reason(self) -> None:
        cases = {
            self.make_python("old-python", "2.8.0"): "has torch 2.8.0, the lab needs 2.11",
            self.make_python("bare-python", ""): "has no torch",
            str(self.bin / "ninja"): "does not start as a Python",
            str(self.top): f"is a folder. Name the program in it: PYTHON={self.top}/bin/python",
            "no-such-python": "no such program",
        }
        for python, reason in cases.items():
            with self.subTest(python=python):
                self.assertIn(reason, self.set_up(code=1, PYTHON=python))
        self.assertIn("has no include/ATen/ATen.h", self.set_up(code=1, LIBTORCH=str(self.top)))
        self.assertEqual(self.asked(), [])

    def toolchain(self) -> dict[str, str]:
        return toolchain.as_json(toolchain.load(self.lab / "build"))


class DoingNothing(Checkout):
    def test_second_run_asks_nobody_and_is_fast(self) -> None:
        self.set_up(PYTHON=self.python)
        asked = self.log.read_text()
        started = time.monotonic()
        self.assertEqual(self.set_up(PYTHON=self.python), "")
        self.assertLess(time.monotonic() - started, 2.0)
        self.assertEqual(self.log.read_text(), asked)

    def test_each_change_that_matters_is_noticed(self) -> None:
        changes = {
            "build files removed": lambda: (self.lab / "build" / "build.ninja").unlink(),
            "torch replaced": lambda: fake_torch(self.top / "python-with-torch-packages" / "torch", "2.11.2"),
            "requirements edited": lambda: (self.lab / "requirements.txt").write_text("torch==2.11.0\n"),
            "compiler replaced": lambda: script(self.bin / "clang++", "#!/bin/sh\necho 'clang version 15.0.0 '\n"),
            "state damaged": lambda: (self.lab / "build" / "toolchain.json").write_text("{"),
        }
        self.set_up(PYTHON=self.python)
        for name, change in changes.items():
            with self.subTest(name):
                before = len(self.asked())
                change()
                self.set_up(PYTHON=self.python)
                self.assertEqual(len(self.asked()), before + 1)

    def test_moved_checkout_is_configured_anew(self) -> None:
        self.set_up(PYTHON=self.python)
        (self.lab / "build" / "stale.o").touch()
        self.lab = self.lab.rename(self.top / "moved")
        self.set_up()
        self.assertFalse((self.lab / "build" / "stale.o").exists())
        self.assertIn(f"-S {self.lab}", self.asked()[1])

    def test_another_generator_clears_the_build_folder(self) -> None:
        self.set_up(PYTHON=self.python)
        (self.lab / "build" / "stale.o").touch()
        (self.bin / "ninja").unlink()
        self.set_up()
        self.assertFalse((self.lab / "build" / "stale.o").exists())
        self.assertIn("-G Unix Makefiles", self.asked()[1])


class Failing(Checkout):
    def test_cmake_error_is_shown_and_the_next_run_tries_again(self) -> None:
        output = self.set_up(code=1, PYTHON=self.python, FAKE_CMAKE_FAILS="1")
        self.assertIn("CMake Error at CMakeLists.txt:7", output)
        self.assertIn("setup.log", output)
        self.set_up()  # the choice of Python is kept, too
        self.assertIn(f"-DDDP_LAB_PYTHON={self.python}", self.asked()[1])

    def test_old_cmake(self) -> None:
        output = self.set_up(code=1, PYTHON=self.python, FAKE_CMAKE_VERSION="3.18.4")
        self.assertIn("is version 3.18.4, the lab needs 3.25 or newer", output)

    def test_no_compiler(self) -> None:
        (self.bin / "clang++").unlink()
        output = self.set_up(code=1, PYTHON=self.python)
        self.assertIn("C++ compiler is missing", output)
        self.assertRegex(output, "sudo apt-get install clang")
        installs = [line for line in self.asked("apt-get") if "install" in line]
        self.assertEqual(len(installs), 1 if os.geteuid() == 0 else 0)

    def test_gcc_is_taken_where_there_is_no_fitting_clang(self) -> None:
        script(self.bin / "g++", "#!/bin/sh\necho 'g++ 12.2.0'\n")
        script(self.bin / "clang++", "#!/bin/sh\necho 'clang version 11.0.1'\n")
        self.assertIn(f"{self.bin}/g++, Ninja", self.set_up(PYTHON=self.python))
        (self.bin / "clang++").unlink()
        (self.lab / "build" / "toolchain.json").unlink()
        output = self.set_up(PYTHON=self.python)
        self.assertIn("clang++ is missing: g++ is taken, which needs three times as long", output)
        self.assertIn("DCMAKE_CXX_COMPILER=" + str(self.bin / "g++"), self.asked()[-1])
        output = self.run_tool("python3", "-m", "tools.setup.doctor")
        self.assertIn("there is no fitting clang++, which would need a third of the time", output)

    def test_the_compiler_that_CXX_names_is_taken(self) -> None:
        script(self.bin / "g++", "#!/bin/sh\necho 'g++ 12.2.0'\n")
        self.assertIn(f"{self.bin}/g++, Ninja", self.set_up(PYTHON=self.python, CXX="g++"))

    def test_says_what_will_come_before_anything_is_done(self) -> None:
        output = self.set_up(PYTHON=self.python)
        self.assertRegex(output.splitlines()[0], r"^Set-up: building takes about \d+ min on \d+ cores?\. Later runs")

    def test_second_run_waits_for_the_first_and_names_it(self) -> None:
        (self.lab / "build").mkdir()
        with (self.lab / "build" / "setup.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write("process 4711, setting up since 12:00:00,")
            lock.flush()
            second = self.start("python3", "-m", "tools.setup.setup", PYTHON=self.python)
            first_line = second.stdout.readline()
            self.assertIn("Waiting for process 4711, setting up since 12:00:00", first_line)
            self.assertEqual(self.asked(), [])
        second.communicate(timeout=60)
        self.assertEqual(second.returncode, 0)
        self.assertEqual(len(self.asked()), 1)

    def test_interrupt_leaves_nothing_running(self) -> None:
        for signum in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signum):
                fifo = self.top / f"fifo-{signum}"
                os.mkfifo(fifo)
                process = self.start("python3", "-m", "tools.setup.setup", PYTHON=self.python, FAKE_CMAKE_FIFO=str(fifo))
                child = int(fifo.read_text())
                process.send_signal(signum)
                output = process.communicate(timeout=60)[0]
                self.assertEqual(process.returncode, 130, output)
                self.assertIn("interrupted", output)
                self.assertNotIn("Traceback", output)
                self.assertRaises(ProcessLookupError, os.kill, child, 0)

    def test_disk_and_permission_errors_say_what_to_do(self) -> None:
        self.assertIn("disk is full at /x", setup.explain(OSError(errno.ENOSPC, "", "/x")))
        self.assertIn("read-only", setup.explain(OSError(errno.EROFS, "", "/x")))
        self.assertIn("cannot write /x", setup.explain(PermissionError(errno.EACCES, "", "/x")))


class VirtualEnvironment(Checkout):
    """_run stands in for python3 -m venv and pip; everything else is real."""

    def setUp(self) -> None:
        super().setUp()
        self.venv, self.pip = self.lab / ".venv", []
        self.pip_output: list[str] | None = None  # None: it works
        marker = self.venv / ".ddp-lab"
        for patch in (
            mock.patch.multiple(virtual_environment, VENV=self.venv, MARKER=marker),
            mock.patch.object(virtual_environment, "NEEDED_BYTES", {False: 1, True: 1}),
            mock.patch.object(virtual_environment, "base_python", lambda log: sys.executable),
            mock.patch.object(virtual_environment.progress, "run", self._run),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def _run(self, argv: list[str], *rest) -> tuple[bool, list[str]]:
        if "venv" in argv:
            (self.venv / "bin").mkdir()
            packages = self.venv / "lib" / "python3" / "site-packages"
            text = f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" -S "$@"\n'
            script(self.venv / "bin" / "python", text)
            return True, []
        words = [word for word in argv[4:] if not word.startswith("--")]
        self.pip.append(" ".join(words))
        if self.pip_output is None and any(word.startswith("torch==") for word in words):
            packages = self.venv / "lib" / "python3" / "site-packages"
            fake_torch(packages / "torch")
            needs = "filelock\nRequires-Dist: cuda-toolkit[cublas,cudart,cupti]==13.0.2; platform_system == 'Linux'\n"
            (packages / "torch-2.11.0.dist-info").mkdir(exist_ok=True)
            (packages / "torch-2.11.0.dist-info" / "METADATA").write_text(f"Requires-Dist: {needs}")
        return self.pip_output is None, self.pip_output or []

    def provide(self, *parts: str) -> None:
        virtual_environment.provide(self.top / "log", frozenset(parts))

    def test_made_once_with_torch_alone(self) -> None:
        self.provide()
        self.provide()
        self.assertEqual(self.pip, [f"torch=={toolchain.pinned('torch')}"])

    def test_parts_come_when_they_are_needed(self) -> None:
        self.provide()
        self.assertEqual(virtual_environment.megabytes_to_come(frozenset({"figures"})), 70)
        self.provide("figures")
        self.provide("figures")
        self.assertEqual(len(self.pip), 2)
        self.assertIn(f"matplotlib=={toolchain.pinned('matplotlib')}", self.pip[1])
        self.assertEqual(virtual_environment.parts_there(), {"torch", "figures"})

    def test_cuda_is_all_that_torch_depends_on(self) -> None:
        with mock.patch.object(virtual_environment.progress, "run", wraps=self._run) as run:
            self.provide("cuda")
        installs = [call.args[0] for call in run.call_args_list if "install" in call.args[0]]
        self.assertEqual(["--no-deps" in argv for argv in installs], [True, False])

    def test_libraries_go_by_what_the_loader_misses(self) -> None:
        missing = "\tlibcudart.so.13 => not found\n\tlibc10.so => /x/libc10.so\n\tlibcupti.so.13 => not found\n"
        for said, asked in ((missing, ["cuda-toolkit[cudart,cupti]==13.0.2"]), ("", [])):
            shutil.rmtree(self.venv, ignore_errors=True)
            self.pip.clear()
            with mock.patch.object(virtual_environment.subprocess, "run", self._ldd(said)):
                self.provide()
            self.assertEqual(self.pip[1:], asked)
        shutil.rmtree(self.venv)
        with mock.patch.object(virtual_environment.subprocess, "run", self._ldd("libodd.so.1 => not found")):
            with self.assertRaisesRegex(toolchain.LabError, "needs libodd.so, which none of its own packages brings"):
                self.provide()

    @staticmethod
    def _ldd(said: str):
        real = subprocess.run

        def run(argv, *rest, **options):
            if argv[0] == "ldd":
                return subprocess.CompletedProcess(argv, 0, said, "")
            return real(argv, *rest, **options)

        return run

    def test_half_made_is_made_anew(self) -> None:
        self.pip_output = ["ERROR: broken wheel"]
        with self.assertRaisesRegex(toolchain.LabError, "broken wheel"):
            self.provide()
        (self.venv / "left-over").touch()
        self.pip_output = None
        self.provide()
        self.assertFalse((self.venv / "left-over").exists())

    def test_broken_one_is_made_anew(self) -> None:
        self.provide()
        (self.venv / "bin" / "python").unlink()
        self.provide()
        self.assertEqual(len(self.pip), 2)

    def test_changed_requirements_are_installed_into_it(self) -> None:
        self.provide()
        (self.venv / "kept").touch()
        with mock.patch.object(virtual_environment, "requirements_hash", lambda: "other"):
            self.provide()
        self.assertEqual(len(self.pip), 2)
        self.assertTrue((self.venv / "kept").exists())

    def test_somebody_elses_is_never_touched(self) -> None:
        (self.venv / "bin").mkdir(parents=True)
        with self.assertRaisesRegex(toolchain.LabError, "was not made by the lab"):
            self.provide()
        self.assertEqual(self.pip, [])

    def test_without_network_the_other_ways_are_named(self) -> None:
        self.pip_output = ["WARNING: Retrying", "Temporary failure in name resolution"]
        with self.assertRaisesRegex(toolchain.LabError, "(?s)no network.*PYTHON=.*2.11.*LIBTORCH="):
            self.provide()

    def test_full_disk_is_named(self) -> None:
        self.pip_output = ["ERROR: [Errno 28] No space left on device"]
        with self.assertRaisesRegex(toolchain.LabError, "disk is full"):
            self.provide()
        with mock.patch.object(virtual_environment, "NEEDED_BYTES", {False: 1 << 60, True: 1 << 60}):
            with self.assertRaisesRegex(toolchain.LabError, "GB free"):
                self.provide()


class FrontDoor(Checkout):
    def test_make_alone_lists_the_targets(self) -> None:
        output = self.run_tool("make")
        for target in ("setup", "doctor", "test", "watch", "hint", "figures", "check", "clean"):
            self.assertIn(f"make {target}", output)

    def test_unknown_variable_and_target_name_the_known_ones(self) -> None:
        output = self.run_tool("make", "test", "STAEG=02", code=2)
        self.assertIn("unknown variable STAEG=", output)
        self.assertIn("STAGE= TEST= IMPL=", output)
        self.assertIn("make help", self.run_tool("make", "tset", code=2))

    def test_variables_reach_the_grader_whatever_they_hold(self) -> None:
        (self.lab / "tools" / "setup" / "setup.py").write_text("")
        (self.lab / "tools" / "grading" / "grade.py").write_text("import sys; print('|'.join(sys.argv[1:]))")
        output = self.run_tool("make", "test", "STAGE=0 2", "TEST=it's;", "VERBOSE=1")
        self.assertEqual(output, "--stage=0 2|--test=it's;|--verbose=1\n")
        self.assertEqual(self.run_tool("make", "test"), "\n")

    def test_doctor_before_any_set_up(self) -> None:
        output = self.run_tool("python3", "-m", "tools.setup.doctor", PYTHON=self.python)
        self.assertRegex(output, r"ok +torch +2\.11\.0\+cpu \(CPU build\)")
        self.assertNotIn("\033", output)
        self.assertFalse((self.lab / "build").exists())

    def test_doctor_counts_what_is_missing(self) -> None:
        output = self.run_tool("python3", "-m", "tools.setup.doctor", code=1, PYTHON="/no/such/python")
        self.assertRegex(output, r"missing +python")
        output = self.run_tool("python3", "-m", "tools.setup.doctor", code=1, PYTHON=self.make_python("old", "2.9.0"))
        self.assertIn("has torch 2.9.0, the lab needs 2.11", output)


class Requirements(unittest.TestCase):
    def test_pins_are_read(self) -> None:
        self.assertEqual(toolchain.wanted_torch(), "2.11")
        self.assertEqual(toolchain.pinned("torch"), "2.11.0")
        self.assertRaises(toolchain.LabError, toolchain.pinned, "no-such-package")

    def test_install_command_is_exact(self) -> None:
        command = system_packages.install_command(system_packages.LIBRARIES)
        self.assertEqual(command, "sudo apt-get install libgtest-dev nlohmann-json3-dev libcli11-dev")


if __name__ == "__main__":
    unittest.main()
