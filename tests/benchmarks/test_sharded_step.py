"""Tests of the benchmark sharded_step, run on the solutions: all ways end alike, which the program itself checks."""

from __future__ import annotations

from tests.benchmarks.program_test import ProgramTest  # first: it finds the tools and the scripts


class ShardedStep(ProgramTest):
    program = "sharded_step"
    stage = "07_fully_sharded"

    def test_measures_all_ways_on_real_ranks(self) -> None:
        for backend in ("gloo", "shm"):
            document = self.run_well("--layers", "3", "--width", "65", "--world-size", "3", "--backend", backend)
            names = [series["labels"]["variant"] for series in document["series"]]
            self.assertEqual(
                names,
                [
                    "bucketed, AdamW",
                    "sharded AdamW",
                    "sharded AdamW, no overlap",
                    "fully sharded, prefetch 1",
                    "fully sharded, prefetch 0",
                ],
            )
            for series in document["series"]:
                self.assertEqual((series["unit"], len(series["values"])), ("s", 5))
                self.assertGreater(min(series["values"]), 0)
