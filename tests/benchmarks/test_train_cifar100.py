"""Tests of the benchmark train_cifar100: that it trains as published, reproducibly, and what it refuses."""

from __future__ import annotations

import math
import re

from tests.benchmarks.cifar100_test import CURVES, EPOCHS, TINY, CifarTest, curves
from tests.benchmarks.program_test import REFUSED, UNFINISHED, slow
from tests.harness.test_launch import free_port


class Training(CifarTest):
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
        self.assertNotEqual(found["selfmade", "7", "running loss"], found["selfmade", "8", "running loss"])
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
        self.assert_drawn("tables.train_cifar100", files=4)

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

    def test_gradients_of_micro_batches_add_up_undivided(self) -> None:
        """Steps half as often, with gradients twice as large, come to nearly the same; half the rate does not."""
        flags = ("--train-size=128", "--test-size=100", "--batch-size=8", "--distributed-impl=selfmade")
        once, twice, slow = (
            curves(self.run_well(*TINY, *flags, f"--grad-accum-steps={steps}", f"--learning-rate={rate}"))[
                "selfmade", "0", "validation loss"
            ][-1]
            for steps, rate in ((1, 0.01), (2, 0.01), (1, 0.005))
        )
        self.assertLess(2 * abs(twice - once), slow - once)

    def test_a_step_is_taken_only_after_all_its_micro_batches(self) -> None:
        """What an epoch leaves over makes no step of its own: without steps, the learning rate is of no effect."""
        flags = (*TINY, "--grad-accum-steps=4")  # epochs have 3
        first, second = (curves(self.run_well(*flags, f"--learning-rate={rate}")) for rate in (0.01, 10))
        self.assertEqual(first, second)

    def test_prints_loss_and_accuracy_when_the_published_program_does(self) -> None:
        """In micro-batches 1 and 17 of each epoch's 18, the losses so far divided by 18."""
        flags = ("--train-size=72", "--batch-size=2", "--learning-rate=1e-9", "--distributed-impl=selfmade")
        document = self.run_well(*TINY, *flags)
        lines = re.findall(r"^loss: (\d+\.\d{4}), acc: (\S+)$", self.output, re.MULTILINE)
        self.assertEqual(len(lines), 2 * EPOCHS + 1)
        self.assertEqual(lines[-1], lines[-2])  # below the table
        first, last = (float(loss) for loss, _ in lines[:2])
        self.assertAlmostEqual(18 * first, math.log(100), delta=2)  # an untrained network's
        self.assertGreater(last, 10 * first)
        found = curves(document)
        for epoch in range(EPOCHS):
            loss, accuracy = lines[2 * epoch + 1]
            self.assertAlmostEqual(found["selfmade", "0", "running loss"][epoch], float(loss), delta=6e-5)
            self.assertEqual(found["selfmade", "0", "batch accuracy"][epoch], float(accuracy))
            self.assertIn(float(accuracy), (0, 0.5, 1))
        (table,) = re.findall(r"\nSelfmade distributed training.*\n\| Rank .*\n\|-.*\n((?:\|.*\n)+)loss: ", self.output)
        for rank, line in enumerate(table.splitlines()):
            self.assertRegex(line, rf"^\| {rank}    \| \d+\.\d{{3}} seconds \| [1-9]\d+ bytes \|$")

    def test_launched_ranks_train_too(self) -> None:
        document = self.run_well(
            *TINY, "--train-size=18", RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port()
        )  # fmt: skip
        self.assertEqual(document["provenance"]["world_size"], 1)


class Refusals(CifarTest):
    def test_names_the_stages_that_are_unfinished(self) -> None:
        message = "unfinished in assignments/: 03_bucketed_ddp 04_sync_batch_norm"
        self.assert_refused(message, *TINY, code=UNFINISHED, impl="assignments")
        message = "unfinished in assignments/: 01_naive_ddp 04_sync_batch_norm"
        self.assert_refused(message, *TINY, "--ddp=flat", code=UNFINISHED, impl="assignments")
        found = curves(self.run_well(*TINY, "--distributed-impl=pytorch", impl="assignments"))
        self.assertEqual({labels[0] for labels in found}, {"pytorch"})

    def test_a_single_rank_cannot_normalize_one_image(self) -> None:
        message = "--train-size 17 in batches of --batch-size 4 ends with a batch of one image"
        self.assert_refused(message, *TINY, "--world-size=1")

    def test_paper_needs_its_hardware(self) -> None:
        self.assert_paper_needs('2 GPUs named "RTX A4000"')

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
