"""Tests of the benchmark memory_per_gpu, run on the solutions: bytes on simulated GPUs, always the same."""

from __future__ import annotations

from tests.benchmarks.program_test import ProgramTest  # first: it finds the tools and the scripts

PARAMETERS = 7_500_000_000


class MemoryPerGpu(ProgramTest):
    program = "memory_per_gpu"
    stage = "07_fully_sharded"

    def test_zeros_numbers_are_found_again(self) -> None:
        document = self.run_well("--millions", "7500", "--gpus", "1", "64")
        held = {
            (series["labels"]["stage"][:2], series["labels"]["world_size"]): series["values"][0] / PARAMETERS
            for series in self.series(document, quantity="held")
        }
        # Bytes a parameter; the last digits are those of a loss, and of padding.
        expected = {
            ("03", 1): 16,
            ("03", 64): 16,
            ("06", 1): 16,
            ("06", 64): 2 + 14 / 64,
            ("07", 1): 16,
            ("07", 64): 16 / 64,
        }
        self.assertEqual(held.keys(), expected.keys())
        for key, bytes_a_parameter in expected.items():
            self.assertAlmostEqual(held[key], bytes_a_parameter, places=6)
        self.assert_drawn()
