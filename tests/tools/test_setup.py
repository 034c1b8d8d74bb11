"""Tests of set-up: tools/setup/setup.py, doctor.py and the Makefile."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import unittest
from unittest import mock

import pytest

from tests.tools.setup_helpers import Checkout, fake_torch, script
from tools.setup import doctor, setup, system_packages, toolchain


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

    def test_a_given_python_without_the_packages_of_make_check_is_told_which(self) -> None:
        output = self.run_tool("make", "check", f"PYTHON={self.python}", code=2)
        assert re.search(rf"{self.python} lacks .*pytest, .*{self.python} -m pip install .*pytest==\d", output)

    def toolchain(self) -> toolchain.Toolchain:
        return toolchain.load(self.lab / "build")


@pytest.mark.parametrize(
    ("system", "machine", "reason"),
    [
        ("Darwin", "arm64", "runs on Linux alone, and this is macOS"),
        ("FreeBSD", "amd64", "runs on Linux alone, and this is FreeBSD"),
        ("Linux", "riscv64", "no build for riscv64"),
    ],
)
def test_a_system_that_is_not_supported_is_told_so_at_once(
    system: str, machine: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert toolchain.unsupported_system() == ""  # this one is
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("sys.argv", ["setup"])
    assert setup.main() == 1
    assert reason in capsys.readouterr().err
    with pytest.raises(toolchain.LabError, match=reason):
        doctor.main()


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

    def test_a_shell_without_cuda_home_keeps_the_one_given_before(self) -> None:
        toolkit, other = str(self.top / "toolkit"), str(self.top / "other")
        for home, configured in ((toolkit, 1), ("", 1), (toolkit, 1), (other, 2), ("", 2)):
            self.set_up(PYTHON=self.python, CUDA_HOME=home)
            assert len(self.asked()) == configured

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

    @unittest.skipUnless(os.geteuid() == 0, "skipped: only root installs")
    def test_a_package_that_this_system_lacks_does_not_keep_the_others_away(self) -> None:
        for name in ("clang++", "addr2line"):
            (self.bin / name).unlink()
        script(self.bin / "apt-cache", "#!/bin/sh\necho binutils\n")
        output = self.set_up(code=1, PYTHON=self.python)
        assert "apt-get knows no clang-19 or clang" in output
        (install,) = [line for line in self.asked("apt-get") if "install" in line]
        self.assertTrue(install.endswith(" binutils"), install)

    def test_gcc_is_taken_where_there_is_no_fitting_clang(self) -> None:
        script(self.bin / "g++", "#!/bin/sh\necho 'g++ 12.2.0'\n")
        assert f"{self.bin}/g++, {self.bin}/cmake" in self.set_up(PYTHON=self.python, CXX="g++")
        script(self.bin / "clang++", "#!/bin/sh\necho 'clang version 11.0.1'\n")
        self.assertIn(f"{self.bin}/g++, {self.bin}/cmake", self.set_up(PYTHON=self.python))
        told = self.set_up(PYTHON=self.python, CXX="clang++", code=1)
        assert f"{self.bin}/clang++ is version 11.0.1, the lab needs 14 or newer: install a newer one" in told
        (self.bin / "clang++").unlink()
        (self.lab / "build" / "toolchain.json").unlink()
        output = self.set_up(PYTHON=self.python)
        assert "clang++ 16 or newer is missing: g++ needs three times as long" in output
        assert "DCMAKE_CXX_COMPILER=" + str(self.bin / "g++") in self.asked()[-1]
        output = self.run_tool("python3", "-m", "tools.setup.doctor")
        assert "there is no fitting clang++, which would need a third of the time" in output

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

    def test_second_run_waits_for_the_first_and_names_it(self) -> None:
        (self.lab / "build").mkdir()
        with (self.lab / "build" / "setup.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write("process 4711, setting up since 12:00:00,")
            lock.flush()
            second = self.start("python3", "-m", "tools.setup.setup", PYTHON=self.python)
            first_line = second.stdout.readline()
            assert "Waiting for process 4711, setting up since 12:00:00" in first_line
            self.assertEqual(self.asked(), [])
        second.communicate(timeout=60)
        self.assertEqual(second.returncode, 0)
        self.assertEqual(len(self.asked()), 1)

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
    @unittest.skipUnless(os.geteuid() == 0, "skipped: only root installs")
    def test_a_missing_python_is_installed_for_root(self) -> None:
        """Here apt-get brings none."""
        for name in ("id", "true"):
            (self.bin / name).symlink_to(shutil.which(name))
        (self.bin / "python3").unlink()
        script(self.bin / "apt-get", '#!/bin/sh\necho apt-get "$@" >> "$FAKE_LOG"\n')
        output = self.run_tool("make", "doctor", code=2)
        self.assertEqual(self.asked("apt-get")[-1][-28:], "--no-install-recommends python3"[-28:])
        self.assertIn(
            f"To install: apt-get install --no-install-recommends {' '.join(system_packages.PACKAGES)}", output
        )

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
        assert "STAGE= TEST= FILE= FIGURE= IMPL=" in output
        self.assertIn("make help", self.run_tool("make", "tset", code=2))

    def test_variables_reach_the_grader_whatever_they_hold(self) -> None:
        self.set_up(PYTHON=self.python)
        (self.lab / "tools" / "grading" / "grade.py").write_text("import sys; print('|'.join(sys.argv[1:]))")
        output = self.run_tool("make", "test", "STAGE=0 2", "TEST=it's;", "VERBOSE=1")
        self.assertEqual(output, "--stage=0 2|--test=it's;|--verbose=1\n")
        self.assertEqual(self.run_tool("make", "test"), "\n")

    def test_doctor_before_any_set_up(self) -> None:
        output = self.run_tool("python3", "-m", "tools.setup.doctor", PYTHON=self.python)
        self.assertRegex(output, r"ok +torch +2\.11\.0\+cpu \(CPU build; .* 2\.11 to 2\.15\)")
        self.assertNotIn("\033", output)
        self.assertFalse((self.lab / "build").exists())

    def test_doctor_looks_at_what_is_built(self) -> None:
        with (
            mock.patch.object(toolchain, "BUILD_DIR", self.top / "build"),
            mock.patch.object(doctor, "output") as found,
        ):
            self.assertEqual(doctor.built(), [])
            (self.top / "build/bin/tests_01_name").mkdir(parents=True)
            found.return_value = ""
            self.assertEqual([finding.state for finding in doctor.built()], [doctor.OK])
            found.return_value = "at::data(int), for lib/libddp.so\n"
            (finding,) = doctor.built()
        self.assertEqual(
            (finding.state, finding.found), (doctor.MISSING, "nothing defines at::data(int), for lib/libddp.so")
        )
        assert "CXX=" in finding.advice

    def test_doctor_counts_what_is_missing(self) -> None:
        output = self.run_tool("python3", "-m", "tools.setup.doctor", code=1, PYTHON="/no/such/python")
        assert re.search(r"missing +python", output)
        output = self.run_tool("python3", "-m", "tools.setup.doctor", code=1, PYTHON=self.make_python("old", "2.9.0"))
        assert "has torch 2.9.0, the lab needs 2.11 to 2.15" in output
