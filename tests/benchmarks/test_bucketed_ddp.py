"""Tests of the benchmarks bucketed_ddp and bucket_overhead, run on the solutions: what they measure, what they refuse,
and that their figures and tables can be made from it.
"""

from __future__ import annotations

import json
import re

from tests.benchmarks.program_test import REFUSED, SHARED_MEMORY, UNFINISHED, ProgramTest, slow
from tests.harness.test_launch import free_port

UNBUCKETED = ("naive", "flat", "overlapped", "Reducer", "compute only")
XL_LAYERS, XL_WIDTH, VOCABULARY = 48, 1600, 10_000
MB = 1 << 20


def weights(layers: int, width: int, vocabulary: int) -> list[int]:
    """The elements of each of a transformer's parameters, in their order."""
    layer = [width * width] * 4 + [4 * width * width] * 3 + [width] * 2
    return [vocabulary * width, *layer * layers, width, vocabulary * width]


def buckets(parameters: list[int], cap_bytes: int) -> int:
    """How many buckets stage 03 makes: from the last parameter on, a bucket is closed once it reaches the cap."""
    count, filled = 0, 0
    for elements in reversed(parameters):
        filled += 4 * elements
        if filled >= cap_bytes:
            count, filled = count + 1, 0
    return count + (filled > 0)


