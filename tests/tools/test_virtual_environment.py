"""Tests of the checkout's own Python environment, and of what it asks for."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import unittest
import zipfile
from pathlib import Path
from unittest import mock

from tests.tools.setup_test import Checkout, fake_torch, script
from tools.setup import system_packages, toolchain, virtual_environment


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

    def _run(self, argv: list[str], *rest) -> tuple[bool, list[str]]:
        if "venv" in argv:
            (self.venv / "bin").mkdir()
            packages = self.venv / "lib" / "python3" / "site-packages"
            packages.mkdir(parents=True)
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
        virtual_environment.provide(self.top / "log", frozenset({"torch", *parts}))


class VirtualEnvironment(Environment):
    def test_made_once_with_torch_alone(self) -> None:
        self.provide()
        self.provide()
        self.assertEqual(self.pip, [f"torch=={toolchain.pinned('torch')}"])

    def test_parts_come_when_they_are_needed(self) -> None:
        self.provide()
        self.assertEqual(virtual_environment.megabytes_to_come(frozenset({"torch", "figures"})), 70)
        self.provide("figures")
        self.provide("figures")
        self.assertEqual(len(self.pip), 2)
        self.assertIn(f"matplotlib=={toolchain.pinned('matplotlib')}", self.pip[1])
        self.assertEqual(virtual_environment.parts_there(), {"torch", "figures"})

    def test_cuda_is_all_that_torch_depends_on(self) -> None:
        with mock.patch.object(virtual_environment.progress, "run", wraps=self._run) as run:
            self.provide("cuda")
        installs = [call.args[0] for call in run.call_args_list if "install" in call.args[0]]
        self.assertEqual(["--no-deps" in argv for argv in installs], [True, False, False])
        self.assertEqual(self.pip[-1], "cuda-toolkit[cudart,crt]==13.0.2", "the headers of one include the other's")

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
        with self.assertRaisesRegex(toolchain.LabError, "(?s)no network.*PYTHON=.*2.11 to 2.15.*LIBTORCH="):
            self.provide()

    def test_a_certificate_that_is_not_trusted_is_no_missing_network(self) -> None:
        self.pip_output = ["SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] self-signed')", "(from versions: none)"]
        with self.assertRaisesRegex(toolchain.LabError, "does not trust .*PIP_CERT="):
            self.provide()

    def test_full_disk_is_named(self) -> None:
        self.pip_output = ["ERROR: [Errno 28] No space left on device"]
        with self.assertRaisesRegex(toolchain.LabError, "disk is full"):
            self.provide()
        with mock.patch.object(virtual_environment, "NEEDED_BYTES", {False: 1 << 60, True: 1 << 60}):
            with self.assertRaisesRegex(toolchain.LabError, "GB free"):
                self.provide()


class WhatTheSystemLacks(Environment):
    def test_comes_into_the_environment(self) -> None:
        self.environment["CMAKE_PREFIX_PATH"] = str(self.top)
        gaps = {
            "cmake": lambda: (self.bin / "cmake").write_text("#!/bin/sh\necho cmake version 3.18.4\n"),
            "ninja": lambda: (self.bin / "ninja").unlink(),
            "headers": lambda: shutil.rmtree(self.top / "include" / "CLI"),
        }
        with mock.patch.dict("os.environ", self.environment), mock.patch("os.path.exists", self._exists):
            self.assertEqual(virtual_environment.system_gaps(), set())
            for number, make_gap in enumerate(gaps.values(), start=1):
                make_gap()
                self.assertEqual(virtual_environment.system_gaps(), set(list(gaps)[:number]))

    def _exists(self, path: str) -> bool:
        """Whatever this system has is not there."""
        return str(path).startswith(str(self.top)) and Path(path).exists()

    def test_programs_are_the_pinned_ones_and_need_no_torch(self) -> None:
        virtual_environment.provide(self.top / "log", frozenset({"cmake", "ninja"}))
        self.assertEqual(self.pip, [f"{name}=={toolchain.pinned(name)}" for name in ("cmake", "ninja")])

    def test_libraries_are_unpacked_for_cmake_and_checked(self) -> None:
        with mock.patch.object(virtual_environment.progress, "run", self._download):
            virtual_environment.provide(self.top / "log", frozenset({"headers"}))
        libraries = self.venv / "libraries"
        found = {str(path.relative_to(libraries)) for path in libraries.rglob("*") if path.is_file()}
        self.assertEqual(found, {"cli11/include/CLI/CLI.hpp", "gtest_vendor/src/gtest-all.cc"})
        self.assertEqual(virtual_environment.parts_there(), {"headers"})

    def _download(self, argv: list[str], *rest) -> tuple[bool, list[str]]:
        if "download" not in argv:
            return self._run(argv, *rest)
        self.assertIn("--require-hashes", argv)
        folder = Path(argv[argv.index("-d") + 1])
        for name, files in {
            "a": ["a/cli11/include/CLI/CLI.hpp", "a/cli11/README.md", "a/boost/include/boost/nlohmann_json.hpp"],
            "b": ["b.data/data/src/gtest_vendor/src/gtest-all.cc", "gtest_vendor/_dummy.so"],
        }.items():
            with zipfile.ZipFile(folder / f"{name}.whl", "w") as archive:
                for file in files:
                    archive.writestr(file, "")
        return True, []

    def test_pip_is_debians_where_python_has_none(self) -> None:
        """It trusts its own certificates where the system has none."""
        wheel, certificates = self.top / "pip-1-py3-none-any.whl", self.top / "certificates"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("pip/_vendor/certifi/core.py", f"PATH = '{certificates}'\n")
        core = self.venv / "lib/python3/site-packages/pip/_vendor/certifi/core.py"
        bare = dataclasses.replace(toolchain.probe(sys.executable), has_pip=False)
        with (
            mock.patch.multiple(virtual_environment, base_python=lambda: bare, _CERTIFICATES=str(certificates)),
            mock.patch.object(virtual_environment.system_packages, "fetch_pip", return_value=str(wheel)) as fetch,
        ):
            self.provide()
            self.assertEqual(core.read_text(), f"PATH = '{core.with_name('cacert.pem')}'\n")
            shutil.rmtree(self.venv)
            certificates.touch()
            self.provide()
            self.assertEqual(core.read_text(), f"PATH = '{certificates}'\n")
            shutil.rmtree(self.venv)
            fetch.return_value = ""
            with self.assertRaisesRegex(toolchain.LabError, "has no pip for environments .*python3-venv, or connect"):
                self.provide()

    def test_a_python_without_pip_is_refused_only_where_there_is_no_debian(self) -> None:
        bare = dataclasses.replace(toolchain.probe(sys.executable), has_pip=False)
        with mock.patch.object(virtual_environment, "probe", return_value=bare):
            with mock.patch("shutil.which", return_value="/usr/bin/apt-get"):
                self.assertEqual(virtual_environment.base_python(), bare)
            with mock.patch("shutil.which", return_value=None):
                with self.assertRaisesRegex(toolchain.LabError, "has no pip for environments .*python3-venv"):
                    virtual_environment.base_python()


class SystemPackages(unittest.TestCase):
    def test_the_sanitizers_are_those_of_the_compiler_that_is_taken(self) -> None:
        for name, version, package in (
            ("clang-19", (19, 1, 7), "libclang-rt-19-dev"),
            ("clang-14", (14, 0, 6), "libclang-rt-14-dev"),
            ("g++", (12, 2, 0), ""),
        ):
            chosen = {"usable_compiler": lambda name=name: f"/usr/bin/{name}", "compiler": lambda: "c++"}
            with mock.patch.multiple(system_packages, version_of=mock.Mock(return_value=version), **chosen):
                with mock.patch.dict("os.environ", {"ALL": "1"}), mock.patch("os.path.realpath", lambda path: path):
                    self.assertEqual([need.package for need in system_packages.sanitizers()], [package] * bool(package))

    def test_nobody_asks_for_them_otherwise(self) -> None:
        with mock.patch.dict("os.environ", {"ALL": "", "SANITIZE": ""}):
            self.assertEqual(system_packages.sanitizers(), [])


class Requirements(unittest.TestCase):
    def test_pins_are_read(self) -> None:
        self.assertEqual(toolchain.wanted_torch(), "2.11 to 2.15")
        self.assertEqual(toolchain.pinned("torch"), "2.15.0")
        cmake = (toolchain.ROOT / "CMakeLists.txt").read_text()
        self.assertIn(f"find_package(Libtorch {toolchain.OLDEST_TORCH} ", cmake)
        self.assertRaises(toolchain.LabError, toolchain.pinned, "no-such-package")
