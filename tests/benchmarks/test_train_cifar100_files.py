"""Tests of the benchmark train_cifar100's files: that it goes on after kill -9, and what it reads."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

from tests.benchmarks.cifar100_test import EPOCHS, RECORD, TEST, TINY, TRAIN, CifarTest, curves
from tests.benchmarks.program_test import slow


class Resumed(CifarTest):
    @slow
    def test_killed_again_and_again_it_ends_as_a_whole_run_does(self) -> None:
        flags = (*TINY, "--num-seeds=2")
        expected = self.run_well(*flags)
        self.result.unlink()
        kills = 0
        while self.kill_after(EPOCHS + 1, *flags, "--resume"):  # one training is complete by then
            kills += 1
            self.assertLess(kills, 5)
        self.assertGreaterEqual(kills, 2)
        resumed = json.loads(self.result.read_text())
        self.assertEqual(curves(resumed), curves(expected))
        self.assertEqual([one["labels"] for one in resumed["series"]], [one["labels"] for one in expected["series"]])

    def test_without_resume_it_begins_anew(self) -> None:
        self.kill_after(EPOCHS + 1, *TINY)
        self.run_well(*TINY)
        self.assertEqual(self.output.count(f"epoch 1 of {EPOCHS}"), 2)
        self.assertEqual([file.name for file in self.folder.glob("result.json*")], ["result.json"])


def write_cifar(folder: Path) -> Path:
    """Files of the right size, all of class 0: the first images noise, which training can do with, then black ones,
    sparse, so that they take no space.
    """
    folder.mkdir(parents=True)
    for name, records in (("train.bin", TRAIN), ("test.bin", TEST)):
        with open(folder / name, "wb") as file:
            for record in range(TRAIN // 1000):
                file.write(bytes(2) + random.Random(record).randbytes(RECORD - 2))
            file.truncate(records * RECORD)
    return folder


class Data(CifarTest):
    def setUp(self) -> None:
        super().setUp()
        self.cifar = write_cifar(self.folder / "cifar" / "cifar-100-binary")

    def write(self, name: str, place: int, content: bytes) -> None:
        with open(self.cifar / name, "r+b") as file:
            file.seek(place)
            file.write(content)

    def test_reads_the_binary_version(self) -> None:
        for record in range(TRAIN // 1000):
            self.write("train.bin", record * RECORD, bytes([19, 99]) + random.Random(record).randbytes(RECORD - 2))
        for folder in (self.cifar, self.cifar.parent):
            parameters = self.run_well(*TINY, f"--data={folder}")["parameters"]
            self.assertEqual((parameters["data"], parameters["classes"]), ("CIFAR-100", 100))
            self.assertNotIn("synthetic", self.output)

    def test_names_the_file_and_what_is_wrong(self) -> None:
        train, test = self.cifar / "train.bin", self.cifar / "test.bin"
        for file, change, problem in (
            (train, lambda: self.write("train.bin", RECORD, b"\x14"), "the coarse label 20 of record 2 is not in 0"),
            (train, lambda: self.write("train.bin", RECORD, b"\0\xcb"), "the fine label 203 of record 2 is not in 0"),
            (train, lambda: os.truncate(train, 36_900), "has 36900 bytes, and a whole file has 153700000"),
            (test, lambda: self.write("test.bin", TEST * RECORD, b"\0"), "has 30740001 bytes"),
            (test, test.unlink, "there is no such file"),
        ):  # fmt: skip
            with self.subTest(problem):
                shutil.rmtree(self.cifar)
                write_cifar(self.cifar)
                change()
                self.assert_refused(f"{file}: {problem}", *TINY, f"--data={self.cifar}")
                self.assertEqual(self.errors.count("\n"), 1, self.errors)
        self.assert_refused("has neither train.bin nor cifar-100-binary/train.bin", *TINY, f"--data={self.folder}")
