"""Tests of the benchmarks scaling, sharded_scaling and memory_per_gpu, run on the solutions: steps and bytes on
simulated GPUs, in virtual time, always the same.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.benchmarks.program_test import UNFINISHED, VALIDATION, MeasuringTest, ProgramTest, series, values

VARIANTS = ("naive", "flat", "overlapped", "bucketed", "Reducer")
SHARDED = ("sharded", "fully sharded")
CARD = 80e9
FEW = ("--gpus", "1", "8", "64", "4096")


class TestScaling(MeasuringTest):
    program, stage = "scaling", "03_bucketed_ddp"
    tiny = ("--gpus", "1", "2", "--model", "small")
    unfinished = "bucketed is left out: TODO(student)"
    described = ("1 to 4,096 GPUs in powers of two", "nothing was published")

    def test_is_the_same_in_every_run(self) -> None:
        first, second = (self.run_well(*self.tiny) for _ in range(2))
        assert first["series"] == second["series"]
        assert first["parameters"] == second["parameters"]
        assert {one["labels"]["variant"] for one in series(first, quantity="step")} == {"compute only", *VARIANTS}
        self.assert_drawn()

    def test_xl_on_4096_gpus(self) -> None:
        document = self.run_well("--gpus", "16", "4096")
        assert document["parameters"]["parameters"] == 1_998_235_200
        assert document["provenance"]["world_size"] == 4096
        few, many = (
            {name: values(document, quantity="step", variant=name, world_size=gpus)[0] for name in VARIANTS}
            for gpus in (16, 4096)
        )
        # NCCL's all-reduces of one tensor cost so little that copying to buckets of 25 MB costs as much.
        assert many["bucketed"] < 1.02 * many["overlapped"]
        assert many["overlapped"] < many["flat"] < many["naive"]
        assert all(few[name] < many[name] for name in VARIANTS)
        # The best cap is near the formula's where communication is not hidden.
        of_caps = series(document, quantity="step by cap", world_size=4096)
        caps = {one["labels"]["cap_bytes"]: one["values"][0] for one in of_caps}
        (formula,) = values(document, quantity="best cap by formula", world_size=4096)
        best = min(caps, key=caps.__getitem__)
        assert formula / 2 < best < 2 * formula
        assert caps[best] < min(caps[min(caps)], caps[max(caps)])

    def test_xl_takes_little_memory(self) -> None:
        """Two billion parameters have shapes alone."""
        # By a small process between: what is started counts the memory of whoever started it as its own.
        measure = "import resource as r, subprocess as s, sys; s.run(sys.argv[1:], check=True, stdout=s.DEVNULL); "
        measure += "print(r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss)"
        command = [sys.executable, "-c", measure, *self.command("--gpus", "4096")]
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, text=True, check=True)
        assert int(done.stdout) < 1 << 20, "KiB"

    def test_a_faster_link_hides_more(self) -> None:
        flags = ("--gpus", "64", "--model", "large")
        slow, fast = (self.run_well(*flags, "--link-between", link) for link in ("ethernet10", "infiniband4x100"))
        for name in VARIANTS:
            labels = {"quantity": "step", "variant": name, "world_size": 64}
            assert values(slow, **labels)[0] > 2 * values(fast, **labels)[0]

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (("--gpus", "0"), "--gpus: Value 0 not in range"),
            (("--cap-bytes", "0"), "--cap-bytes: Value 0 not in range"),
            (("--gpu", "abacus"), "--gpu: abacus not in {V100,A100,H100,A4000,T4,"),
            (("--link", "string"), "--link: string not in {"),
            (("--efficiency", "-1"), "--efficiency"),
            (("--gpus-per-node", "0"), "--gpus-per-node: Value 0 not in range"),
        ],
    )
    def test_mistakes_in_flags(self, flags: tuple[str, ...], message: str) -> None:
        self.assert_refused(message, *flags, code=VALIDATION)


def by_labels(document: dict[str, Any], quantity: str, *labels: str) -> dict[tuple[object, ...], float]:
    return {tuple(one["labels"][label] for label in labels): one["values"][0]
            for one in series(document, quantity=quantity)}  # fmt: skip


class TestShardedScaling(ProgramTest):
    program, stage = "sharded_scaling", "07_fully_sharded"

    def test_steps_and_bytes_from_naive_to_fully_sharded(self) -> None:
        document = self.run_well(*FEW)
        assert document == {**self.run_well(*FEW), "provenance": document["provenance"]}
        steps, most = (by_labels(document, name, "model", "variant", "world_size") for name in ("step", "most"))
        assert len(steps) == 2 * 7 * 4
        for (model, variant, gpus), step in steps.items():
            assert step >= steps[model, "compute only", 1], (model, variant, gpus)
        averaging = VARIANTS[:-1]
        for model in ("xl", "7.5b"):
            for variant in averaging:  # whole replicas: parameters and state, whatever N is
                assert steps[model, variant, 4096] > steps[model, variant, 8]
                assert most[model, variant, 4096] == most[model, variant, 8]
            assert steps[model, "naive", 64] > steps[model, "bucketed", 64]
            held = [most[model, variant, 64] for variant in ("bucketed", *SHARDED)]
            assert held == sorted(held, reverse=True), model
            for variant in SHARDED:  # an N-th of the update
                assert steps[model, variant, 8] < steps[model, variant, 1]
        for gpus, fitting in ((1, set()), (64, set(SHARDED))):
            assert {name for name in (*averaging, *SHARDED) if most["7.5b", name, gpus] < CARD} == fitting, gpus
        self.assert_drawn(files=4)

    def test_prefetch_hides_what_the_shorter_of_both_takes(self) -> None:
        document = self.run_well("--gpus", "1")
        steps = by_labels(document, "step by link", "model", "link_gb_per_s", "prefetch")
        computing = by_labels(document, "computing by link", "model", "link_gb_per_s")
        communication = by_labels(document, "communication by link", "model", "link_gb_per_s")
        for model, link in computing:
            longer, both = (choose((computing[model, link], communication[model, link])) for choose in (max, sum))
            none, one, two = (steps[model, link, prefetch] for prefetch in range(3))
            assert none > 1.02 * one, (model, link)
            assert longer <= two <= 1.001 * one, (model, link)
            assert one < longer + 0.7 * (both - longer), (model, link)
        slowest, fastest = min(link for _, link in computing), max(link for _, link in computing)
        assert steps["xl", slowest, 1] < 1.1 * communication["xl", slowest]
        assert computing["xl", fastest] > communication["xl", fastest]

    def test_stubs_are_named_and_left_out(self) -> None:
        errors = self.assert_refused("naive is left out", *FEW, code=UNFINISHED, impl="assignments")
        for name in (*VARIANTS[:-1], *SHARDED):
            assert f"{name} is left out: TODO(student)" in errors


class TestMemoryPerGpu(ProgramTest):
    program, stage = "memory_per_gpu", "07_fully_sharded"

    def test_zeros_numbers_are_found_again(self) -> None:
        document = self.run_well("--millions", "7500", "--gpus", "1", "64")
        held = {stage_and_gpus: bytes_ / 7.5e9 for stage_and_gpus, bytes_ in
                by_labels(document, "held", "stage", "world_size").items()}  # fmt: skip
        # Bytes a parameter; the last digits are those of a loss, and of padding.
        buckets, optimizer, units = "03_bucketed_ddp", "06_sharded_optimizer", "07_fully_sharded"
        assert held == pytest.approx(
            {(buckets, 1): 16, (buckets, 64): 16, (optimizer, 1): 16, (optimizer, 64): 2 + 14 / 64, (units, 1): 16,
             (units, 64): 16 / 64}, abs=5e-7,
        )  # fmt: skip
        self.assert_drawn()
