"""How predictions at published scale are compared with published numbers, on small data."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from figures.lib import held_out, predictions
from figures.lib.result_files import ResultError
from figures.plots import predictions as predictions_table
from tests.figures.figure_helpers import ROOT, TEST_DATA, sample_of

COLUMNS = ["quantity", "place", "published", "predicted", "baseline", "fitted"]
CELLS = pd.DataFrame(
    [
        ("time", "a", 100, 50, 100, True),
        ("time", "b", 100, 110, 90, False),
        ("time", "c", 200, 196, 90, False),
        (predictions.AB, "d", -2, -1.5, 0, False),
    ],
    columns=COLUMNS,
)


def cells_of(program: str) -> pd.DataFrame:
    return predictions.EXPERIMENTS[program](sample_of(f"{program}.simulated"))


class TestErrors:
    def test_are_those_of_predicted_cells(self) -> None:
        found = predictions.errors(CELLS)
        time, ab = found.loc["time"], found.loc[predictions.AB]
        assert list(time) == pytest.approx([2, 6, 10, 1, 32.5, 55])
        assert [ab["mean"], ab["baseline_mean"]] == pytest.approx([0.5, 2])
        words = predictions.in_words("time", time)
        assert words == "time: mean error 6, largest 10 % over 2 predicted cells (baseline 32 and 55)"

    @pytest.mark.parametrize(("program", "quantity", "fitted", "count"), (
        ("compare_ddp", "backward of async", 3, 6),
        ("bucketed_ddp", predictions.TOTAL, 3, 8),
        ("ddp_suite", predictions.ITERATION, 5, 20),
        ("ddp_suite", predictions.AB, 4, 16),
    ))  # fmt: skip
    def test_fitted_cells_are_few(self, program: str, quantity: str, fitted: int, count: int) -> None:
        cells = cells_of(program).query("quantity == @quantity")
        assert (cells["fitted"].sum(), len(cells)) == (fitted, count)
        assert not cells[COLUMNS].isna().any(axis=None)

    def test_best_sizes_are_counted_by_panel(self) -> None:
        assert predictions.best_sizes(cells_of("bucketed_ddp")) == (2, 2)

    def test_overhead_is_beyond_the_round_without_ddp(self) -> None:
        added = cells_of("ddp_suite").query("quantity == @predictions.OVERHEAD").set_index("place")["published"]
        assert added["resnet101, 1 GPUs"] == pytest.approx(0.009)
        assert added["resnext101_32x8d, 16 GPUs"] == pytest.approx(0.035)

    def test_the_table_has_a_row_for_each_quantity(self) -> None:
        files = [TEST_DATA / f"{program}.simulated.json" for program in predictions.EXPERIMENTS]
        ((_, table),) = predictions_table.make(files)
        rows = {(row[0], row[1]): row[2:] for row in table.rows}
        assert len(rows) == 6 + 2 + 3
        assert rows["bucketed_ddp", predictions.TOTAL][0] == "5"
        assert rows["ddp_suite", predictions.AB][1].endswith(" points")
        assert "in 2 of 2 panels" in table.note

    def test_measured_numbers_are_no_predictions(self) -> None:
        with pytest.raises(ResultError, match="was measured, not simulated; run step ddp_suite published"):
            list(predictions_table.make([TEST_DATA / "ddp_suite.json"]))


def test_the_errors_of_held_out_cells_are_those_of_the_gallery() -> None:
    """Whoever changes the model sees in the gallery's table which of them move."""
    gallery = json.loads((ROOT / "figures" / "gallery" / "tables.json").read_text())
    assert held_out.lines(held_out.rows()) == gallery["held_out.published"]["rows"]
