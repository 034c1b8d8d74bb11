"""Tests of set-up: tools/setup/setup.py, doctor.py and the Makefile."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import shutil
import signal
import time
import unittest
from unittest import mock

from tests.tools.setup_test import Checkout, fake_torch, script
from tools.setup import doctor, setup, system_packages, toolchain


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
            self.make_python("old-python", "2.8.0"): "has torch 2.8.0, the lab needs 2.11 to 2.15",
            self.make_python("new-python", "2.16.0"): "has torch 2.16.0, the lab needs",
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


class Systems(unittest.TestCase):
    def test_one_that_is_not_supported_is_told_so_at_once(self) -> None:
        for system, machine, reason in (
            ("Darwin", "arm64", "runs on Linux alone, and this is macOS"),
            ("FreeBSD", "amd64", "runs on Linux alone, and this is FreeBSD"),
            ("Linux", "riscv64", "no build for riscv64"),
        ):
            named = {"platform.system": system, "platform.machine": machine}
            with self.subTest(system), contextlib.ExitStack() as stack:
                for name, value in named.items():
                    stack.enter_context(mock.patch(name, return_value=value))
                stack.enter_context(mock.patch("sys.argv", ["setup"]))
                errors = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
                self.assertEqual(setup.main(), 1)
                self.assertIn(reason, errors.getvalue())
                with self.assertRaisesRegex(toolchain.LabError, reason):
                    doctor.main()

    def test_this_one_is(self) -> None:
        self.assertEqual(toolchain.unsupported_system(), "")


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
            "requirements edited": lambda: (self.lab / "requirements.txt").write_text("torch==2.15.0\n"),
            "compiler replaced": lambda: script(self.bin / "clang++", "#!/bin/sh\necho 'clang version 18.0.0 '\n"),
            "state damaged": lambda: (self.lab / "build" / "toolchain.json").write_text("{"),
        }
        self.set_up(PYTHON=self.python)
        for name, change in changes.items():
            with self.subTest(name):
                before = len(self.asked())
                change()
                self.set_up(PYTHON=self.python)
                self.assertEqual(len(self.asked()), before + 1)

    def test_a_shell_without_cuda_home_keeps_the_one_given_before(self) -> None:
        toolkit, other = str(self.top / "toolkit"), str(self.top / "other")
        for count, environment in enumerate(
            [{"CUDA_HOME": toolkit}, {}, {"CUDA_HOME": toolkit}, {}, {"CUDA_HOME": other}, {}]
        ):
            self.set_up(PYTHON=self.python, **environment)
            self.assertEqual(len(self.asked()), 1 if count < 4 else 2)

    def test_moved_checkout_is_configured_anew(self) -> None:
        self.set_up(PYTHON=self.python)
        (self.lab / "build" / "stale.o").touch()
        self.lab = self.lab.rename(self.top / "moved")
        self.set_up()
        self.assertFalse((self.lab / "build" / "stale.o").exists())
        self.assertIn(f"-S {self.lab}", self.asked()[1])


class Failing(Checkout):
    def test_cmake_error_is_shown_and_the_next_run_tries_again(self) -> None:
        output = self.set_up(code=1, PYTHON=self.python, FAKE_CMAKE_FAILS="1")
        self.assertIn("CMake Error at CMakeLists.txt:7", output)
        self.assertIn("setup.log", output)
        self.set_up()  # the choice of Python is kept, too
        self.assertIn(f"-DDDP_LAB_PYTHON={self.python}", self.asked()[1])

    def test_no_compiler(self) -> None:
        (self.bin / "clang++").unlink()
        output = self.set_up(code=1, PYTHON=self.python)
        self.assertIn("C++ compiler is missing", output)
        self.assertIn(system_packages.how_to_install(), output)
        installs = [line for line in self.asked("apt-get") if "install" in line]
        self.assertEqual(len(installs), 1 if os.geteuid() == 0 else 0)

    @unittest.skipUnless(os.geteuid() == 0, "skipped: only root installs")
    def test_a_package_that_this_system_lacks_does_not_keep_the_others_away(self) -> None:
        for name in ("clang++", "addr2line"):
            (self.bin / name).unlink()
        script(self.bin / "apt-cache", "#!/bin/sh\necho binutils\n")
        output = self.set_up(code=1, PYTHON=self.python)
        self.assertIn("apt-get knows no clang-19 or clang", output)
        (install,) = [line for line in self.asked("apt-get") if "install" in line]
        self.assertTrue(install.endswith(" binutils"), install)

    def test_gcc_is_taken_where_there_is_no_fitting_clang(self) -> None:
        script(self.bin / "g++", "#!/bin/sh\necho 'g++ 12.2.0'\n")
        script(self.bin / "clang++", "#!/bin/sh\necho 'clang version 11.0.1'\n")
        self.assertIn(f"{self.bin}/g++, {self.bin}/cmake", self.set_up(PYTHON=self.python))
        (self.bin / "clang++").unlink()
        (self.lab / "build" / "toolchain.json").unlink()
        output = self.set_up(PYTHON=self.python)
        self.assertIn("clang++ 16 or newer is missing: g++ needs three times as long", output)
        self.assertIn("DCMAKE_CXX_COMPILER=" + str(self.bin / "g++"), self.asked()[-1])
        output = self.run_tool("python3", "-m", "tools.setup.doctor")
        self.assertIn("there is no fitting clang++, which would need a third of the time", output)

    @unittest.skipUnless(os.geteuid() == 0, "skipped: only root installs")
    def test_a_clang_that_cannot_compile_ranges_is_replaced_or_taken_with_a_word(self) -> None:
        """By clang-19; where the system has none, by its own clang; where nothing helps, the old one builds the lab."""
        script(self.bin / "clang++", "#!/bin/sh\necho 'clang version 14.0.6'\n")
        for known, package in (("clang clang-19", "clang-19"), ("clang", "clang")):
            script(self.bin / "apt-cache", f"#!/bin/sh\nprintf '%s\\n' {known}\n")
            output = self.set_up(PYTHON=self.python)
            self.assertTrue([line for line in self.asked("apt-get") if "install" in line][-1].endswith(f" {package}"))
            self.assertIn("an older clang does not compile <ranges>", output)
            self.assertIn("DCMAKE_CXX_COMPILER=" + str(self.bin / "clang++"), self.asked()[-1])
            (self.lab / "build" / "toolchain.json").unlink()
        script(self.bin / "clang++-19", "#!/bin/sh\necho 'clang version 19.1.7'\n")
        self.assertIn(f"{self.bin}/clang++-19", self.set_up(PYTHON=self.python))

    def test_the_compiler_that_CXX_names_is_taken(self) -> None:
        script(self.bin / "g++", "#!/bin/sh\necho 'g++ 12.2.0'\n")
        self.assertIn(f"{self.bin}/g++, {self.bin}/cmake", self.set_up(PYTHON=self.python, CXX="g++"))

    def test_says_what_will_come_before_anything_is_done(self) -> None:
        output = self.set_up(PYTHON=self.python)
        self.assertRegex(output.splitlines()[0], r"^The set-up will build for about \d+ min on \d+ cores?\. Later runs")

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
                process = self.start(
                    "python3", "-m", "tools.setup.setup", PYTHON=self.python, FAKE_CMAKE_FIFO=str(fifo)
                )
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


class FrontDoor(Checkout):
    def test_make_alone_lists_the_targets(self) -> None:
        output = self.run_tool("make")
        for target in ("setup", "doctor", "test", "watch", "hint", "figures", "check", "clean"):
            self.assertIn(f"make {target}", output)

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
        for target in ("doctor", "test", "update", "release"):
            self.assertIn(f"Ask an administrator to run: {line}", self.run_tool("make", target, code=2))
        script(self.bin / "sudo", "#!/bin/sh\n")
        self.assertIn(f"To install: sudo {line}", self.run_tool("make", "setup", code=2))
        self.assertEqual(self.asked("apt-get"), [])

    def test_the_line_is_readmes_too(self) -> None:
        line = f"sudo apt-get install --no-install-recommends {' '.join(system_packages.PACKAGES)}"
        self.assertIn(line, (toolchain.ROOT / "README.md").read_text())

    def test_unknown_variable_and_target_name_the_known_ones(self) -> None:
        output = self.run_tool("make", "test", "STAEG=02", code=2)
        self.assertIn("unknown variable STAEG=", output)
        self.assertIn("STAGE= TEST= IMPL=", output)
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

    def test_doctor_on_a_terminal_without_its_marks(self) -> None:
        output = self.run_tool("python3", "-m", "tools.setup.doctor", PYTHON=self.python, PYTHONIOENCODING="latin-1")
        self.assertIn("+ ok ", output)

    def test_doctor_on_a_checkout_that_cannot_be_written(self) -> None:
        with mock.patch("os.access", return_value=False):
            finding = doctor.checkout()
        self.assertEqual((finding.state, finding.name), (doctor.MISSING, "checkout"))
        self.assertEqual(doctor.checkout().state, doctor.OK)

    def test_doctor_ends_with_the_line(self) -> None:
        (self.bin / "clang++").unlink()
        user = "import os, sys; os.geteuid = lambda: 1000; import tools.setup.doctor as d; sys.exit(d.main())"
        output = self.run_tool("python3", "-c", user, code=1, PYTHON=self.python)
        self.assertIn("The lab cannot be built yet: C++ compiler.\nAsk an administrator to run: apt-get", output)
        self.assertNotIn("can be built here", output)

    def test_doctor_quotes_a_path_in_a_command(self) -> None:
        folder = self.top / "a b"
        folder.mkdir()
        python = str(shutil.copy(self.python, folder / "python"))
        with mock.patch.object(doctor.toolchain, "probe") as probe:
            torch = str(self.top / "python-with-torch-packages" / "torch")
            probe.return_value = toolchain.PythonFacts(python, (3, 13), torch, can_draw=False, has_pip=True)
            advice = [finding.advice for finding in doctor.python_and_torch()]
        self.assertIn(f"'{python}' -m pip install matplotlib numpy tabulate", advice)

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
        self.assertIn("CXX=", finding.advice)

    def test_doctor_counts_what_is_missing(self) -> None:
        output = self.run_tool("python3", "-m", "tools.setup.doctor", code=1, PYTHON="/no/such/python")
        self.assertRegex(output, r"missing +python")
        output = self.run_tool("python3", "-m", "tools.setup.doctor", code=1, PYTHON=self.make_python("old", "2.9.0"))
        self.assertIn("has torch 2.9.0, the lab needs 2.11 to 2.15", output)
