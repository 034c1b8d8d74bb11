"""What tests of CI files share: YAML as it is parsed elsewhere, and a job of GitHub's whose commands are run here."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import unittest
from pathlib import Path
from typing import Any

from tools.setup import toolchain
from tools.setup.toolchain import ROOT

CLASSROOM = ROOT / "students/.github/workflows/classroom.yml"
PARSE = (
    "import json, sys, ruamel.yaml as y; json.dump(y.YAML(typ='safe').load(open(sys.argv[1])), sys.stdout, default=str)"
)
SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")  # as Actions runs `shell: bash`
# Root is who runs here, or nobody needs to be.
SUDO = '#!/bin/sh\nexec "$@"\n'


def checkers_python(test: unittest.TestCase) -> str:
    """A Python with check-jsonschema, which brings a parser of YAML."""
    python = toolchain.load().figure_python
    if subprocess.run([python, "-c", "import check_jsonschema"], capture_output=True, check=False).returncode:
        test.skipTest("skipped: no check-jsonschema in the lab's Python: make check installs it")
    return python


def parse(test: unittest.TestCase, file: Path) -> dict[str, Any]:
    done = subprocess.run([checkers_python(test), "-c", PARSE, file], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


class Job:
    """The job of CLASSROOM in a workspace. What its actions do is left out: nothing is cached or uploaded."""

    def __init__(self, test: unittest.TestCase, folder: Path, workspace: Path, grader: str, **more: str) -> None:
        self.folder, self.workspace = folder, workspace
        self._steps = parse(test, CLASSROOM)["jobs"]["grade"]["steps"]
        for name in ("bin", "temp"):
            (folder / name).mkdir(parents=True)
        (folder / "bin/sudo").write_text(SUDO)
        (folder / "bin/sudo").chmod(0o755)
        self.environment = {
            **os.environ, "GRADER": grader, "HOME": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "GITHUB_WORKSPACE": str(workspace), "RUNNER_TEMP": str(folder / "temp"), **more,
        }  # fmt: skip
        for name in ("MAKEFLAGS", "MFLAGS", "PYTHONPATH"):
            self.environment.pop(name, None)
        self.printed = ""

    def run(self) -> int:
        """Runs the steps with commands until one fails; returns its exit code, or 0."""
        for step in self._steps:
            if "run" in step:
                files = {name: self.folder / f"{name}.{step.get('id', '')}" for name in ("GITHUB_OUTPUT", "GITHUB_ENV")}
                paths = {**files, "GITHUB_STEP_SUMMARY": self.folder / "summary.md"}
                environment = {**self.environment, **{name: str(path) for name, path in paths.items()}}
                done = subprocess.run(
                    [*SHELL, step["run"]],
                    cwd=self.workspace,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.printed += done.stdout + done.stderr
                if done.returncode:
                    return done.returncode
                if files["GITHUB_ENV"].exists():
                    self.environment |= dict(re.findall(r"^(\w+)=(.*)$", files["GITHUB_ENV"].read_text(), re.MULTILINE))
        return 0

    @property
    def summary(self) -> str:
        return (self.folder / "summary.md").read_text()

    @property
    def reported(self) -> dict[str, Any]:
        """What Classroom's reporter is given."""
        (encoded,) = re.findall(r"^result=(.*)$", (self.folder / "GITHUB_OUTPUT.lab").read_text(), re.MULTILINE)
        return json.loads(base64.b64decode(encoded))

    @property
    def results(self) -> dict[str, Any]:
        return json.loads((self.folder / "temp/results.json").read_text())
