"""What editors and containers read: CMakePresets.json, .vscode, .clangd, .devcontainer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools.grading.running import test_lists
from tools.grading.stages import all_stages
from tools.setup import system_packages, toolchain
from tools.setup.toolchain import ROOT

CLANGD = shutil.which("clangd") or shutil.which("clangd-14")


def read(name: str) -> dict[str, Any]:
    return json.loads((ROOT / name).read_text())


def output_of(*command: object) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_tasks_are_targets_with_variables_that_make_knows() -> None:
    makefile, document = (ROOT / "Makefile").read_text(), read(".vscode/tasks.json")
    targets = re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE)
    known = re.search(r"^VARIABLES := (.*)", makefile, re.MULTILINE)[1].split()
    for task in document["tasks"]:
        target, *given = task["args"]
        assert task["command"] == "make" and target in targets, task["label"]
        assert {each.partition("=")[0] for each in given} <= {*known}, task["label"]
    assert {"test", "watch", "hint", "submit"} <= {task["args"][0] for task in document["tasks"]}
    asked = re.findall(r"\$\{input:(\w+)\}", json.dumps(document["tasks"]))
    assert {*asked} == {one["id"] for one in document["inputs"]}


@pytest.mark.slow
@pytest.mark.skipif(not CLANGD, reason="there is no clangd")
def test_clangd_finds_no_error_in_a_stub() -> None:
    source = all_stages()[0].sources("assignments")[0]
    said = output_of(CLANGD, f"--check={source}")
    assert "All checks completed, 0 errors" in said
    assert f"Testing on source file {source}" in said
    assert "cmake_pch" not in said, "a precompiled header is for one version of clang alone"


@pytest.mark.builds(*(f"tests_{stage.name}" for stage in all_stages()))
def test_each_graded_test_is_one_of_ctests() -> None:
    said = output_of(Path(toolchain.load().cmake).with_name("ctest"), "--preset", "graded", "-N")
    due = [(stage.name, spec.name) for stage in all_stages() for spec in test_lists.tests_of(stage)]
    assert sorted(re.findall(r"Test +#\d+: (\w+)\.Graded\.(\w+)", said)) == sorted(due)


def test_the_container_has_all_packages_that_setup_would_miss() -> None:
    text = (ROOT / ".devcontainer" / "Dockerfile").read_text()
    installed = re.search(r"--no-install-recommends \\\n(.*?)&&", text, re.DOTALL)[1].replace("\\", "").split()
    assert {*system_packages.PACKAGES} <= {*installed}
