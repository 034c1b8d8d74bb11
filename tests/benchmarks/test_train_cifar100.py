"""Tests of the benchmark train_cifar100: that it trains as published, reproducibly, goes on after kill -9, what it
reads, and what it refuses.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.program_test import (
    AVERAGING,
    BUILD,
    SHARED_MEMORY,
    UNFINISHED,
    VALIDATION,
    MeasuringTest,
    ProgramTest,
    launched,
    slow,
)
from tests.harness.test_launch import environment

RECORD, TRAIN, TEST = 3074, 50_000, 10_000
EPOCHS = 3
# 13 images are validated in unequal shares; 2 ranks train with 9 images each, in 4 + 4 + 1.
TINY = ("--train-size=17", "--test-size=13", f"--num-epochs={EPOCHS}", "--batch-size=4", "--grad-accum-steps=2",
        "--num-seeds=1", *SHARED_MEMORY)  # fmt: skip
SELFMADE = "--distributed-impl=selfmade"
CURVES = ("running loss", "batch accuracy", "validation loss", "validation accuracy")
Curves = dict[tuple[str, ...], list[float]]


class CifarTest(ProgramTest):
    program, stages = "train_cifar100", (*AVERAGING, "04_sync_batch_norm")

    def command(self, *flags: object, impl: str = "solutions") -> list[object]:
        # If a flag is given twice, the last one counts.
        last = {str(flag).split("=")[0]: flag for flag in (f"--output={self.result}", *flags)}
        return [BUILD / "bin" / self.program, f"--impl={impl}", *last.values()]

    def curves(self, *flags: object, **variables: object) -> Curves:
        """Everything but times and memory of a tiny run with these flags."""
        self.document = self.run_well(*TINY, *flags, **variables)
        return self.curves_of(self.document)

    def curves_of(self, document: dict[str, Any]) -> Curves:
        return {tuple(map(str, one["labels"].values())): one["values"]
                for one in document["series"] if one["unit"] == "1"}  # fmt: skip


class TestTraining(CifarTest, MeasuringTest):
    tiny = TINY
    unfinished = "unfinished in assignments/: 03_bucketed_ddp 04_sync_batch_norm"
    paper = '2 GPUs named "RTX A4000"'
    described = ("4 epochs of 1,088 images",)

    @slow
    def test_both_implementations_train_alike(self) -> None:
        found = self.curves("--num-seeds=2", "--seed=7", "--world-size=3")
        assert len(found) == 2 * 2 * len(CURVES)
        for seed in ("7", "8"):
            for curve in CURVES:
                own, peer = (found[impl, seed, curve] for impl in ("selfmade", "pytorch"))
                assert len(own) == EPOCHS
                assert own == pytest.approx(peer, abs=1e-3), f"{curve}, seed {seed}"
        assert found["selfmade", "7", "running loss"] != found["selfmade", "8", "running loss"]
        assert len(self.document["series"]) == 2 * 2 * (len(CURVES) + 3 * 3)
        for one in self.document["series"]:
            if "rank" in one["labels"]:
                assert len(one["values"]) == (1 if one["unit"] == "bytes" else EPOCHS)
                assert min(one["values"]) > 0
        # Each of the 13 images is validated once, so accuracies are thirteenths.
        for accuracy in found["selfmade", "7", "validation accuracy"]:
            assert 13 * accuracy == pytest.approx(round(13 * accuracy), abs=1e-9)
        assert self.document["parameters"]["data"] == "synthetic"
        assert self.output.count("synthetic, epoch") == 2 * 2 * EPOCHS
        self.assert_drawn()
        self.assert_drawn("tables.train_cifar100", files=4)

    def test_one_seed_gives_the_same_bits_in_every_run_however_gradients_are_averaged(self) -> None:
        first = self.curves()
        assert self.curves() == first
        for ddp in ("naive", "flat", "overlapped"):
            for labels, values in self.curves(SELFMADE, f"--ddp={ddp}").items():
                assert values == pytest.approx(first[labels], abs=1e-3), f"{ddp}, {labels}"

    def test_one_big_batch_and_accumulated_ones_see_the_same_images(self) -> None:
        """They differ only in the statistics of batch normalization, and only slightly in the first epoch."""
        flags = ("--num-epochs=1", "--train-size=64", SELFMADE, "--learning-rate=1e-9")
        once, twice = (
            self.curves(*flags, f"--batch-size={size}", f"--grad-accum-steps={steps}")
            for size, steps in ((16, 2), (32, 1))
        )
        loss = ("selfmade", "0", "validation loss")
        assert once[loss][0] == pytest.approx(twice[loss][0], abs=0.3)

    def test_gradients_of_micro_batches_add_up_undivided(self) -> None:
        """Steps half as often, with gradients twice as large, come to nearly the same; half the rate does not."""
        flags = ("--train-size=128", "--test-size=100", "--batch-size=8", SELFMADE)
        once, twice, slow = (
            self.curves(*flags, f"--grad-accum-steps={steps}", f"--learning-rate={rate}")[
                "selfmade", "0", "validation loss"
            ][-1]
            for steps, rate in ((1, 0.01), (2, 0.01), (1, 0.005))
        )
        assert 2 * abs(twice - once) < slow - once

    def test_a_step_is_taken_only_after_all_its_micro_batches(self) -> None:
        """What an epoch leaves over makes no step of its own: without steps, the learning rate is of no effect."""
        flags = ("--grad-accum-steps=4",)  # epochs have 3
        assert self.curves(*flags, "--learning-rate=0.01") == self.curves(*flags, "--learning-rate=10")

    def test_prints_loss_and_accuracy_when_the_published_program_does(self) -> None:
        """In micro-batches 1 and 17 of each epoch's 18, the losses so far divided by 18."""
        found = self.curves("--train-size=72", "--batch-size=2", "--learning-rate=1e-9", SELFMADE)
        lines = re.findall(r"^loss: (\d+\.\d{4}), acc: (\S+)$", self.output, re.MULTILINE)
        assert len(lines) == 2 * EPOCHS + 1
        assert lines[-1] == lines[-2]  # below the table
        first, last = (float(loss) for loss, _ in lines[:2])
        assert 18 * first == pytest.approx(math.log(100), abs=2)  # an untrained network's
        assert last > 10 * first
        for epoch in range(EPOCHS):
            loss, accuracy = lines[2 * epoch + 1]
            assert found["selfmade", "0", "running loss"][epoch] == pytest.approx(float(loss), abs=6e-5)
            assert found["selfmade", "0", "batch accuracy"][epoch] == float(accuracy)
            assert float(accuracy) in (0, 0.5, 1)
        (table,) = re.findall(r"\nSelfmade distributed training.*\n\| Rank .*\n\|-.*\n((?:\|.*\n)+)loss: ", self.output)
        for rank, line in enumerate(table.splitlines()):
            assert re.match(rf"\| {rank}    \| \d+\.\d{{3}} seconds \| [1-9]\d+ bytes \|$", line)

    def test_launched_ranks_train_too(self) -> None:
        self.curves("--train-size=18", **launched())
        assert self.document["provenance"]["world_size"] == 1

    def test_pytorch_needs_no_stage_and_flat_needs_the_first(self) -> None:
        message = "unfinished in assignments/: 01_naive_ddp 04_sync_batch_norm"
        self.assert_refused(message, *TINY, "--ddp=flat", code=UNFINISHED, impl="assignments")
        found = self.curves("--distributed-impl=pytorch", impl="assignments")
        assert {labels[0] for labels in found} == {"pytorch"}

    def test_refuses_flags(self) -> None:
        message = "--train-size 17 in batches of --batch-size 4 ends with a batch of one image"
        self.assert_refused(message, *TINY, "--world-size=1")
        for flag in ("--num-epochs=0", "--train-size=50001", "--distributed-impl=other", "--ddp=x", "--num-seeds=-1"):
            self.assert_refused(flag.split("=")[0], *TINY, flag, code=VALIDATION)

    @slow
    def test_killed_again_and_again_it_ends_as_a_whole_run_does(self) -> None:
        expected = self.run_well(*TINY, "--num-seeds=2")
        self.result.unlink()
        kills = 0
        while self.kill_after(EPOCHS + 1, "--num-seeds=2", "--resume"):  # one training is complete by then
            kills += 1
            assert kills < 5
        assert kills >= 2
        resumed = json.loads(self.result.read_text())
        assert self.curves_of(resumed) == self.curves_of(expected)
        assert [one["labels"] for one in resumed["series"]] == [one["labels"] for one in expected["series"]]

    def test_without_resume_it_begins_anew(self) -> None:
        self.kill_after(EPOCHS + 1)
        self.run_well(*TINY)
        assert self.output.count(f"epoch 1 of {EPOCHS}") == 2
        assert [file.name for file in self.folder.glob("result.json*")] == ["result.json"]

    def kill_after(self, lines: int, *flags: object) -> bool:
        """Runs until this many epochs have been logged, then kill -9; false if it ended before."""
        # A pipe, since output to a file would arrive late.
        with subprocess.Popen(
            self.command(*TINY, *flags), cwd=self.folder, env=environment(), text=True, stdout=subprocess.PIPE
        ) as process:  # fmt: skip
            assert process.stdout
            for line in process.stdout:
                lines -= "epoch" in line and "left" in line
                if lines == 0:
                    process.send_signal(signal.SIGKILL)
                    break
            process.stdout.read()  # until the ranks have ended as well
            return process.wait() != 0


