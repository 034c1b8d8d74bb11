"""What is handed out builds, grades and draws by itself. Builds the lab's library and a program anew: minutes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import unittest
from pathlib import Path

import pytest

from tests.tools.release_test import working_tree
from tools.course import release
from tools.grading import stages
from tools.setup import toolchain
from tools.setup.toolchain import ROOT

STAGE = "05"
PATIENCE_S = 1500


@pytest.mark.slow
class BuiltRelease(unittest.TestCase):
    def setUp(self) -> None:
        folder = self.folder
        written = Path(folder) / "written" / "ddp-lab"
        made = release.write_tree(written, working_tree())
        archive = Path(folder) / "ddp-lab.tar.gz"
        release.write_archive(written, made, archive)
        with tarfile.open(archive) as tar:
            tar.extractall(folder)
        self.lab = Path(folder) / "ddp-lab"
        tools = toolchain.load()
        self.given = f"PYTHON={tools.python}" if tools.python else f"LIBTORCH={tools.libtorch}"

    def run_here(self, *command: str, code: int = 0) -> str:
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS")}
        done = subprocess.run(
            command, cwd=self.lab, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, code, said)
        self.assertNotIn("Traceback", said)
        return said

    def test_builds_grades_draws_and_hands_in(self) -> None:
        (stage,) = (each for each in stages.all_stages() if each.number == STAGE)
        stub = self.run_here("make", "test", f"STAGE={STAGE}", self.given, code=2)
        self.assertRegex(stub, rf"Total +0 / {stage.points} points")
        for source in (ROOT / "solutions" / stage.name).glob("*.[ch]*"):
            shutil.copyfile(source, self.lab / "assignments" / stage.name / source.name)
        self.assertRegex(self.run_here("make", "test", f"STAGE={STAGE}"), rf"Total +{stage.points} / {stage.points} p")
        self.assertEqual(list((self.lab / "build").rglob("*solutions*")), [], "a solution was built")

        program = "all_reduce_algorithms"
        self.run_here("cmake", "--build", "build", "--target", program)
        self.run_here(f"build/bin/{program}", "--preset", "quick", "--output", "figures/data/drawn.json")
        python = json.loads((self.lab / "build" / "toolchain.json").read_text())["toolchain"]["figure_python"]
        drawn = self.run_here(python, "-m", f"figures.plots.{program}", "--data", "figures/data/drawn.json")
        (file,) = re.findall(r"wrote (\S+\.png)", drawn)
        self.assertTrue((self.lab / file).read_bytes().startswith(b"\x89PNG"))

        self.assertIn("questions answered", self.run_here("make", "writeup", f"STAGE={STAGE}"))
        handed_in = self.run_here("make", "submit")
        self.assertRegex(handed_in, rf"scores: {stage.points} of {stage.points} points, of stage {STAGE} alone")
        self.assertIn("Still missing", handed_in)
        self.run_here("make", "doctor")
