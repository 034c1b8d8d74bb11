"""Tests of the benchmark train_cifar100's files: that it survives kill -9, and what it reads."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
from pathlib import Path

from tests.benchmarks.cifar100_test import EPOCHS, RECORD, TEST, TINY, TRAIN, CifarTest, curves
from tests.benchmarks.program_test import SECONDS, slow
from tests.harness.test_launch import environment


class Resumed(CifarTest):
    @slow
    def test_killed_again_and_again_it_ends_as_a_whole_run_does(self) -> None:
        expected = self.run_well(*TINY)
        self.result.unlink()
        kills = 0
        # Two epochs: one more than the first checkpoint, so that each run makes progress.
        while self.kill_after(2, *TINY, "--resume"):
            kills += 1
            self.assertLess(kills, 20)
        self.assertGreaterEqual(kills, 2)
        resumed = json.loads(self.result.read_text())
        self.assertEqual(curves(resumed), curves(expected))
        self.assertEqual(
            [one["labels"] for one in resumed["series"]], [one["labels"] for one in expected["series"]]
        )  # fmt: skip
        # A run that is killed while writing leaves the beginning of a file, under a temporary name.
        left = {
            file.name for file in self.folder.iterdir() if re.search(r"result.*(json|partial|checkpoint)$", file.name)
        }
        self.assertEqual(left, {"result.json"})

    @slow
    def test_killed_at_30_random_moments_it_ends_as_a_whole_run_does(self) -> None:
        flags = (*TINY, "--num-epochs=20")
        expected = curves(self.run_well(*flags))
        self.result.unlink()
        seed = random.randrange(10**6)
        chance, kills = random.Random(seed), 0
        while kills < 30:
            process = subprocess.Popen(
                self.command(*flags, "--resume"), cwd=self.folder, env=environment(), text=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
            try:
                self.assertEqual((process.wait(chance.uniform(0, 0.8)), seed), (0, seed))
                break  # a fast machine
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                kills += 1
            finally:
                self.assertEqual(process.communicate()[1], "", f"seed {seed}")
        self.assertEqual(curves(self.run_well(*flags, "--resume")), expected, f"seed {seed}")

    def test_without_resume_it_begins_anew(self) -> None:
        self.kill_after(2, *TINY)
        self.assertTrue(list(self.folder.glob("result.json.*.checkpoint")))
        self.run_well(*TINY)
        self.assertIn(f"epoch 1 of {EPOCHS}", self.output)
        self.assertFalse(list(self.folder.glob("result.json.*")))

    @slow
    def test_refuses_checkpoints_that_are_not_this_runs(self) -> None:
        self.assertTrue(self.kill_after(2, *TINY))
        (file,) = self.folder.glob("*.checkpoint")
        whole = file.read_bytes()
        broken = bytearray(whole)
        broken[len(broken) // 2] ^= 1
        for content, problem in (
            (whole[: len(whole) // 2], "is truncated or corrupt"),
            (b"", "is no checkpoint of this program"),
            (b"PK" + whole, "is no checkpoint of this program"),
            (bytes(broken), "is corrupt: its checksum"),
        ):
            file.write_bytes(content)
            self.assert_refused(f"{file} {problem}", *TINY, "--resume")
            self.assertIn("delete it, or leave out --resume", self.errors)
            self.assertEqual(file.read_bytes(), content)
        file.write_bytes(whole)
        foreign = f'{file} was made by a run with "learning_rate: 0.01", and this one has "learning_rate: 0.5"'
        self.assert_refused(foreign, *TINY, "--resume", "--learning-rate=0.5")
        foreign = 'was made by a run with "data: synthetic", and this one has "data: CIFAR-100"'
        self.assert_refused(foreign, *TINY, "--resume", f"--data={write_cifar(self.folder / 'zeros')}")
        self.assertEqual(file.read_bytes(), whole)


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

    def test_names_file_and_byte_of_what_is_wrong(self) -> None:
        train, test = self.cifar / "train.bin", self.cifar / "test.bin"
        for file, change, problem in (
            (train, lambda: self.write("train.bin", RECORD, b"\x14"), "byte 3,075: the coarse label 20 of record 2"),
            (train, lambda: self.write("train.bin", RECORD, b"\0\xcb"), "byte 3,076: the fine label 203 of record 2"),
            (train, lambda: os.truncate(train, 36_900), "ends inside record 13, at byte 36,900"),
            (train, lambda: os.truncate(train, 3 * RECORD), "ends after record 3, at byte 9,222"),
            (test, lambda: self.write("test.bin", TEST * RECORD, b"\0"), "goes on after byte 30,740,000"),
            (test, lambda: os.truncate(test, 0), "is empty"),
            (test, test.unlink, "there is no such file"),
        ):  # fmt: skip
            with self.subTest(problem):
                shutil.rmtree(self.cifar)
                write_cifar(self.cifar)
                change()
                self.assert_refused(f"{file}: {problem}", *TINY, f"--data={self.cifar}")
                self.assertEqual(self.errors.count("\n"), 1, self.errors)
        self.assert_refused("has neither train.bin nor cifar-100-binary/train.bin", *TINY, f"--data={self.folder}")

    def test_generated_images_are_cached_and_mended(self) -> None:
        runs = [self.command(*TINY, f"--output={self.folder / name}") for name in ("a.json", "b.json")]
        both = [subprocess.Popen(run, cwd=self.folder, env=environment(), stdout=subprocess.DEVNULL) for run in runs]
        self.assertEqual([process.wait(SECONDS) for process in both], [0, 0])
        first, second = (json.loads((self.folder / name).read_text()) for name in ("a.json", "b.json"))
        self.assertEqual(curves(first), curves(second))
        (folder,) = self.folder.glob("synthetic_cifar100.*")
        self.assertEqual(sorted(file.name for file in folder.iterdir()), ["test.bin", "train.bin"])
        self.assertEqual((folder / "train.bin").stat().st_size, 17 * RECORD)
        before = (folder / "train.bin").read_bytes()
        os.truncate(folder / "train.bin", 5000)
        self.run_well(*TINY)
        self.assertEqual((folder / "train.bin").read_bytes(), before)
