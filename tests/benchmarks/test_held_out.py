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
    ("A", "naive: step"): (1.5, 2.5),
    ("A", "naive: after backward"): (2.1, 2.9),
    ("A", "flat: step"): (1.1, 3.4),
    ("A", "flat: after backward"): (2.0, 2.8),
    ("A", "overlapped: step"): (2.5, 3.8),
    ("A", "overlapped: after backward"): (11.0, 20.4),
    ("A", "all-reduce"): (2.7, 4.0),
    ("A", "forward + backward, 1 GPU"): (1.6, 5.5),
    ("A", "forward, 1 GPU"): (2.4, 5.5),
    ("B", "flat: step"): (4.2, 4.2),
    ("B", "flat: after backward"): (28.4, 28.4),
    ("B", "overlapped: step"): (1.8, 1.8),
    ("B", "overlapped: after backward"): (9.6, 9.6),
    ("B", "bucketed: step"): (2.8, 4.6),
    ("B", "bucketed: after backward"): (93.2, 97.2),
    ("B", "forward, 1 GPU"): (5.0, 23.1),
    ("B", "forward + backward, 1 GPU"): (3.2, 14.9),
    ("C", "naive: after backward"): (9.1, 9.1),
    ("C", "flat: step"): (2.8, 2.8),
    ("C", "flat: after backward"): (7.1, 7.1),
    ("C", "overlapped: step"): (0.7, 0.7),
    ("C", "bucketed: step"): (8.4, 11.4),
    ("suite", "bucketed: step"): (3.3, 6.5),
    ("suite", "A/B"): (3.4, 6.9),
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
