"""What the tests of the benchmark train_cifar100 share: they run it on the solutions, with little data."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

from tests.benchmarks.program_test import BUILD, SHARED_MEMORY, ProgramTest
from tests.harness.test_launch import environment

RECORD, TRAIN, TEST = 3074, 50_000, 10_000
EPOCHS = 3
# 13 images are validated in unequal shares; 2 ranks train with 9 images each, in 4 + 4 + 1.
TINY = ("--train-size=17", "--test-size=13", f"--num-epochs={EPOCHS}", "--batch-size=4", "--grad-accum-steps=2",
        "--num-seeds=1", *SHARED_MEMORY)  # fmt: skip
CURVES = ("running loss", "batch accuracy", "validation loss", "validation accuracy")


class CifarTest(ProgramTest):
    program = "train_cifar100"
    stages = ("01_naive_ddp", "02_overlapped_ddp", "03_bucketed_ddp", "04_sync_batch_norm")

    def command(self, *flags: object, impl: str = "solutions") -> list[object]:
        # If a flag is given twice, the last one counts.
        last = {str(flag).split("=")[0]: flag for flag in (f"--output={self.result}", *flags)}
        return [BUILD / "bin" / self.program, f"--impl={impl}", *last.values()]

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
