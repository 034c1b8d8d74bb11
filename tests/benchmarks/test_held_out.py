"""The held-out measurements: that the committed predictions are the programs', and how far they are off."""

from __future__ import annotations

import unittest
from dataclasses import replace
from statistics import fmean

from figures.lib import held_out
from tests.benchmarks.program_test import BUILD
from tools.report import held_out as tool

# Mean and largest error of the held-out cells, in percent or points: whoever changes the model sees which moves.
MOST = {
    ("A", "naive: step"): (2.5, 4.9),
    ("A", "naive: after backward"): (5.7, 13.7),
    ("A", "flat: step"): (1.9, 2.8),
    ("A", "flat: after backward"): (2.3, 3.8),
    ("A", "overlapped: step"): (2.3, 3.5),
    ("A", "overlapped: after backward"): (59.4, 101.6),
    ("A", "all-reduce"): (2.7, 4.1),
    ("A", "forward + backward, 1 GPU"): (5.7, 20.8),
    ("A", "forward, 1 GPU"): (3.1, 8.3),
    ("B", "flat: step"): (4.0, 4.0),
    ("B", "flat: after backward"): (24.7, 24.7),
    ("B", "overlapped: step"): (1.9, 1.9),
    ("B", "overlapped: after backward"): (2.1, 2.1),
    ("B", "bucketed: step"): (2.7, 4.5),
    ("B", "bucketed: after backward"): (93.6, 97.5),
    ("B", "forward, 1 GPU"): (7.3, 22.9),
    ("B", "forward + backward, 1 GPU"): (5.8, 16.9),
    ("C", "naive: after backward"): (8.8, 8.8),
    ("C", "flat: step"): (3.6, 3.6),
    ("C", "flat: after backward"): (6.2, 6.2),
    ("C", "overlapped: step"): (4.9, 4.9),
    ("C", "bucketed: step"): (4.8, 6.0),
    ("suite", "bucketed: step"): (3.3, 6.6),
    ("suite", "A/B"): (3.5, 7.0),
}


class HeldOut(unittest.TestCase):
    def test_errors_are_as_small_as_they_were(self) -> None:
        for source, quantity, held in held_out.quantities(held_out.rows()):
            errors = [abs(row.error) for row in held]
            mean, largest = MOST[source, quantity]
            self.assertLessEqual(fmean(errors), mean, (source, quantity))
            self.assertLessEqual(max(errors), largest, (source, quantity))

    def test_what_describes_a_machine_is_not_counted(self) -> None:
        for source, _, held in held_out.quantities(held_out.rows()):
            self.assertFalse(any(row.fitted for row in held), source)
        self.assertTrue(any(row.fitted for row in held_out.rows()))

    def test_predictions_are_the_programs(self) -> None:
        programs = ("bucketed_ddp", "ddp_suite", "all_reduce_times")
        missing = [name for name in programs if not (BUILD / "bin" / name).exists()]
        if missing:
            self.skipTest(f"{', '.join(missing)}: not built")
        made = [replace(row, predicted=float(f"{row.predicted:.6g}")) for row in tool.predicted()]
        for row, committed in zip(made, held_out.rows(), strict=True):
            self.assertAlmostEqual(row.predicted, committed.predicted, delta=0.002 * abs(committed.predicted), msg=row)
