"""Tests of the checkout's own Python environment, and of what it asks for."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distributions
from pathlib import Path
from unittest import mock

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tools.setup_helpers import Checkout, fake_torch, script
from tools.setup import requirements, system_packages, toolchain, virtual_environment
from tools.setup.toolchain import ROOT


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
        assert "--require-hashes" in argv and "--no-deps" in argv
        self.pip.append(" ".join(re.findall(r"(?m)^[\w-]+==\S+", Path(argv[argv.index("-r") + 1]).read_text())))
        if self.pip_output is None and "torch==" in self.pip[-1]:
            packages = self.venv / "lib" / "python3" / "site-packages"
            fake_torch(packages / "torch")
        return int(self.pip_output is not None), self.pip_output or []

    def provide(self, *parts: str) -> None:
        virtual_environment.provide(self.top / "log", frozenset({"torch", *parts}))


class VirtualEnvironment(Environment):
    def test_made_once_and_parts_come_when_they_are_needed(self) -> None:
        self.provide()
        self.provide()
        assert self.pip == [f"torch=={toolchain.pinned('torch')}"]
        assert virtual_environment.megabytes_to_come(frozenset({"torch", "figures"})) == 80
        self.provide("figures")
        self.provide("figures")
        assert len(self.pip) == 2 and f"matplotlib=={toolchain.pinned('matplotlib')}" in self.pip[1]
        assert virtual_environment.parts_there() == {"torch", "figures"}

    def test_cuda_is_all_that_torch_depends_on(self) -> None:
        self.provide("cuda")
        assert self.pip[0] == f"torch=={toolchain.pinned('torch')}"
        assert {"torch", "sympy", "mpmath", "nvidia-cublas", "nvidia-cuda-crt"} <= {
            *re.findall(r"(\S+)==", self.pip[1])
        }

    @pytest.mark.slow
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
            assert re.findall(r"(\S+)==", self.pip[-1]) == ["nvidia-cuda-cupti", "nvidia-cuda-runtime"]
            shutil.rmtree(self.venv)
            said = "libodd.so.1 => not found"
            reason = "needs libodd.so, which none of its own packages brings"
            self.assertRaisesRegex(toolchain.LabError, reason, self.provide)

    @pytest.mark.slow
    def test_half_made_or_broken_is_made_anew(self) -> None:
        for reason, said in (
            ("ERROR: broken wheel", "broken wheel"),
            ("Temporary failure in name resolution", "no network.*PYTHON=.*2.11 to 2.15.*LIBTORCH="),
            ("SSL: CERTIFICATE_VERIFY_FAILED (from versions: none)", "does not trust .*PIP_CERT="),
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

    def test_changed_requirements_are_installed_into_it(self) -> None:
        self.provide()
        (self.venv / "kept").touch()
        with mock.patch.object(virtual_environment, "requirements_hash", lambda: "other"):
            self.provide()
        assert len(self.pip) == 2 and (self.venv / "kept").exists()

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

    def test_libraries_are_unpacked_for_cmake_and_checked(self) -> None:
        with mock.patch.object(virtual_environment.progress, "run", self._download):
            virtual_environment.provide(self.top / "log", frozenset({"headers"}))
        libraries = self.venv / "libraries"
        found = {str(path.relative_to(libraries)) for path in libraries.rglob("*") if path.is_file()}
        self.assertEqual(found, {"cli11/include/CLI/CLI.hpp", "gtest_vendor/src/gtest-all.cc"})
        self.assertEqual(virtual_environment.parts_there(), {"headers"})

    def _download(self, argv: list[str], *rest) -> tuple[int, list[str]]:
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
        return 0, []

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


@pytest.mark.parametrize(
    ("compiler", "version", "packages"),
    [
        ("clang-19", (19, 1, 7), ["libclang-rt-19-dev"]),
        ("clang-14", (14, 0, 6), ["libclang-rt-14-dev"]),
        ("g++", (12, 2, 0), []),
    ],
)
def test_the_sanitizers_are_those_of_the_compiler_that_is_taken(
    compiler: str, version: tuple[int, ...], packages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_packages, "usable_compiler", lambda: f"/usr/bin/{compiler}")
    monkeypatch.setattr(system_packages, "compiler", lambda: "c++")
    monkeypatch.setattr(system_packages, "version_of", lambda _: version)
    monkeypatch.setattr("os.path.realpath", lambda path: path)
    monkeypatch.setenv("ALL", "1")
    assert [need.package for need in system_packages.sanitizers()] == packages
    monkeypatch.setenv("ALL", "")
    monkeypatch.setenv("SANITIZE", "")
    assert system_packages.sanitizers() == [], "nobody asks for them otherwise"


def test_pins_are_read() -> None:
    assert (toolchain.wanted_torch(), toolchain.pinned("torch")) == ("2.11 to 2.15", "2.15.0")
    cmake = (ROOT / "CMakeLists.txt").read_text()
    assert f"find_package(Libtorch {toolchain.OLDEST_TORCH} " in cmake
    with pytest.raises(toolchain.LabError):
        toolchain.pinned("no-such-package")


def test_the_lock_is_of_what_is_asked_for() -> None:
    """It is stale where requirements.in has changed since: its head says how to write it anew."""
    asked = re.findall(r"^([\w-]+)\S*?(?:==(\S+))?(?: ;.*)?$", (ROOT / "requirements.in").read_text(), re.MULTILINE)
    entries = requirements.entries()
    assert {name: version or toolchain.pinned(name) for name, version in asked} == {
        entry[1]: toolchain.pinned(entry[1]) for entry in entries if "-r requirements.in" in entry[2]
    }
    assert all("--hash=sha256:" in entry[0] for entry in entries)
    assert len(entries) == len(re.findall("^[^# ]", toolchain.REQUIREMENTS.read_text(), re.MULTILINE))
    for found in distributions():
        needs = [Requirement(text) for text in found.requires or ()]
        needs = {
            canonicalize_name(need.name) for need in needs if not need.marker or need.marker.evaluate({"extra": ""})
        }
        if (name := canonicalize_name(found.name)) in {entry[1] for entry in entries}:
            assert needs <= {*re.findall(r"(?m)^([\w-]+)==", requirements.needed([name]))}, f"{name}, as it says itself"