class BucketedDdp(ProgramTest):
    program = "bucketed_ddp"
    stage = "03_bucketed_ddp"
    flags = SHARED_MEMORY
    tiny = ("--batch-sizes=1", "--sequence-lengths=4,8", "--bucket-mb=100,1000", "--repetitions=2", "--warmup=1")

    def test_measures_each_cell_in_all_ways(self) -> None:
        document = self.run_well(*self.tiny)
        ways = [("bucketed", 100), ("bucketed", 1000), *((variant, None) for variant in UNBUCKETED)]
        found = [
            (one["labels"]["seq_len"], one["labels"]["variant"], one["labels"].get("bucket_size_mb"),
             one["labels"]["part"], one["labels"]["rank"])
            for one in document["series"]
        ]  # fmt: skip
        parts = ("train", "backward", "all-reduce")
        expected = [(n, *way, part, rank) for n in (4, 8) for way in ways for part in parts for rank in (0, 1)]
        self.assertEqual(found, expected)
        for one in document["series"]:
            self.assertEqual((one["unit"], len(one["values"]), one["labels"]["local_bs"]), ("s", 2, 1))
            self.assertGreaterEqual(min(one["values"]), 0)
        for train in self.series(document, part="train"):
            labels = {**train["labels"], "part": "all-reduce"}
            (reduce,) = (one for one in document["series"] if one["labels"] == labels)
            self.assertTrue(all(part < whole for part, whole in zip(reduce["values"], train["values"])), labels)
        self.assert_lines(2 * len(ways))
        self.assert_drawn("plots.bucketed_ddp", "tables.bucketed_ddp")

    def assert_lines(self, trainings: int) -> None:
        """The published form, with CPU tensors."""
        number = r"tensor\(\[-?\d[\d.e-]*\]\)\n"
        bucketed = (
            r"Training DDP model, local_bs: 1, seq_len: \d, bucket_size_mb: 100 \(of xl's gradients; "
            r"here 42103 bytes\)\n"
            rf"total time train: {number}total time grad all reduce: {number}"
            rf"ratio grad all reduce to train time: {number}"
        )
        self.assertEqual(len(re.findall(bucketed, self.output)), 2, self.output)
        self.assertEqual(self.output.count("Training DDP model, "), trainings)
        self.assertEqual(self.output.count("seq_len: 8, variant: compute only\n"), 1)

    def test_caps_cut_the_reduced_model_as_they_cut_xl(self) -> None:
        document = self.run_well("--batch-sizes=1", "--sequence-lengths=2", "--repetitions=1", "--warmup=0")
        xl, reduced = weights(XL_LAYERS, XL_WIDTH, VOCABULARY), weights(XL_LAYERS, XL_WIDTH // 50, VOCABULARY // 50)
        self.assertEqual(document["parameters"]["parameters"], sum(reduced))
        counts = []
        for megabytes in (1, 10, 100, 1000):
            (one,) = self.series(document, bucket_size_mb=megabytes, part="train", rank=0)
            cap = one["labels"]["cap_bytes"]
            self.assertAlmostEqual(cap / (4 * sum(reduced)), megabytes * MB / (4 * sum(xl)), delta=1e-6)
            self.assertEqual(one["labels"]["buckets"], buckets(reduced, cap))
            self.assertEqual(one["labels"]["buckets"], buckets(xl, megabytes * MB))
            counts.append(one["labels"]["buckets"])
        self.assertEqual(counts, sorted(set(counts), reverse=True), "caps collapse")
        self.assertGreater(counts[-1], 1)

    def test_a_bucket_size_is_a_threshold(self) -> None:
        """At what xl has 1 MB for, each of 338 buckets is larger, by up to 61 times."""
        trace = self.folder / "trace.json"
        document = self.run_well(
            "--model", "reduced", "--bucket-mb", 1, "--batch-sizes", 2, "--sequence-lengths", 16, "--repetitions", 1,
            "--warmup", 0, "--trace", trace,
        )  # fmt: skip
        ((cap, buckets),) = {
            (one["labels"]["cap_bytes"], one["labels"]["buckets"]) for one in self.series(document, variant="bucketed")
        }
        self.assertEqual(buckets, 338)
        spans = [one for one in json.loads(trace.read_text())["traceEvents"] if one["pid"] == 1 and one["ph"] == "X"]
        reduced = [one["args"] for one in spans if one["name"].startswith("all-reduce")]
        sizes = [one["bytes"] for one in sorted(reduced, key=lambda one: one["launched"])]
        steps = [sizes[first : first + buckets] for first in range(len(sizes) - buckets + 1)]
        whole = [step for step in steps if sum(step) == 4 * document["parameters"]["parameters"] and min(step) > cap]
        self.assertGreater(len(whole), 0)
        self.assertEqual((round(min(whole[0]) / cap, 1), round(max(whole[0]) / cap)), (9.7, 61))

    @slow
    def test_one_after_the_other_has_the_same_form(self) -> None:
        flags = ("--batch-sizes=1", "--sequence-lengths=4", "--bucket-mb=100", "--repetitions=1", "--warmup=1")
        turns, alone = (self.run_well(*flags, order) for order in ("--interleaved", "--sequential"))
        self.assertEqual(*([one["labels"] for one in document["series"]] for document in (turns, alone)))

    @slow
    def test_goes_on_where_it_was_stopped(self) -> None:
        flags = ("--batch-sizes=1", "--sequence-lengths=2,4", "--bucket-mb=1000", "--repetitions=2", "--warmup=0")
        self.resume(1, *flags)
        self.resume(2, *flags, "--sequential")

    @slow
    def test_does_not_go_on_with_something_else(self) -> None:
        flags = ("--batch-sizes=1", "--sequence-lengths=2,3,4", "--bucket-mb=1000", "--warmup=0")
        three, four = ((*flags, f"--repetitions={count}") for count in (3, 4))
        self.assert_not_resumed_otherwise(three, four, "was measured with repetitions 3")

    def test_launched_ranks(self) -> None:
        launched = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        document = self.run_well(*self.tiny, **launched)
        self.assertEqual({one["labels"]["rank"] for one in document["series"]}, {0})

    def test_presets(self) -> None:
        self.assert_presets_are_described("--resume", "--model reduced", "--sequence-lengths 128,256,512")
        self.assert_paper_needs("2 GPUs")

    def test_memory_is_checked_before_it_is_taken(self) -> None:
        ended = self.start("--preset", "full", "--world-size", 32)  # 1.3 TB
        self.assertEqual((ended.returncode, ended.stdout), (REFUSED, ""), ended.stderr)
        self.assertRegex(
            ended.stderr,
            r"\Atraining xl takes at least 1278\.9 GB of memory \(ranks here: 32, models of each: 1; "
            r"weights, gradients, "
            r"AdamW's state and buckets\), and there are [\d.]+ GB; choose a smaller --model\n\Z",
        )

    def test_refusals(self) -> None:
        self.assert_refused(
            "none of the variants that are code of assignments/ is finished", *self.tiny, code=UNFINISHED,
            impl="assignments",
        )  # fmt: skip
        for flag in ("--bucket-mb=0", "--batch-sizes=many", "--sequence-lengths=0", "--model=huge"):
            ended = self.start(flag)
            self.assertEqual(ended.returncode, 105, ended.stderr)
            self.assertIn(flag.partition("=")[0], ended.stderr)
        self.assert_output_is_checked(*self.tiny)


class BucketOverhead(ProgramTest):
    program = "bucket_overhead"
    stage = "03_bucketed_ddp"
    flags = SHARED_MEMORY
    tiny = ("--caps=3", "--sequence-length=4", "--repetitions=2", "--warmup=1")

    def test_measures_link_steps_and_simulation(self) -> None:
        document = self.run_well(*self.tiny)
        values = document["parameters"]
        gradients = 4 * sum(weights(XL_LAYERS, XL_WIDTH // 50, VOCABULARY // 50))
        self.assertEqual(values["gradient_bytes"], gradients)
        best = (gradients * values["bandwidth_bytes_per_s"] * values["overhead_s"]) ** 0.5
        self.assertAlmostEqual(values["best_cap_bytes"] / best, 1)
        caps = [gradients // 4, gradients // 2, gradients]
        for quantity in ("step", "simulated overhead"):
            found = [one["labels"].get("cap_bytes") for one in self.series(document, quantity=quantity)]
            self.assertEqual([cap for cap in found if cap], caps)
        sizes = [one["labels"]["bytes"] for one in self.series(document, quantity="message")]
        self.assertEqual(sizes, [*(64 * 4**i for i in range(8)), gradients])
        # With one bucket nothing overlaps: a launch, and all bytes.
        (whole,) = self.series(document, quantity="simulated overhead", cap_bytes=gradients)
        formula = values["overhead_s"] + gradients / values["bandwidth_bytes_per_s"]
        self.assertAlmostEqual(whole["values"][0], formula, delta=1e-6)
        self.assert_drawn()

    def test_refusals(self) -> None:
        self.assert_refused("is finished, so there is nothing", *self.tiny, code=UNFINISHED, impl="assignments")
        self.assert_refused("one rank has nothing to reduce", *self.tiny, "--world-size", 1)
        self.assertEqual(self.start("--caps=1").returncode, 105)
        self.assert_paper_needs("2 GPUs")
        self.assert_output_is_checked(*self.tiny)
