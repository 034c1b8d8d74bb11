"""INSTRUCTOR.md: what it tells to run is there, and its numbers are the lab's."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tools.grading.stages import Stage, all_stages
from tools.setup.toolchain import ROOT

TEXT = (ROOT / "INSTRUCTOR.md").read_text()
COMMANDS = re.findall(r"python3\s-m\s(tools[\w.]+)([^\n`]*)", TEXT)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make ([a-z]+)", TEXT))))
def test_targets(target: str) -> None:
    makefiles = (ROOT / "Makefile").read_text() + (ROOT / "instructor.mk").read_text()
    assert re.search(rf"(?m)^{target}:", makefiles)


@pytest.mark.parametrize(("module", "rest"), COMMANDS)
def test_programs_and_their_options(module: str, rest: str) -> None:
    asked = [sys.executable, "-m", module, "--help"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"--[a-z-]+", rest)) <= set(re.findall(r"--[a-z-]+", done.stdout))


def test_files() -> None:
    named = re.findall(r"`((?:tools|tests|writeup|benchmarks)/[\w./]+\.(?:py|cpp|md))`", TEXT)
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("stage", all_stages(), ids=lambda stage: stage.name)
def test_numbers(stage: Stage) -> None:
    assert re.search(rf"\| {stage.number} {stage.topic} \| \S+ \| {stage.points} \| 10 \|", TEXT)
