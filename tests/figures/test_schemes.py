"""The handouts' schemes: their numbers, that they can be drawn, and that docs/pictures has what the code draws now."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from figures.schemes import curves, draw, reductions, steps
from tests.figures.figure_test import ROOT


def test_the_chain_of_handout_02() -> None:
    overlapped = [end for _, end in steps.chain(steps.layers(), overlap=True)]
    assert overlapped == pytest.approx((3.66, 5.26, 6.52, 6.73))
    assert steps.chain(steps.layers(), overlap=False)[-1][1] == pytest.approx(9.39)


def test_the_overhead_of_handout_03() -> None:
    for cap, milliseconds in ((0.25, 7.85), (3.26, 1.20), (25, 4.67)):
        assert round(1e3 * sum(curves.overhead_s(cap * curves.MIB)), 2) == milliseconds


def test_squares_lose_the_digits_that_deviations_keep() -> None:
    values = np.array([9998, 10002], np.float32)
    assert curves.variance_by_deviations(values) == 4
    assert curves.variance_by_squares(values) != 4


def test_the_ring_of_handout_05() -> None:
    states = reductions.ring_states()
    sums = [sum(rank[chunk] for rank in reductions.RING) for chunk in range(3)]
    assert [states[2][rank][rank] for rank in range(3)] == sums
    assert states[-1] == [sums] * 3


def test_those_in_docs_are_what_the_code_draws_now() -> None:
    stale = [name for name in draw.PICTURES if draw.digest_of(draw.FOLDER / f"{name}.png") != draw.digest()]
    assert stale == [], "draw them again: .venv/bin/python -m figures.schemes.draw"
    assert {path.stem for path in (ROOT / "docs" / "pictures").glob("*.png")} == set(draw.PICTURES)


def test_all_are_drawn_with_the_digest_of_their_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert draw.main(["--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for name in draw.PICTURES:
        assert f"wrote {tmp_path}/{name}.png" in said
        assert draw.digest_of(tmp_path / f"{name}.png") == draw.digest()


def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert draw.main(["--out", f"{tmp_path}/file/deeper"]) == 1
    assert "choose another folder with --out" in capsys.readouterr().err
