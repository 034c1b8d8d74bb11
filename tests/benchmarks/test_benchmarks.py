"""Tests of naive_vs_flat, step_time, sync_batch_norm and sharded_step: what they measure, what they refuse, and that
their figures and tables can be made from it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.program_test import (
    AVERAGING,
    BUILD,
    SECONDS,
    SHARED_MEMORY,
    UNFINISHED,
    VALIDATION,
    MeasuringTest,
    ProgramTest,
    slow,
    values,
)

STUB = BUILD / "stages" / "assignments" / "02_overlapped_ddp" / "libstage.so"
SOLUTION = BUILD / "stages" / "solutions" / "01_naive_ddp" / "libstage.so"


class TestStepTime(MeasuringTest):
    program, stages = "step_time", AVERAGING
    flags = SHARED_MEMORY
    tiny = ("--batch-size=2", "--steps=2", "--warmup=0")
    unfinished = "none of the variants that are code of assignments/ is finished"
    paper = "2 GPUs"
    described = ("2 steps to warm up",)

    def test_is_measured_and_drawn(self) -> None:
        self.run_well(*self.tiny)
        self.assert_drawn()

    @pytest.mark.parametrize("naive_is_finished", [True, False])
    def test_measures_what_is_finished_and_names_the_others(self, naive_is_finished: bool) -> None:
        """In a build folder of its own: programs look for stages next to themselves."""
        (self.folder / "bin").mkdir()
        shutil.copy2(BUILD / "bin" / self.program, self.folder / "bin")
        (self.folder / "lib").symlink_to(BUILD / "lib")
        self.give("02_overlapped_ddp", STUB)
        if naive_is_finished:
            self.give("01_naive_ddp", SOLUTION)
        command = [self.folder / "bin" / self.program, *self.flags, *self.tiny, f"--output={self.result}"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert "overlapped is left out: TODO(student): 02 overlapped DDP" in ended.stderr
        assert "bucketed is left out: there is no " in ended.stderr
        assert ended.stderr.count("is left out") == (2 if naive_is_finished else 4)
        if not naive_is_finished:
            assert (ended.returncode, self.result.exists()) == (UNFINISHED, False)
            return
        variants = {one["labels"]["variant"] for one in json.loads(self.result.read_text())["series"]}
        assert variants == {"compute only", "naive", "flat", "Reducer", "Reducer as_view"}

    def give(self, stage: str, library: Path) -> None:
        folder = self.folder / "stages" / "assignments" / stage
        folder.mkdir(parents=True)
        (folder / "libstage.so").symlink_to(library)


class TestNaiveVsFlat(MeasuringTest):
    program, stage = "naive_vs_flat", "01_naive_ddp"
    flags = SHARED_MEMORY
    tiny = ("--batch-size=2", "--image-size=32", "--steps=2", "--warmup=0")
    paper = "2 GPUs"
    described = ("1 step to warm up",)

    def test_a_slow_link_delays_every_message(self) -> None:
        """An all-reduce of two ranks takes two turns of messages; flat has one all-reduce."""
        document = self.run_well(*self.tiny, "--latency-us=2000")
        naive, flat = (min(values(document, variant=name, phase="communication")) for name in ("naive", "flat"))
        assert document["parameters"]["latency_us"] == 2000
        assert naive >= document["parameters"]["parameter_tensors"] * 2 * 2e-3
        assert flat < naive
        self.assert_drawn()

    def test_says_if_the_images_are_too_small(self) -> None:
        self.assert_refused("give --batch-size 2, or --image-size 33", "--batch-size=1", "--image-size=32")


class TestSyncBatchNorm(MeasuringTest):
    program, stage = "sync_batch_norm", "04_sync_batch_norm"
    tiny = ("--batch-sizes=2,3", "--hidden-dims=4,5", "--repetitions=2", "--warmup=1")
    paper = '2 GPUs named "RTX A4000"'
    described = ("--resume", "10,000 calls a row")

    @pytest.mark.parametrize("ranks", [1, 3])
    def test_grid_has_times_collectives_and_memory_of_all_cells(self, ranks: int) -> None:
        document = self.run_well(*self.tiny, f"--world-size={ranks}")
        found = {tuple(one["labels"].values()): one["values"] for one in document["series"]}
        assert len(found) == len(document["series"]) == 2 * 2 * 3 * 2 * 3
        for labels, times in found.items():
            batch, hidden, variant, direction, quantity = labels
            assert min(times) >= 0, labels
            if quantity == "time":
                collectives = found[(*labels[:-1], "collective")]
                assert (len(times), len(collectives)) == (2, 2)
                assert all(part < whole for part, whole in zip(collectives, times)), labels
                assert ranks == 1 or (sum(collectives) > 0) == (variant != "local"), labels
            if quantity == "peak memory":
                assert min(times) >= (2 if direction == "forward" else 4) * 4 * batch * hidden, labels
        self.assert_drawn()
        self.assert_drawn("tables.sync_batch_norm", files=4)

    @slow
    def test_goes_on_where_it_was_stopped(self) -> None:
        self.resume(1, "--batch-sizes=2,3", "--hidden-dims=4,5", "--repetitions=100")

    @pytest.mark.parametrize("flag", ["--hidden-dims=0", "--batch-sizes=many"])
    def test_bad_flags(self, flag: str) -> None:
        self.assert_refused("not in range", *self.tiny, flag, code=VALIDATION)


class TestShardedStep(ProgramTest):
    program, stage = "sharded_step", "07_fully_sharded"

    @pytest.mark.parametrize("backend", ["gloo", "shm"])
    def test_measures_all_ways_on_real_ranks(self, backend: str) -> None:
        """All end alike, which the program itself checks."""
        document = self.run_well("--layers", 3, "--width", 65, "--world-size", 3, "--backend", backend)
        assert [one["labels"]["variant"] for one in document["series"]] == [
            "bucketed, AdamW", "sharded AdamW", "sharded AdamW, no overlap", "fully sharded, prefetch 1",
            "fully sharded, prefetch 0",
        ]  # fmt: skip
        for one in document["series"]:
            assert (one["unit"], len(one["values"])) == ("s", 5)
            assert min(one["values"]) > 0
