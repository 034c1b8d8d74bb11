"""Runs the commands of all texts, as tests/tools/text_commands_test.py says, in a view of the checkout that nobody else
sees: what they write lies over it, in memory, and is gone at the end. It takes minutes: make check ALL=1."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import pytest

from tests.tools.text_commands_test import NotRun, Run, class_of, commands
from tools.grading.running.processes import GuardedProcess
from tools.setup.toolchain import ROOT

SECONDS = 600  # for one command
# In namespaces of its own (mounts, and processes, which end with it), the checkout is covered by an empty layer.
NAMESPACES = [
    "unshare",
    *([] if os.geteuid() == 0 else ["--map-root-user"]),
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
]
COVER = """\
set -e
layer=$(mktemp -d) && mount -t tmpfs layer "$layer" && mkdir "$layer/new" "$layer/work"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$layer/new,workdir=$layer/work" "$1"
mount -t proc proc /proc
cd "$1"
set +e
"""
ONE = """\
( timeout --kill-after=10 {seconds} bash -c {command} ) > {log} 2>&1 < /dev/null
echo $? > {log}.code
"""


def in_a_view(script: str) -> list[str]:
    return [*NAMESPACES, "bash", "-c", COVER + script, "bash", str(ROOT)]


def can_cover() -> bool:
    if not shutil.which("unshare"):
        return False
    done = subprocess.run(in_a_view("touch covered && test -e covered"), capture_output=True, check=False)
    return done.returncode == 0 and not (ROOT / "covered").exists()


@pytest.mark.slow
class AllTexts(unittest.TestCase):
    def test_their_commands_run(self) -> None:
        if not can_cover():
            self.skipTest("this system lets nobody mount an overlay in namespaces of their own")
        due: dict[str, tuple[str, Run]] = {}  # what runs, with what stands in the text; each once
        for command in commands():
            found = class_of(command)
            if isinstance(found, Run):
                due.setdefault(found.instead or command, (command, found))
            else:
                self.assertIsInstance(found, NotRun, command)
        self.assertGreater(len(due), 30)
        with tempfile.TemporaryDirectory(prefix="ddp-lab-texts-") as folder:
            logs = {runs: Path(folder, f"{index}.log") for index, runs in enumerate(due)}
            script = "".join(
                ONE.format(seconds=SECONDS, command=shlex.quote(runs), log=shlex.quote(str(log)))
                for runs, log in sorted(logs.items(), key=lambda each: due[each[0]][1].last)
            )
            # Nothing of what this very run was asked for, such as ALL=1.
            env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
            with GuardedProcess(in_a_view(script), env={**env, "LC_ALL": "C.UTF-8", "COLUMNS": "80"}) as process:
                said = b"".join(data for channel, data in process.events() if channel == "output").decode()
            for runs, (command, found) in due.items():
                with self.subTest(command, runs=runs):
                    self.assert_ran(logs[runs], found, said)

    def assert_ran(self, log: Path, found: Run, said: str) -> None:
        code = log.with_name(f"{log.name}.code")
        self.assertTrue(code.exists(), f"it was not reached: {said}")
        printed = log.read_text(errors="replace")
        self.assertIn(int(code.read_text()), found.codes, printed[-3000:])
        self.assertNotIn("Traceback", printed)
