"""The held-out measurements: the committed predictions are the programs'."""

from __future__ import annotations

import pytest

from figures.lib import held_out
from tests.benchmarks.program_helpers import AVERAGING
from tools.report import held_out as tool


@pytest.mark.slow
@pytest.mark.builds("step", tool.CLUSTER, *(f"solutions_{stage}" for stage in AVERAGING))
@pytest.mark.parametrize("source", held_out.SOURCES)
def test_predictions_are_the_programs(source: str) -> None:
    committed = held_out.rows().query("source == @source")
    assert list(tool.predicted([source])["predicted"]) == pytest.approx(list(committed["predicted"]), rel=1e-5)
