"""Tests of what editors and containers read: CMakePresets.json, .vscode, .clangd, .devcontainer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

import pytest

from tools.grading import declared
from tools.grading.stages import all_stages
from tools.setup import configuring, system_packages, toolchain, virtual_environment
from tools.setup.toolchain import BUILD_DIR, ROOT

MAKEFILE = (ROOT / "Makefile").read_text()


def read(name: str) -> dict[str, Any]:
    return json.loads((ROOT / name).read_text())


class Presets(unittest.TestCase):
    def test_the_folder_is_setups_and_all_else_is_left_to_it(self) -> None:
        (preset,) = read("CMakePresets.json")["configurePresets"]
        self.assertEqual(Path(preset["binaryDir"].replace("${sourceDir}", str(ROOT))), BUILD_DIR)
        self.assertEqual({"generator", "cacheVariables", "environment"} & {*preset}, set())

    def test_the_stages_are_all_stages(self) -> None:
        presets = {preset["name"]: preset for preset in read("CMakePresets.json")["buildPresets"]}
        (target,) = presets["stages"]["targets"]
        tools = toolchain.load()
        command = [tools.ninja, "-C", str(BUILD_DIR), "-t", "query", target]
        inputs = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for stage in all_stages():
            self.assertIn(f"stages/assignments/{stage.name}/libstage.so", inputs)

    def test_it_configures_as_setup_does(self) -> None:
        """With setup's own choices in the cache, which is what an editor finds."""
        tools = toolchain.load()
        with tempfile.TemporaryDirectory(prefix="ddp-lab-preset-") as folder:
            chosen = configuring.cmake_command(tools)
            chosen = chosen[chosen.index("-G") :]
            self.run_here(tools.cmake, "--preset", "lab", "-B", folder, *chosen)
            before = Path(folder, "CMakeCache.txt").read_text()
            self.run_here(tools.cmake, "--preset", "lab", "-B", folder)
            self.assertEqual(Path(folder, "CMakeCache.txt").read_text(), before)
            self.assertIn(f"CMAKE_CXX_COMPILER:STRING={tools.cxx}\n", before)

    def run_here(self, *command: str) -> None:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class VisualStudioCode(unittest.TestCase):
    def test_tasks_are_targets_with_variables_that_make_knows(self) -> None:
        targets = re.findall(r"^([a-z]+):.*##", MAKEFILE, re.MULTILINE)
        known = re.search(r"^VARIABLES := (.*)", MAKEFILE, re.MULTILINE)[1].split()
        tasks = read(".vscode/tasks.json")["tasks"]
        for task in tasks:
            self.assertEqual(task["command"], "make")
            target, *given = task["args"]
            self.assertIn(target, targets, task["label"])
            self.assertLessEqual({each.partition("=")[0] for each in given}, {*known}, task["label"])
        self.assertLessEqual({"test", "watch", "hint", "submit"}, {task["args"][0] for task in tasks})

    def test_inputs_are_there(self) -> None:
        document = read(".vscode/tasks.json")
        inputs = {one["id"]: one for one in document["inputs"]}
        asked = re.findall(r"\$\{input:(\w+)\}", json.dumps(document["tasks"]))
        self.assertEqual({*asked}, {*inputs})

    def test_settings_and_extensions_can_be_read_and_agree(self) -> None:
        wanted = read(".vscode/extensions.json")["recommendations"]
        self.assertIn(read(".vscode/settings.json")["[cpp]"]["editor.defaultFormatter"], wanted)
        for name in (".devcontainer/devcontainer.json", ".devcontainer/cuda/devcontainer.json"):
            self.assertEqual(read(name)["customizations"]["vscode"]["extensions"], wanted)

    @pytest.mark.slow
    def test_clangd_finds_no_error_in_a_stub(self) -> None:
        clangd = shutil.which("clangd") or shutil.which("clangd-14")
        if not clangd:
            self.skipTest("there is no clangd")
        source = all_stages()[0].sources("assignments")[0]
        done = subprocess.run(
            [clangd, f"--check={source}"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
        )
        self.assertIn("All checks completed, 0 errors", done.stderr)
        self.assertIn(f"Testing on source file {source}", done.stderr)
        self.assertNotIn("cmake_pch", done.stderr, "a precompiled header is for one version of clang alone")

    def test_each_graded_test_is_one_of_ctests(self) -> None:
        for stage in all_stages():
            if not Path(BUILD_DIR, "bin", f"tests_{stage.name}").exists():
                self.skipTest(f"tests_{stage.name} is not built")
        ctest = Path(toolchain.load().cmake).with_name("ctest")
        command = [ctest, "--preset", "graded", "-N"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        listed = re.findall(r"Test +#\d+: (\w+)\.Graded\.(\w+)", done.stdout)
        due = [(stage.name, spec.name) for stage in all_stages() for spec in declared.tests_of(stage)]
        self.assertEqual(sorted(listed), sorted(due), done.stderr)


class Container(unittest.TestCase):
    def test_has_all_packages_that_setup_would_miss(self) -> None:
        text = (ROOT / ".devcontainer" / "Dockerfile").read_text()
        installed = set(re.search(r"--no-install-recommends \\\n(.*?)&&", text, re.DOTALL)[1].replace("\\", "").split())
        self.assertLessEqual({*system_packages.PACKAGES}, installed)

    def test_codespaces_can_open_the_first(self) -> None:
        """It has no GPUs and takes few arguments of docker run; what is asked for is its smallest machine."""
        document = read(".devcontainer/devcontainer.json")
        self.assertNotIn("runArgs", document)
        self.assertEqual(document["hostRequirements"], {"cpus": 2, "memory": "8gb", "storage": "32gb"})
        gigabytes = {name: int(document["hostRequirements"][name][:-2]) for name in ("memory", "storage")}
        self.assertGreaterEqual(gigabytes["memory"], 4, "INSTRUCTOR.md asks for it, since a rank may use 3")
        self.assertGreaterEqual(gigabytes["storage"] << 30, virtual_environment.NEEDED_BYTES[False])

    def test_its_files_are_there_and_its_user_too(self) -> None:
        for name in (".devcontainer/devcontainer.json", ".devcontainer/cuda/devcontainer.json"):
            document = read(name)
            dockerfile = (ROOT / name).parent / document["build"]["dockerfile"]
            self.assertIn(f"ARG USER={document['remoteUser']}\n", dockerfile.read_text())
            self.assertRegex(document["postCreateCommand"], "^make setup")
