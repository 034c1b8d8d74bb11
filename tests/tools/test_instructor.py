"""INSTRUCTOR.md: what it tells to run is there, and its numbers are the lab's."""

from __future__ import annotations

import re
import subprocess
import sys
import unittest

from tools.grading.stages import all_stages
from tools.setup.toolchain import ROOT

TEXT = (ROOT / "INSTRUCTOR.md").read_text()
NOT_PROGRAMS = {"tools.checking.claims"}  # it begins at once


class Instructor(unittest.TestCase):
    def test_targets(self) -> None:
        makefiles = (ROOT / "Makefile").read_text() + (ROOT / "instructor.mk").read_text()
        named = set(re.findall(r"`make ([a-z]+)", TEXT))
        self.assertGreaterEqual(named, {"test", "check", "release", "autograder", "submit", "update", "writeup"})
        for target in named:
            self.assertRegex(makefiles, rf"(?m)^{target}:", f"make {target}")

    def test_programs_and_their_options(self) -> None:
        commands = re.findall(r"python3\s-m\s(tools[\w.]+)([^\n`]*)", TEXT)
        self.assertGreaterEqual(len(commands), 4)
        for module, rest in commands:
            self.assertTrue((ROOT / f"{module.replace('.', '/')}.py").exists(), module)
            if module not in NOT_PROGRAMS:
                asked = [sys.executable, "-m", module, "--help"]
                done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                for option in re.findall(r"--[a-z-]+", rest):
                    self.assertIn(option, done.stdout, module)

    def test_files(self) -> None:
        for path in re.findall(r"`((?:tools|tests|writeup|benchmarks)/[\w./]+\.(?:py|cpp|md))`", TEXT):
            self.assertTrue((ROOT / path).exists(), path)

    def test_numbers(self) -> None:
        for stage in all_stages():
            self.assertRegex(TEXT, rf"\| {stage.number} {stage.topic} \| \S+ \| {stage.points} \| 10 \|")
