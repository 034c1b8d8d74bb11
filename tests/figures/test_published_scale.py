"""Figures and tables at published scale, and how predictions are compared with published numbers, on small data."""

from __future__ import annotations

from types import ModuleType

import pytest
from matplotlib.figure import Figure

from figures.lib import predictions
from figures.lib.predictions import Cell
from figures.plots import bucketed_ddp_published, compare_ddp_published, ddp_suite_published, held_out
from figures.tables import bucketed_ddp, compare_ddp, ddp_suite
from figures.tables import predictions as predictions_table
from tests.figures.figure_test import TEST_DATA, ScriptTest, keep, words_of

COMPARE, BUCKETED, SUITE = (TEST_DATA / f"{program}.simulated.json" for program in predictions.EXPERIMENTS)
CELLS = [
    Cell("time", "a", published=100, predicted=50, dull=100, fitted=True),
    Cell("time", "b", published=100, predicted=110, dull=90, fitted=False),
    Cell("time", "c", published=200, predicted=196, dull=90, fitted=False),
    Cell(predictions.AB, "d", published=-2, predicted=-1.5, dull=0, fitted=False, points=True),
]


def filled_points(figure: Figure) -> int:
    """Published numbers to which constants were fitted; legends have no more than one."""
    points = [line for axes in figure.axes for line in axes.get_lines() if len(line.get_xdata()) == 1]
    return sum(line.get_markerfacecolor() != "white" for line in points)


class TestErrors:
    def test_are_those_of_predicted_cells(self) -> None:
        found = predictions.errors(CELLS)
        time, ab = found["time"], found[predictions.AB]
        assert time.cells == 2
        numbers = (time.mean, time.largest, time.dull_mean, time.dull_largest, time.correlation, ab.mean, ab.dull_mean)
        assert numbers == pytest.approx((6, 10, 32.5, 55, 1, 0.5, 2))

    def test_in_words_have_the_dull_guess_beside_them(self) -> None:
        words = predictions.in_words("time", predictions.errors(CELLS)["time"])
        assert words == "time: mean error 6, largest 10 % over 2 predicted cells (dull guess 32 and 55)"

    @pytest.mark.parametrize(("program", "quantity", "fitted", "count"), (
        ("compare_ddp", "backward of async", 3, 6),
        ("bucketed_ddp", predictions.TOTAL, 3, 8),
        ("ddp_suite", predictions.ITERATION, 5, 20),
        ("ddp_suite", predictions.AB, 4, 16),
    ))  # fmt: skip
    def test_fitted_cells_are_few(self, program: str, quantity: str, fitted: int, count: int) -> None:
        found = predictions.EXPERIMENTS[program](TEST_DATA / f"{program}.simulated.json")
        cells = [cell for cell in found if cell.quantity == quantity]
        assert (sum(cell.fitted for cell in cells), len(cells)) == (fitted, count)

    def test_best_sizes_are_counted_by_panel(self) -> None:
        assert predictions.best_sizes(predictions.bucketed_ddp(BUCKETED)) == (2, 2)

    def test_overhead_is_beyond_the_round_without_ddp(self) -> None:
        cells = {cell.place: cell for cell in predictions.ddp_suite(SUITE) if cell.quantity == predictions.OVERHEAD}
        assert cells["resnet101, 1 GPUs"].published == pytest.approx(0.009)
        assert cells["resnext101_32x8d, 16 GPUs"].published == pytest.approx(0.035)


class TestDrawings(ScriptTest):
    def test_compare_ddp_has_fitted_points(self) -> None:
        (figure,) = self.drawn(compare_ddp_published, COMPARE)
        assert filled_points(figure) == 2 * 3 * 3

    def test_bucketed_ddp_has_lines_and_points(self) -> None:
        (figure,) = self.drawn(bucketed_ddp_published, BUCKETED)
        assert filled_points(figure) == 2 * len([way for way in predictions.FITTED_WAYS if way.local_bs == 2])
        panel = figure.axes[0]
        assert list(panel.get_xticks()) == [1, 10, 100, 1000]
        assert len([line for line in panel.get_lines() if len(line.get_xdata()) == 4]) == 2

    def test_bucketed_ddp_of_stage_01_has_the_published_points(self) -> None:
        stage_01 = keep(lambda of: of["variant"] not in ("overlapped", "bucketed"))
        (figure,) = self.drawn(bucketed_ddp_published, self.changed("bucketed_ddp.simulated", stage_01))
        assert list(figure.axes[0].get_xticks()) == [1, 10, 100, 1000]
        assert filled_points(figure) > 0

    def test_ddp_suite_has_lines_and_points(self) -> None:
        (figure,) = self.drawn(ddp_suite_published, SUITE)
        assert filled_points(figure) == 5 + 5 + 4
        assert len(figure.axes) == 12
        points = [line for line in figure.axes[1].get_lines() if len(line.get_xdata()) == 1]
        assert [line.get_ydata()[0] for line in points] == [171, 176, 176, 179, 179]

    def test_held_out_is_drawn_and_set(self) -> None:
        (figure,) = self.drawn(held_out, BUCKETED)
        assert "PyTorch's suite, 64 V100" in words_of(figure)
        (table,) = self.made(held_out, BUCKETED).values()
        assert ["C, 2 T4"] == list(dict.fromkeys(row[0] for row in table["rows"] if row[0].startswith("C")))

    @pytest.mark.parametrize(("script", "sample", "name"), (
        (compare_ddp, COMPARE, "compare_ddp"),
        (bucketed_ddp, BUCKETED, "bucketed_ddp"),
        (ddp_suite, SUITE, "ddp_suite.Reducer_25MB"),
    ))  # fmt: skip
    def test_tables_say_that_times_are_simulated(self, script: ModuleType, sample: str, name: str) -> None:
        note = self.made(script, sample)[name]["note"]
        assert "Simulated cluster: " in note
        assert "make test shows values" in note

    def test_predictions_have_a_row_for_each_quantity(self) -> None:
        table = self.made(predictions_table, COMPARE, BUCKETED, SUITE)["predictions"]
        rows = {(row[0], row[1]): row[2:] for row in table["rows"]}
        assert len(rows) == 6 + 2 + 3
        assert rows["bucketed_ddp", predictions.TOTAL][0] == "5"
        assert rows["ddp_suite", predictions.AB][1].endswith(" points")
        assert "in 2 of 2 panels" in table["note"]
