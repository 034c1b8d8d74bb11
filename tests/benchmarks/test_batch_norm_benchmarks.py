"""Tests of stage 04's benchmarks, run on the solution with tiny inputs: what they measure, what they refuse, and that
their figures and tables can be made from it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.benchmarks.program_test import ProgramTest, slow

STAGE = "04_sync_batch_norm"


def by_labels(document: dict[str, Any]) -> dict[tuple[object, ...], list[float]]:
    """The values of each series, by its labels."""
    values = {tuple(one["labels"].values()): one["values"] for one in document["series"]}
    assert len(values) == len(document["series"]), "labels are repeated"
    return values


class SyncBatchNorm(ProgramTest):
    program = "sync_batch_norm"
    stage = STAGE
    tiny = ("--batch-sizes=2,3", "--hidden-dims=4,5", "--repetitions=2", "--warmup=1")

    def test_grid_has_times_collectives_and_memory_of_all_cells(self) -> None:
        for ranks in (1, 3):
            values = by_labels(self.run_well(*self.tiny, f"--world-size={ranks}"))
            self.assertEqual(len(values), 2 * 2 * 3 * 2 * 3)
            for labels, times in values.items():
                batch, hidden, variant, direction, quantity = labels
                self.assertTrue(all(value >= 0 for value in times), labels)
                if quantity == "time":
                    collectives = values[(*labels[:-1], "collective")]
                    self.assertEqual((len(times), len(collectives)), (2, 2))
                    self.assertTrue(all(part < whole for part, whole in zip(collectives, times)), labels)
                    if ranks > 1:
                        self.assertEqual(sum(collectives) > 0, variant != "local", labels)
                if quantity == "peak memory":
                    tensors = 2 if direction == "forward" else 4
                    self.assertGreaterEqual(min(times), tensors * 4 * batch * hidden, labels)
        self.assert_drawn()
        self.assert_drawn("tables.sync_batch_norm", files=4)

    @slow
    def test_goes_on_where_it_was_stopped(self) -> None:
        self.resume(1, "--batch-sizes=2,3", "--hidden-dims=4,5", "--repetitions=100")

    def test_does_not_go_on_with_something_else(self) -> None:
        flags = ("--batch-sizes=2,3", "--repetitions=50")
        other = ("--batch-sizes=2", "--repetitions=50")
        self.assert_not_resumed_otherwise(flags, other, 'was measured with batch_sizes "2, 3", and this run has "2"')

    def test_presets(self) -> None:
        self.assert_presets_are_described("--resume", "10,000 calls a row")
        self.assert_paper_needs('2 GPUs named "RTX A4000"')

    def test_refusals(self) -> None:
        self.assert_unfinished(*self.tiny)
        for flag in ("--hidden-dims=0", "--batch-sizes=many"):
            ended = self.start(*self.tiny, flag)
            self.assertEqual(ended.returncode, 105, ended.stderr)
            self.assertRegex(ended.stderr, "Value .* not in range")
        self.result = Path("/proc/none/result.json")
        self.assertIn("cannot write /proc/none/result.json", self.start(*self.tiny).stderr)
