"""Which first lines are one diagnosis: those that differ by run, rank, tensor and number alone."""

from __future__ import annotations

import unittest

from tools.course.diagnoses import first_line, without_particulars

SAME = (
    (
        'in "three layers" (2 ranks): rank 1, step 2: the gradient of layer 2: exactly 2.000x the reference',
        'in "float64, five ranks" (5 ranks): rank 0, step 0: the gradient of layer 11: exactly 5.000x the reference',
    ),
    (
        "rank 3: after construction buffer 8 is exactly this rank's own value: not broadcast?",
        "rank 1: after construction buffer 0 is exactly this rank's own value: not broadcast?",
    ),
    ("[3, 4] of float32 at naive_ddp.cpp:12: 1e-05", "[7, 1, 2] of float16 at flat.cpp:99: -3.5"),
)


class Diagnoses(unittest.TestCase):
    def test_particulars_are_left_out(self) -> None:
        for one, other in SAME:
            self.assertEqual(without_particulars(one), without_particulars(other))

    def test_different_mistakes_stay_apart(self) -> None:
        texts = {without_particulars(pair[0]) for pair in SAME}
        self.assertEqual(len(texts), len(SAME))
        self.assertIn("exactly", without_particulars(SAME[0][0]))

    def test_a_diagnosis_below_belongs_to_the_line(self) -> None:
        self.assertEqual(first_line("\nstep 1 took 5\n  diagnosis: late\n  more"), "step 1 took 5 diagnosis: late")
        self.assertEqual(first_line(""), "")
