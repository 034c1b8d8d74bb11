"""Tests of launch(): the real torchrun, and its variables, around build/bin/hello_ranks."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

import pytest

from tools.setup import toolchain

PROGRAM = Path(os.environ.get("DDP_LAB_HELLO_RANKS", toolchain.BUILD_DIR / "bin" / "hello_ranks"))
LAUNCHER_VARIABLES = re.compile(r"TORCHELASTIC_|(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT)$")
SECONDS = 60


def environment(**variables: object) -> dict[str, str]:
    """This process's environment, with only these of the launchers' variables."""
    kept = {name: value for name, value in os.environ.items() if not LAUNCHER_VARIABLES.match(name)}
    return kept | {name: str(value) for name, value in variables.items()}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(**variables: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PROGRAM], env=environment(**variables), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code and output; a process that hangs is killed."""
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        output += "\nstill ran after a minute"
    return process.returncode, output


def hello(world_size: int) -> list[str]:
    total = world_size * (world_size + 1) // 2
    return [f"rank {rank} of {world_size}: the sum of rank + 1 is {total}" for rank in range(world_size)]


@pytest.mark.builds("hello_ranks")
class Launch(unittest.TestCase):
    def test_forks_without_a_launcher(self) -> None:
        command = [PROGRAM, "--world-size", "3"]
        done = subprocess.run(command, env=environment(), text=True, capture_output=True, timeout=SECONDS)
        self.assertEqual(sorted(done.stdout.splitlines()), hello(3), done.stderr)
        self.assertEqual(done.returncode, 0)

    def test_runs_under_torchrun(self) -> None:
        python = os.environ.get("DDP_LAB_PYTHON") or toolchain.load().python
        if not python:
            self.skipTest("skipped: torchrun comes with a Python's torch, not with LIBTORCH=")
        if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode:
            self.skipTest(
                "skipped: .venv has torch for C++ on the CPU alone; make setup DEVICE=all adds torchrun's rest"
            )
        torchrun = [python, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node=2"]
        done = subprocess.run(
            [*torchrun, PROGRAM], env=environment(), text=True, capture_output=True, timeout=3 * SECONDS
        )
        self.assertEqual(sorted(done.stdout.splitlines()), hello(2), done.stderr)
        self.assertEqual(done.returncode, 0)

    def test_names_a_variable_that_is_missing(self) -> None:
        code, output = finish(start(RANK=0, WORLD_SIZE=2))
        self.assertIn("no MASTER_ADDR", output)
        self.assertEqual(len(output.splitlines()), 1, output)
        self.assertEqual(code, 1)

    def test_says_that_the_port_is_taken(self) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            code, output = finish(start(RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port))
        self.assertIn(f"cannot keep the ranks' store at 127.0.0.1:{port}", output)
        self.assertEqual(code, 1)
