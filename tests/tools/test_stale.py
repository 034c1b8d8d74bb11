"""A stage that was built of other contents is built again, whatever the times of its files say."""

from __future__ import annotations

import json
import os
import unittest
from unittest import mock

from tools.grading import stages
from tools.grading.compiling import stale
from tools.grading.compiling.building import Builder, Watch
from tools.grading.stages import Stage


class Stale(unittest.TestCase):
    def setUp(self) -> None:
        root = self.folder
        self.stage = Stage("01_naive_ddp", "01", "naive DDP", 15)
        self.build = root / "build"
        (self.build / "grade").mkdir(parents=True)
        self.source = root / "solutions" / self.stage.name / "naive_ddp.cpp"
        self.header = root / "assignments" / self.stage.name / "naive_ddp.h"
        for file in (self.source, self.header):
            file.parent.mkdir(parents=True)
            file.write_text("first")
        self.object = self.build / "naive_ddp.o"
        self.object.touch()
        command = {"file": str(self.source), "command": f"clang++ -c {self.source} -o naive_ddp.o"}
        (self.build / "compile_commands.json").write_text(json.dumps([command]))
        for module in (stages, stale):
            self.enterContext(mock.patch.object(module, "ROOT", root))

    def is_forgotten(self) -> bool:
        stale.forget_if_changed(self.build, self.stage, "solutions")
        return not self.object.exists()

    def test_what_is_as_it_was_built_stays(self) -> None:
        self.assertFalse(self.is_forgotten())  # nobody knows, so the times decide
        stale.remember(self.build, self.stage, "solutions")
        os.utime(self.source)
        self.assertFalse(self.is_forgotten())

    def test_an_edit_counts_however_old_the_file_is(self) -> None:
        for file in (self.source, self.header):
            with self.subTest(file.name):
                self.object.touch()
                stale.remember(self.build, self.stage, "solutions")
                file.write_text("second")
                os.utime(file, (1, 1))
                self.assertTrue(self.is_forgotten())

    def test_a_file_that_was_never_built_is_no_error(self) -> None:
        stale.remember(self.build, self.stage, "solutions")
        self.source.with_name("more.cpp").write_text("new")
        self.assertTrue(self.is_forgotten())

    def test_precompiled_headers_go_when_a_package_was_upgraded(self) -> None:
        header = self.build / "CMakeFiles/pch_core.dir/cmake_pch.hxx.pch"
        header.parent.mkdir(parents=True)
        header.touch()
        self.assertFalse(stale.forget_precompiled(self.build, "x.cpp:1:1: error: unknown type name 'x'"))
        said = "fatal error: file '/usr/include/errno.h' has been modified since the precompiled header 'h' was built"
        cmake = self.folder / "cmake"
        cmake.write_text(f'#!/bin/sh\n[ ! -e {header} ] || {{ echo "{said}"; exit 1; }}\n')
        cmake.chmod(0o755)
        tools = mock.Mock(build_dir=str(self.build), cmake=str(cmake))
        with Watch(visible=False) as watch:
            self.assertTrue(Builder(tools)._build("common", [], watch).ok)
        self.assertFalse(stale.forget_precompiled(self.build, said))  # once is enough