def images(record: int) -> bytes:
    return random.Random(record).randbytes(RECORD - 2)


class TestData(CifarTest):
    @pytest.fixture
    def cifar(self) -> Path:
        """Files of the right size, all of class 0: the first images noise, which training can do with, then black
        ones, sparse, so that they take no space.
        """
        folder = self.folder / "cifar" / "cifar-100-binary"
        folder.mkdir(parents=True)
        for name, records in (("train.bin", TRAIN), ("test.bin", TEST)):
            with open(folder / name, "wb") as file:
                for record in range(TRAIN // 1000):
                    file.write(bytes(2) + images(record))
                file.truncate(records * RECORD)
        return folder

    def write(self, file: Path, place: int, content: bytes) -> None:
        with open(file, "r+b") as stream:
            stream.seek(place)
            stream.write(content)

    def test_reads_the_binary_version(self, cifar: Path) -> None:
        for record in range(TRAIN // 1000):
            self.write(cifar / "train.bin", record * RECORD, bytes([19, 99]) + images(record))
        for folder in (cifar, cifar.parent):
            parameters = self.run_well(*TINY, f"--data={folder}")["parameters"]
            assert (parameters["data"], parameters["classes"]) == ("CIFAR-100", 100)
            assert "synthetic" not in self.output

    @pytest.mark.parametrize(
        ("name", "place", "content", "problem"),
        [
            ("train.bin", RECORD, b"\x14", "the coarse label 20 of record 2 is not in 0"),
            ("train.bin", RECORD, b"\0\xcb", "the fine label 203 of record 2 is not in 0"),
            ("test.bin", TEST * RECORD, b"\0", "has 30740001 bytes, and a whole file has 30740000"),
        ],
    )
    def test_names_the_file_and_what_is_wrong(
        self, cifar: Path, name: str, place: int, content: bytes, problem: str
    ) -> None:
        self.write(cifar / name, place, content)
        errors = self.assert_refused(f"{cifar / name}: {problem}", *TINY, f"--data={cifar}")
        assert errors.count("\n") == 1

    def test_names_a_file_that_is_not_whole_or_missing(self, cifar: Path) -> None:
        os.truncate(cifar / "train.bin", 36_900)
        self.assert_refused("has 36900 bytes, and a whole file has 153700000", *TINY, f"--data={cifar}")
        os.truncate(cifar / "train.bin", TRAIN * RECORD)
        (cifar / "test.bin").unlink()
        self.assert_refused(f"{cifar / 'test.bin'}: there is no such file", *TINY, f"--data={cifar}")
        self.assert_refused("has neither train.bin nor cifar-100-binary/train.bin", *TINY, f"--data={self.folder}")
