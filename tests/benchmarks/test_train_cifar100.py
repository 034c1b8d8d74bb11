"""Tests of the benchmark train_cifar100, run on the solutions: that it is reproducible and survives kill -9, what it
reads and what it refuses.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

from tests.benchmarks.program_test import slow
from tests.harness.test_launch import environment, free_port
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
CURVES = ("train loss", "train accuracy", "validation loss", "validation accuracy")


@unittest.skipUnless(BUILT, f"skipped: {BUILD} lacks train_cifar100 or its stages")
class ProgramTest(unittest.TestCase):
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


class Training(ProgramTest):
    @slow
    def test_both_implementations_train_alike(self) -> None:
        document = self.run_well(*TINY, "--num-seeds=2", "--seed=7", "--world-size=3")
        found = curves(document)
        self.assertEqual(len(found), 2 * 2 * len(CURVES))
        for seed in ("7", "8"):
            for curve in CURVES:
                own, peer = (found[impl, seed, curve] for impl in ("selfmade", "pytorch"))
                self.assertEqual(len(own), EPOCHS)
                for one, other in zip(own, peer):
                    self.assertAlmostEqual(one, other, delta=1e-3, msg=f"{curve}, seed {seed}")
        self.assertNotEqual(found["selfmade", "7", "train loss"], found["selfmade", "8", "train loss"])
        for series in document["series"]:
            if "rank" in series["labels"]:
                self.assertEqual(len(series["values"]), 1 if series["unit"] == "bytes" else EPOCHS)
                self.assertGreater(min(series["values"]), 0)
        self.assertEqual(len(document["series"]), 2 * 2 * (len(CURVES) + 3 * 3))
        # Each of the 13 images is validated once, so accuracies are thirteenths.
        for accuracy in found["selfmade", "7", "validation accuracy"]:
            self.assertAlmostEqual(13 * accuracy, round(13 * accuracy), delta=1e-9)
        self.assertEqual(document["parameters"]["data"], "synthetic")
        self.assertEqual(self.output.count("synthetic, epoch"), 2 * 2 * EPOCHS)
        self.assert_drawn()

    def assert_drawn(self) -> None:
        """The result has everything that the figure and tables need."""
        python = toolchain.load().figure_python
        if subprocess.run([python, "-c", "import matplotlib, tabulate"], capture_output=True, check=False).returncode:
            self.skipTest("no Python with matplotlib and tabulate")
        for module, files in (("plots.train_cifar100", 2), ("tables.train_cifar100", 4)):
            out = self.folder / module
            command = [python, "-m", f"figures.{module}", "--data", self.result, "--out", out]
            ended = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=SECONDS, check=False)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertEqual(len(list(out.iterdir())), files)

    def test_one_seed_gives_the_same_bits_in_every_run_however_gradients_are_averaged(self) -> None:
        first = curves(self.run_well(*TINY))
        self.assertEqual(curves(self.run_well(*TINY)), first)
        for ddp in ("naive", "flat", "overlapped"):
            other = curves(self.run_well(*TINY, "--distributed-impl=selfmade", f"--ddp={ddp}"))
            for labels, values in other.items():
                for one, expected in zip(values, first[labels]):
                    self.assertAlmostEqual(one, expected, delta=1e-3, msg=f"{ddp}, {labels}")

    def test_one_big_batch_and_accumulated_ones_see_the_same_images(self) -> None:
        """They differ only in the statistics of batch normalization, and only slightly in the first epoch."""
        flags = ("--num-epochs=1", "--train-size=64", "--distributed-impl=selfmade", "--learning-rate=1e-9")
        losses = []
        for size, steps in ((16, 2), (32, 1)):
            found = curves(self.run_well(*TINY, *flags, f"--batch-size={size}", f"--grad-accum-steps={steps}"))
            losses.append(found["selfmade", "0", "validation loss"][0])
        self.assertAlmostEqual(*losses, delta=0.3)

    def test_launched_ranks_train_too(self) -> None:
        document = self.run_well(
            *TINY, RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port()
        )  # fmt: skip
        self.assertEqual(document["provenance"]["world_size"], 1)


class Resumed(ProgramTest):
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
            self.assert_refused([f"{file} {problem}", "delete it, or leave out --resume"], *TINY, "--resume")
            self.assertEqual(file.read_bytes(), content)
        file.write_bytes(whole)
        foreign = f'{file} was made by a run with "learning_rate: 0.03", and this one has "learning_rate: 0.5"'
        self.assert_refused([foreign], *TINY, "--resume", "--learning-rate=0.5")
        foreign = 'was made by a run with "data: synthetic", and this one has "data: CIFAR-100"'
        self.assert_refused([foreign], *TINY, "--resume", f"--data={write_cifar(self.folder / 'zeros')}")
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


class Data(ProgramTest):
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
                self.assert_refused([f"{file}: {problem}"], *TINY, f"--data={self.cifar}")
                self.assertEqual(self.errors.count("\n"), 1, self.errors)
        self.assert_refused(["has neither train.bin nor cifar-100-binary/train.bin"], *TINY, f"--data={self.folder}")

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


class Refusals(ProgramTest):
    def test_names_the_stages_that_are_unfinished(self) -> None:
        message = "unfinished in assignments/: 03_bucketed_ddp 04_sync_batch_norm"
        self.assert_refused([message], *TINY, code=UNFINISHED, impl="assignments")
        message = "unfinished in assignments/: 01_naive_ddp 04_sync_batch_norm"
        self.assert_refused([message], *TINY, "--ddp=flat", code=UNFINISHED, impl="assignments")
        found = curves(self.run_well(*TINY, "--distributed-impl=pytorch", impl="assignments"))
        self.assertEqual({labels[0] for labels in found}, {"pytorch"})

    def test_paper_needs_its_hardware(self) -> None:
        self.assert_refused(['2 GPUs named "RTX A4000"'], "--preset=paper", "--device=cpu", code=REFUSED)

    def test_bad_flags_and_places(self) -> None:
        for flag in ("--num-epochs=0", "--train-size=50001", "--distributed-impl=other", "--ddp=x", "--num-seeds=-1"):
            ended = self.start(*TINY, flag)
            self.assertNotIn(ended.returncode, (0, UNFINISHED, REFUSED), flag)
            self.assertIn(flag.split("=")[0], ended.stderr)
        (self.folder / "file").touch()
        self.result = self.folder / "file" / "result.json"
        ended = self.start(*TINY)
        self.assertEqual((ended.returncode, ended.stderr.count("\n")), (1, 1), ended.stderr)
        self.assertIn("choose another place with --output", ended.stderr)


if __name__ == "__main__":
    unittest.main()
