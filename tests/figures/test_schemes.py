"""The handouts' schemes: their numbers, that they can be drawn, and that docs/pictures has what the code draws now."""

from __future__ import annotations

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import numpy as np

from figures.schemes import curves, draw, reductions, steps
from tests.figures.figure_test import ROOT  # first: it finds the scripts


class Numbers(unittest.TestCase):
    def test_the_chain_of_handout_02(self) -> None:
        overlapped = [end for _, end in steps.chain(steps.layers(), overlap=True)]
        np.testing.assert_allclose(overlapped, (3.66, 5.26, 6.52, 6.73), atol=1e-9)
        self.assertAlmostEqual(steps.chain(steps.layers(), overlap=False)[-1][1], 9.39)

    def test_the_overhead_of_handout_03(self) -> None:
        for cap, milliseconds in ((0.25, 7.85), (3.26, 1.20), (25, 4.67)):
            self.assertEqual(round(1e3 * sum(curves.overhead_s(cap * curves.MIB)), 2), milliseconds)

    def test_squares_lose_the_digits_that_deviations_keep(self) -> None:
        values = np.array([9998, 10002], np.float32)
        self.assertEqual(curves.variance_by_deviations(values), 4)
        self.assertNotEqual(curves.variance_by_squares(values), 4)

    def test_the_ring_of_handout_05(self) -> None:
        states = reductions.ring_states()
        sums = [sum(rank[chunk] for rank in reductions.RING) for chunk in range(3)]
        self.assertEqual([states[2][rank][rank] for rank in range(3)], sums)
        self.assertEqual(states[-1], [sums] * 3)


class Pictures(unittest.TestCase):
    def test_those_in_docs_are_what_the_code_draws_now(self) -> None:
        stale = [name for name in draw.PICTURES if draw.digest_of(draw.FOLDER / f"{name}.png") != draw.digest()]
        self.assertEqual(stale, [], "draw them again: .venv/bin/python -m figures.schemes.draw")
        self.assertEqual({path.stem for path in (ROOT / "docs" / "pictures").glob("*.png")}, set(draw.PICTURES))

    def test_all_are_drawn_with_the_digest_of_their_code(self) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(draw.main(["--out", folder]), 0)
            for name in draw.PICTURES:
                self.assertIn(f"wrote {folder}/{name}.png", said.getvalue())
                self.assertEqual(draw.digest_of(Path(folder, f"{name}.png")), draw.digest())

    def test_a_folder_that_cannot_be_written(self) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
            Path(folder, "file").write_text("")
            self.assertEqual(draw.main(["--out", f"{folder}/file/deeper"]), 1)
        self.assertIn("choose another folder with --out", said.getvalue())
