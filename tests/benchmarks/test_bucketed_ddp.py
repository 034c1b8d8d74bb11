"""Tests of the benchmarks bucketed_ddp and bucket_overhead, run on the solutions: what they measure, what they refuse,
and that their figures and tables can be made from it.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.benchmarks.program_test import (
    REFUSED,
    SHARED_MEMORY,
    VALIDATION,
    MeasuringTest,
    launched,
    series,
    slow,
    values,
)

UNBUCKETED = ("naive", "flat", "overlapped", "Reducer", "compute only")
XL_LAYERS, XL_WIDTH, VOCABULARY = 48, 1600, 10_000
MB = 1 << 20
UNFINISHED = "none of the variants that are code of assignments/ is finished, so there is nothing"


def weights(layers: int, width: int, vocabulary: int) -> list[int]:
    """The elements of each of a transformer's parameters, in their order."""
    layer = [width * width] * 4 + [4 * width * width] * 3 + [width] * 2
    return [vocabulary * width, *layer * layers, width, vocabulary * width]


XL, REDUCED = weights(XL_LAYERS, XL_WIDTH, VOCABULARY), weights(XL_LAYERS, XL_WIDTH // 50, VOCABULARY // 50)


def buckets(parameters: list[int], cap_bytes: int) -> int:
    """How many buckets stage 03 makes: from the last parameter on, a bucket is closed once it reaches the cap."""
    count, filled = 0, 0
    for elements in reversed(parameters):
        filled += 4 * elements
        if filled >= cap_bytes:
            count, filled = count + 1, 0
    return count + (filled > 0)


class TestBucketedDdp(MeasuringTest):
    program, stage = "bucketed_ddp", "03_bucketed_ddp"
    flags = SHARED_MEMORY
    tiny = ("--batch-sizes=1", "--sequence-lengths=4,8", "--bucket-mb=100,1000", "--repetitions=2", "--warmup=1")
    unfinished = UNFINISHED
    paper = "2 GPUs"
    described = ("--resume", "--model reduced", "--sequence-lengths 128,256,512")

    def test_measures_each_cell_in_all_ways(self) -> None:
        document = self.run_well(*self.tiny)
        ways = [("bucketed", 100), ("bucketed", 1000), *((variant, None) for variant in UNBUCKETED)]
        names = ("seq_len", "variant", "bucket_size_mb", "part", "rank")
        found = [tuple(one["labels"].get(name) for name in names) for one in document["series"]]
        parts = ("train", "backward", "all-reduce")
        assert found == [(n, *way, part, rank) for n in (4, 8) for way in ways for part in parts for rank in (0, 1)]
        for one in document["series"]:
            assert (one["unit"], len(one["values"]), one["labels"]["local_bs"]) == ("s", 2, 1)
            assert min(one["values"]) >= 0
        for train in series(document, part="train"):
            (reduce,) = (
                one for one in document["series"] if one["labels"] == {**train["labels"], "part": "all-reduce"}
            )
            assert all(part < whole for part, whole in zip(reduce["values"], train["values"])), train["labels"]
        # The published form, with CPU tensors.
        number = r"tensor\(\[-?\d[\d.e-]*\]\)\n"
        bucketed = (
            r"Training DDP model, local_bs: 1, seq_len: \d, bucket_size_mb: 100 \(of xl's gradients; "
            r"here 42103 bytes\)\n"
            rf"total time train: {number}total time grad all reduce: {number}"
            rf"ratio grad all reduce to train time: {number}"
        )
        assert len(re.findall(bucketed, self.output)) == 2, self.output
        assert self.output.count("Training DDP model, ") == 2 * len(ways)
        assert self.output.count("seq_len: 8, variant: compute only\n") == 1
        self.assert_drawn("plots.bucketed_ddp", "tables.bucketed_ddp")

    def test_caps_cut_the_reduced_model_as_they_cut_xl(self) -> None:
        document = self.run_well("--batch-sizes=1", "--sequence-lengths=2", "--repetitions=1", "--warmup=0")
        assert document["parameters"]["parameters"] == sum(REDUCED)
        counts = []
        for megabytes in (1, 10, 100, 1000):
            (one,) = series(document, bucket_size_mb=megabytes, part="train", rank=0)
            cap, count = one["labels"]["cap_bytes"], one["labels"]["buckets"]
            assert cap / sum(REDUCED) == pytest.approx(megabytes * MB / sum(XL), abs=4e-6)
            assert count == buckets(REDUCED, cap) == buckets(XL, megabytes * MB)
            counts.append(count)
        assert counts == sorted(set(counts), reverse=True), "caps collapse"
        assert counts[-1] > 1

    def test_a_bucket_size_is_a_threshold(self) -> None:
        """At what xl has 1 MB for, each of 338 buckets is larger, by up to 61 times."""
        trace = self.folder / "trace.json"
        document = self.run_well("--bucket-mb=1", "--batch-sizes=2", "--sequence-lengths=16", "--repetitions=1",
                                 "--warmup=0", "--trace", trace)  # fmt: skip
        ((cap, buckets),) = {(one["labels"]["cap_bytes"], one["labels"]["buckets"])
                             for one in series(document, variant="bucketed")}  # fmt: skip
        assert buckets == 338
        spans = [one for one in json.loads(trace.read_text())["traceEvents"] if one["pid"] == 1 and one["ph"] == "X"]
        reduced = [one["args"] for one in spans if one["name"].startswith("all-reduce")]
        sizes = [one["bytes"] for one in sorted(reduced, key=lambda one: one["launched"])]
        steps = [sizes[first : first + buckets] for first in range(len(sizes) - buckets + 1)]
        whole = [step for step in steps if sum(step) == 4 * document["parameters"]["parameters"] and min(step) > cap]
        assert (round(min(whole[0]) / cap, 1), round(max(whole[0]) / cap)) == (9.7, 61)

    @slow
    def test_one_after_the_other_has_the_same_form(self) -> None:
        flags = ("--batch-sizes=1", "--sequence-lengths=4", "--bucket-mb=100", "--repetitions=1", "--warmup=1")
        turns, alone = (self.run_well(*flags, order)["series"] for order in ("--interleaved", "--sequential"))
        assert [one["labels"] for one in turns] == [one["labels"] for one in alone]

    @slow
    def test_goes_on_where_it_was_stopped(self) -> None:
        flags = ("--batch-sizes=1", "--sequence-lengths=2,4", "--bucket-mb=1000", "--repetitions=2", "--warmup=0")
        self.resume(1, *flags)
        self.resume(2, *flags, "--sequential")

    def test_launched_ranks(self) -> None:
        document = self.run_well(*self.tiny, **launched())
        assert {one["labels"]["rank"] for one in document["series"]} == {0}

    def test_memory_is_checked_before_it_is_taken(self) -> None:
        ended = self.start("--preset", "full", "--world-size", 32)  # 1.3 TB
        assert (ended.returncode, ended.stdout) == (REFUSED, ""), ended.stderr
        assert re.fullmatch(
            r"training xl takes at least 1278\.9 GB of memory \(ranks here: 32, models of each: 1; weights, gradients, "
            r"AdamW's state and buckets\), and there are [\d.]+ GB; choose a smaller --model\n",
            ended.stderr,
        )

    @pytest.mark.parametrize("flag", ["--bucket-mb=0", "--batch-sizes=many", "--sequence-lengths=0", "--model=huge"])
    def test_bad_flags(self, flag: str) -> None:
        self.assert_refused(flag.partition("=")[0], flag, code=VALIDATION)


class TestBucketOverhead(MeasuringTest):
    program, stage = "bucket_overhead", "03_bucketed_ddp"
    flags = SHARED_MEMORY
    tiny = ("--caps=3", "--sequence-length=4", "--repetitions=2", "--warmup=1")
    unfinished = UNFINISHED
    paper = "2 GPUs"
    described = ("--warmup 3 --repetitions 8",)

    def test_measures_link_steps_and_simulation(self) -> None:
        document = self.run_well(*self.tiny)
        found, gradients = document["parameters"], 4 * sum(REDUCED)
        assert found["gradient_bytes"] == gradients
        best = (gradients * found["bandwidth_bytes_per_s"] * found["overhead_s"]) ** 0.5
        assert found["best_cap_bytes"] == pytest.approx(best, rel=1e-7)
        for quantity in ("step", "simulated overhead"):
            caps = [one["labels"].get("cap_bytes") for one in series(document, quantity=quantity)]
            assert [cap for cap in caps if cap] == [gradients // 4, gradients // 2, gradients]
        sizes = [one["labels"]["bytes"] for one in series(document, quantity="message")]
        assert sizes == [*(64 * 4**i for i in range(8)), gradients]
        # With one bucket nothing overlaps: a launch, and all bytes.
        (whole,) = values(document, quantity="simulated overhead", cap_bytes=gradients)
        formula = found["overhead_s"] + gradients / found["bandwidth_bytes_per_s"]
        assert whole == pytest.approx(formula, abs=1e-6)
        self.assert_drawn()

    def test_refusals(self) -> None:
        self.assert_refused("one rank has nothing to reduce", *self.tiny, "--world-size", 1)
        self.assert_refused("--caps", "--caps=1", code=VALIDATION)
