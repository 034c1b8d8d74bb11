"""What the tests of the benchmark train_cifar100 share: they run it on the solutions, with little data."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

from tests.harness.test_launch import environment
from tools.setup import toolchain

BUILD = toolchain.BUILD_DIR
PROGRAM = BUILD / "bin" / "train_cifar100"
STAGES = ("01_naive_ddp", "02_overlapped_ddp", "03_bucketed_ddp", "04_sync_batch_norm")
LIBRARIES = [
    BUILD / "stages" / impl / stage / "libstage.so" for impl in ("solutions", "assignments") for stage in STAGES
]  # fmt: skip
BUILT = all(file.exists() for file in (PROGRAM, *LIBRARIES))
UNFINISHED, REFUSED = 3, 4
SECONDS = 120
RECORD, TRAIN, TEST = 3074, 50_000, 10_000
EPOCHS = 3
# 13 images are validated in unequal shares; 2 ranks train with 9 images each, in 4 + 4 + 1.
TINY = ("--train-size=17", "--test-size=13", f"--num-epochs={EPOCHS}", "--batch-size=4", "--grad-accum-steps=2",
        "--num-seeds=1")  # fmt: skip
CURVES = ("running loss", "batch accuracy", "validation loss", "validation accuracy")


@unittest.skipUnless(BUILT, f"skipped: {BUILD} lacks train_cifar100 or its stages")
class CifarTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.result = self.folder / "result.json"

    def command(self, *flags: object, impl: str = "solutions") -> list[str]:
        # If a flag is given twice, the last one counts.
        last = {str(flag).split("=")[0]: str(flag) for flag in (f"--output={self.result}", *flags)}
        return [str(PROGRAM), f"--impl={impl}", *last.values()]

    def start(self, *flags: object, impl: str = "solutions", **variables: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*flags, impl=impl), cwd=self.folder, env=environment(**variables), text=True,
            capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    def run_well(self, *flags: object, impl: str = "solutions", **variables: object) -> dict[str, Any]:
        ended = self.start(*flags, impl=impl, **variables)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.output = ended.stdout
        return json.loads(self.result.read_text())

    def assert_refused(self, messages: list[str], *flags: object, code: int = 1, impl: str = "solutions") -> None:
        ended = self.start(*flags, impl=impl)
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        self.errors = ended.stderr
        for message in messages:
            self.assertIn(message, ended.stderr)
        self.assertFalse(self.result.exists())

    def kill_after(self, lines: int, *flags: object) -> bool:
        """Runs until this many epochs have been logged, then kill -9; false if it ended before."""
        command = self.command(*flags)
        # A pipe, since output to a file would arrive late.
        with subprocess.Popen(
            command, cwd=self.folder, env=environment(), text=True, stdout=subprocess.PIPE
        ) as process:  # fmt: skip
            assert process.stdout
            for line in process.stdout:
                lines -= "epoch" in line and "left" in line
                if lines == 0:
                    process.send_signal(signal.SIGKILL)
                    break
            process.stdout.read()  # until the ranks have ended as well
            return process.wait() != 0


def curves(document: dict[str, Any]) -> dict[tuple[str, ...], list[float]]:
    """Everything but times and memory."""
    return {
        tuple(map(str, one["labels"].values())): one["values"] for one in document["series"] if one["unit"] == "1"
    }  # fmt: skip
