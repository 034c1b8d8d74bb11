"""The command that moves the lab to another PyTorch: its steps and what it says, without a download."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import sys
import unittest
from unittest import mock

from tools.checking import move_torch
from tools.setup import toolchain
from tools.setup.toolchain import LabError


class MoveTorch(unittest.TestCase):
    def setUp(self) -> None:
        self.root = self.folder
        self.build, self.torch = self.root / "build", self.root / "torch"
        shutil.copy(toolchain.REQUIREMENTS, self.root)
        (self.root / ".gitignore").write_text("build/\ntorch/\n")
        self.header = self.torch / "include" / move_torch.HEADERS[0] / "Work.hpp"
        for part in move_torch.HEADERS:
            (self.torch / "include" / part).mkdir(parents=True)
        self.header.write_text("bool wait();\n")
        (self.build / "check").mkdir(parents=True)
        (self.build / "check/build.log").write_text("a.cpp:1:2: warning: 'wait' is deprecated\n" * 2)
        for command in (
            ["init", "-q"],
            ["add", "-A"],
            ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"],
        ):
            subprocess.run(["git", "-C", str(self.root), *command], check=True)
        self.steps: list[str] = []
        requirements = self.root / "requirements.txt"
        changes = {
            "ROOT": self.root,
            "BUILD_DIR": self.build,
            "FOLDER": self.build / "move",
            "REQUIREMENTS": requirements,
        }
        self.enterContext(mock.patch.multiple(move_torch, **changes, step=self.step))
        self.enterContext(mock.patch.object(toolchain, "REQUIREMENTS", requirements))
        self.enterContext(mock.patch.object(toolchain, "load", return_value=mock.Mock(libtorch=str(self.torch))))

    def step(self, what: str, command: list[str]) -> None:
        self.steps.append(what)
        if "tools.setup.setup" in command:
            self.assertIn("\ntorch==9.8.7\n", (self.root / "requirements.txt").read_text())
            self.header.write_text("bool wait(int ms);\n")

    def move(self, release: str) -> str:
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["move_torch", release]), contextlib.redirect_stdout(said):
            move_torch.main()
        return said.getvalue()

    def test_says_what_is_different(self) -> None:
        said = self.move("9.8.7")
        self.assertEqual(len(self.steps), 6)
        self.assertIn("Warnings of the build: 1\n  warning: 'wait' is deprecated\n", said)
        self.assertIn("1 file changed, 1 insertion(+), 1 deletion(-)", said)
        self.assertIn("The gallery, not committed yet:\n  as it was", said)

    def test_begins_from_a_commit_and_with_a_release(self) -> None:
        self.assertRaisesRegex(LabError, "2.16 is no release of PyTorch", self.move, "2.16")
        (self.root / "edited").touch()
        self.assertRaisesRegex(LabError, "Commit or stash first", self.move, "9.8.7")
        self.assertEqual(self.steps, [])


class Step(unittest.TestCase):
    def test_that_fails_ends_it_with_the_way_back(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertRaisesRegex(LabError, "(?s)ended with 1.*make setup", move_torch.step, "It fails", ["false"])
