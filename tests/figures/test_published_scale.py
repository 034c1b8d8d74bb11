"""How predictions at published scale are compared with published numbers, on small data."""

from __future__ import annotations

import pandas as pd
import pytest

from figures.lib import held_out, predictions
from figures.lib.result_files import ResultError
from figures.plots import predictions as predictions_table
from tests.figures.figure_test import TEST_DATA, sample_of

COLUMNS = ["quantity", "place", "published", "predicted", "dull", "fitted"]
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
        assert [ab["mean"], ab["dull_mean"]] == pytest.approx([0.5, 2])
        words = predictions.in_words("time", time)
        assert words == "time: mean error 6, largest 10 % over 2 predicted cells (dull guess 32 and 55)"

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
        with pytest.raises(ResultError, match="was measured, not simulated; run ddp_suite published"):
            list(predictions_table.make([TEST_DATA / "ddp_suite.json"]))


# Mean and largest error of the held-out cells, in percent or points: whoever changes the model sees which moves.
MOST = {
    ("A", "naive: step"): (1.4, 2.5),
    ("A", "naive: after backward"): (2.1, 2.9),
    ("A", "flat: step"): (1.1, 3.4),
    ("A", "flat: after backward"): (2.0, 2.8),
    ("A", "overlapped: step"): (2.5, 3.7),
    ("A", "overlapped: after backward"): (11.0, 20.4),
    ("A", "all-reduce"): (2.7, 4.0),
    ("A", "forward + backward, 1 GPU"): (1.5, 5.5),
    ("A", "forward, 1 GPU"): (2.4, 5.4),
    ("B", "flat: step"): (3.9, 3.9),
    ("B", "flat: after backward"): (36.0, 36.0),
    ("B", "overlapped: step"): (0.9, 0.9),
    ("B", "overlapped: after backward"): (10.0, 10.0),
    ("B", "bucketed: step"): (1.9, 3.7),
    ("B", "bucketed: after backward"): (94.5, 98.0),
    ("B", "forward, 1 GPU"): (5.0, 23.0),
    ("B", "forward + backward, 1 GPU"): (3.2, 14.8),
    ("C", "naive: after backward"): (9.1, 9.1),
    ("C", "flat: step"): (4.0, 4.0),
    ("C", "flat: after backward"): (7.1, 7.1),
    ("C", "overlapped: step"): (1.0, 1.0),
    ("C", "bucketed: step"): (7.1, 10.1),
    ("suite", "bucketed: step"): (3.3, 6.5),
    ("suite", "A/B"): (3.4, 6.9),
    ("D", "naive: after backward"): (7.8, 8.5),
    ("D", "naive: step"): (1.4, 2.9),
    ("D", "flat: step"): (1.1, 1.1),
    ("D", "flat: after backward"): (13.4, 13.4),
    ("D", "overlapped: step"): (2.2, 2.2),
    ("D", "bucketed: step"): (1.8, 2.7),
    ("D", "all-reduce"): (7.4, 23.2),
    ("D", "forward, 1 GPU"): (2.9, 6.5),
    ("D", "forward + backward, 1 GPU"): (3.0, 4.6),
    ("D", "compute only: step"): (0.1, 0.1),
    ("D, TF32", "forward, 1 GPU"): (2.3, 4.6),
    ("D, TF32", "forward + backward, 1 GPU"): (1.7, 3.8),
    ("D, BF16", "forward, 1 GPU"): (4.9, 7.0),
    ("D, BF16", "forward + backward, 1 GPU"): (2.7, 4.2),
    ("E", "naive: step"): (5.0, 5.0),
    ("E", "flat: step"): (2.4, 2.4),
    ("E", "flat: after backward"): (4.3, 4.3),
    ("E", "overlapped: step"): (1.5, 1.5),
    ("E", "compute only: step"): (15.2, 25.8),
    ("E", "forward, 1 GPU"): (24.5, 33.7),
    ("E", "forward + backward, 1 GPU"): (23.8, 29.2),
    ("E", "optimizer"): (5.5, 11.3),
    ("F", "bucketed: step"): (1.8, 5.3),
    ("G", "flat: step"): (1.6, 1.6),
    ("G", "overlapped: step"): (3.7, 3.7),
    ("G", "all-reduce"): (8.0, 11.7),
}


def test_errors_of_held_out_cells_are_as_small_as_they_were() -> None:
    found = held_out.errors(held_out.rows())["error"]
    assert set(found.index) == set(MOST), "what describes a machine is not counted"
    for place, error in found.iterrows():
        assert error["mean"] <= MOST[place][0], place
        assert error["max"] <= MOST[place][1], place
