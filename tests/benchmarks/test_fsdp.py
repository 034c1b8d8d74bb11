"""PyTorch's published FSDP: that the committed predictions are the program's, and how far they are off."""

from __future__ import annotations

import unittest

from tests.benchmarks.program_test import slow
from tools.report import fsdp

# The errors' bounds, in percent or points: whoever changes the model sees which moves.
MOST = {("paper", "TFLOPS"): 0.8, ("paper", "speedup"): 2, ("blog", "TFLOPS"): 36}


class Fsdp(unittest.TestCase):
    def test_errors_are_as_small_as_they_were(self) -> None:
        held = [row for row in fsdp.rows() if row.role == "held"]
        self.assertEqual({(row.source, row.metric) for row in held}, set(MOST))
        for row in held:
            self.assertLessEqual(abs(row.error), MOST[row.source, row.metric], row)

    def test_operations_are_those_of_the_source(self) -> None:
        paper, *_, blog = fsdp.rows()
        # 8 operations for each of 175 billion parameters and each token, and a little for attention.
        self.assertAlmostEqual(fsdp.operations(blog) / (8 * 175e9 * 20 * 512), 1, delta=0.02)
        self.assertAlmostEqual(fsdp.operations(paper) / (8 * 175e9 * 2048), 1, delta=0.04)

    @slow
    def test_predictions_are_the_programs(self) -> None:
        if not fsdp.PROGRAM.exists():
            self.skipTest(f"{fsdp.PROGRAM} is not built")
        self.assertEqual(fsdp.predicted()[1], fsdp.rows())
