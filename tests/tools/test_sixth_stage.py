"""A stage is a folder: one more, the first by another name, is added to a copy of the checkout by adding folders only,
and is built and graded. Builds the lab's library anew, which takes a minute."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.setup import toolchain
from tools.setup.toolchain import ROOT

FIRST, STAGE = "01_naive_ddp", "99_naive_ddp"


@pytest.mark.slow
def test_a_stage_is_graded_by_adding_folders(tmp_path: Path) -> None:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if not name or not (ROOT / name).is_file():
            continue
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
        if FIRST in name:
            copy = tmp_path / name.replace(FIRST, STAGE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = (ROOT / name).read_text().replace(FIRST, STAGE)
            copy.write_text(text.replace('"number": "01"', '"number": "99"'))

    def run(*command: str, code: int = 0) -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1800, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    tools = toolchain.load()
    given = f"PYTHON={tools.python}" if tools.python else f"LIBTORCH={tools.libtorch}"
    stub = run("make", "test", "STAGE=99", given, code=2)
    assert re.search(rf"assignments/{STAGE}/naive_ddp\.cpp:\d+", stub) and "TODO line" in stub
    assert "Total  0 / 15 points" in stub
    solution = run("make", "test", "STAGE=99", "IMPL=solutions")
    assert "Total  15 / 15 points" in solution and "99 naive DDP" in solution
