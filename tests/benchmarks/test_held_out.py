"""The held-out measurements: the committed predictions are the programs'."""

from __future__ import annotations

import pytest

from figures.lib import held_out
from tests.benchmarks.program_test import BUILD
from tools.report import held_out as tool


@pytest.mark.parametrize("source", held_out.SOURCES)
def test_predictions_are_the_programs(source: str) -> None:
    for name in (tool.PROGRAM, tool.SUITE, tool.ALL_REDUCES):
        if not (BUILD / "bin" / name).exists():
            pytest.skip(f"{name} is not built")
    committed = held_out.rows().query("source == @source")
    assert list(tool.predicted([source])["predicted"]) == pytest.approx(list(committed["predicted"]), rel=1e-5)
