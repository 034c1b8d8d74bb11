"""Everything built for arm64: tools/checking/arm64.py."""

from __future__ import annotations

import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests.tools.checking_test import context
from tools.checking import arm64
from tools.checking.arm64 import Need, check_arm64, undefined


def library(folder: Path, name: str, code: str) -> Path:
    path = folder / f"lib{name}.so"
    command = ["c++", "-x", "c++", "-", "-shared", "-fPIC", "-o", str(path)]
    subprocess.run(command, input=code, text=True, check=True)
    return path


class Undefined(unittest.TestCase):
    def test_names_what_neither_the_build_nor_its_libraries_define(self) -> None:
        folder = self.folder
        there = library(folder, "there", 'extern "C" void there() {}')
        uses = "void there(); void own(); void nowhere(); __attribute__((weak)) void weak(); void more();"
        calls = "void call() { there(); own(); nowhere(); if (weak) weak(); }"
        user = library(folder, "user", f'extern "C" {{ {uses} {calls} }}')
        own = library(folder, "own", 'extern "C" void own() {}')
        self.assertEqual(undefined([user, own], [there]), [(user, "nowhere")])
        self.assertEqual(undefined([user], [there]), [(user, "nowhere"), (user, "own")])


class WhatIsMissing(unittest.TestCase):
    def test_is_named_with_the_command_that_installs_it(self) -> None:
        needs = [Need("lld", "lld", lambda: "", ""), Need("nm", "binutils", lambda: "/usr/bin/nm", "")]
        with (
            mock.patch.object(arm64, "NEEDS", needs),
            mock.patch("platform.machine", return_value="x86_64"),
            mock.patch("tools.setup.system_packages.can_install", return_value=False),
            tempfile.TemporaryDirectory() as folder,
        ):
            outcome = check_arm64(context(build_dir=folder))
        (skipped,) = outcome.skipped
        self.assertRegex(skipped, "^lld: missing. .*: (sudo )?apt-get install --no-install-recommends lld$")

    def test_is_nothing_on_an_arm64(self) -> None:
        with mock.patch("platform.machine", return_value="aarch64"):
            self.assertIn("this machine is an arm64", check_arm64(context()).skipped[0])
