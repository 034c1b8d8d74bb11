"""Figures and tables at published scale, and how predictions are compared with published numbers, on small data."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from figures.lib import ddp_comparison, predictions, result_files, suite_data, training_times
from figures.lib.predictions import Cell
from figures.plots import bucketed_ddp_published, compare_ddp_published, ddp_suite_published
from figures.tables import bucketed_ddp, compare_ddp, ddp_suite
from figures.tables import predictions as predictions_table
from tests.figures.figure_test import TEST_DATA, FigureTest, texts_of  # first: it finds the scripts

COMPARE, BUCKETED, SUITE = (TEST_DATA / f"{program}.simulated.json" for program in predictions.EXPERIMENTS)
TIMES_ONLY = "make test shows values"


def texts(figure: Figure) -> str:
    return " ".join(" ".join(text.split()) for text in texts_of(figure))


def filled_points(figure: Figure) -> int:
    """Published numbers to which constants were fitted; legends have no more than one."""
    points = [line for axes in figure.axes for line in axes.get_lines() if len(line.get_xdata()) == 1]
    return sum(line.get_markerfacecolor() != "white" for line in points)


class Errors(unittest.TestCase):
    CELLS = (
        Cell("time", "a", published=100, predicted=50, dull=100, fitted=True),
        Cell("time", "b", published=100, predicted=110, dull=90, fitted=False),
        Cell("time", "c", published=200, predicted=196, dull=90, fitted=False),
        Cell(predictions.AB, "d", published=-2, predicted=-1.5, dull=0, fitted=False, points=True),
    )

    def test_are_those_of_predicted_cells(self) -> None:
        found = predictions.errors(list(self.CELLS))
        time = found["time"]
        self.assertEqual(time.cells, 2)
        for value, expected in (
            (time.mean, 6), (time.largest, 10), (time.dull_mean, 32.5), (time.dull_largest, 55), (time.correlation, 1),
            (found[predictions.AB].mean, 0.5), (found[predictions.AB].dull_mean, 2),
        ):  # fmt: skip
            self.assertAlmostEqual(value, expected)

    def test_in_words_have_the_dull_guess_beside_them(self) -> None:
        words = predictions.in_words("time", predictions.errors(list(self.CELLS))["time"])
        self.assertEqual(words, "time: mean error 6, largest 10 % over 2 predicted cells (dull guess 32 and 55)")

    def test_fitted_cells_are_few(self) -> None:
        for file, quantity, fitted, count in (
            (COMPARE, "backward of async", 3, 6),
            (BUCKETED, predictions.TOTAL, 3, 8),
            (SUITE, predictions.ITERATION, 5, 20),
            (SUITE, predictions.AB, 4, 16),
        ):
            program = file.name.split(".")[0]
            cells = [cell for cell in predictions.EXPERIMENTS[program](file) if cell.quantity == quantity]
            self.assertEqual((sum(cell.fitted for cell in cells), len(cells)), (fitted, count), quantity)

    def test_best_sizes_are_counted_by_panel(self) -> None:
        self.assertEqual(predictions.best_sizes(predictions.bucketed_ddp(BUCKETED)), (2, 2))

    def test_overhead_is_beyond_the_round_without_ddp(self) -> None:
        cells = {cell.place: cell for cell in predictions.ddp_suite(SUITE) if cell.quantity == predictions.OVERHEAD}
        self.assertAlmostEqual(cells["resnet101, 1 GPUs"].published, 0.009)
        self.assertAlmostEqual(cells["resnext101_32x8d, 16 GPUs"].published, 0.035)


class Drawings(FigureTest):
    """The figures and tables, by their scripts."""

    def test_are_written(self) -> None:
        for script, file, names in (
            (compare_ddp_published, COMPARE, ["compare_ddp"]),
            (bucketed_ddp_published, BUCKETED, ["bucketed_batch_size_2"]),
            (ddp_suite_published, SUITE, ["ddp_suite"]),
        ):
            self.script = script
            out = self.folder / script.__name__
            self.assertEqual(self.draw(file, out=out), (0, ""))
            expected = [f"{name}.solutions.published.{ending}" for name in names for ending in ("pdf", "png")]
            self.assertEqual(sorted(each.name for each in out.iterdir()), expected)

    def test_refuse_what_was_measured(self) -> None:
        for script, name in (
            (compare_ddp_published, "compare_ddp"),
            (bucketed_ddp_published, "bucketed_ddp"),
            (ddp_suite_published, "ddp_suite"),
            (predictions_table, "ddp_suite"),
        ):
            self.script = script
            self.assert_refused([TEST_DATA / f"{name}.json"], "was measured, not simulated; run its program with")

    def test_compare_ddp_has_lines_and_points(self) -> None:
        result = result_files.load(COMPARE, "compare_ddp")
        figure = compare_ddp_published.draw(result, COMPARE)
        self.assertEqual(filled_points(figure), 2 * 3 * 3)
        words = texts(figure)
        for part in ("stage 03 (reverse order)", "async (Python DDP, forward order)", "published, fitted", TIMES_ONLY,
                     "Backward of async: mean error", "2 GPUs (V100)"):  # fmt: skip
            self.assertIn(part, words)

    def test_bucketed_ddp_has_lines_and_points(self) -> None:
        result, trainings = training_times.load_trainings(BUCKETED)
        figure = bucketed_ddp_published.draw(result, trainings, 2)
        fitted = [way for way in predictions.FITTED_WAYS if way.local_bs == 2]
        self.assertEqual(filled_points(figure), 2 * len(fitted))
        panel = figure.axes[0]
        self.assertEqual(list(panel.get_xticks()), [1, 10, 100, 1000])
        lines = [line for line in panel.get_lines() if len(line.get_xdata()) == 4]
        self.assertEqual(len(lines), 2)
        self.assertIn(TIMES_ONLY, texts(figure))

    def test_bucketed_ddp_of_stage_01_has_the_published_points(self) -> None:
        document = json.loads(BUCKETED.read_text())
        document["series"] = [s for s in document["series"] if s["labels"]["variant"] not in ("overlapped", "bucketed")]
        file = self.folder / "stage_01.json"
        file.write_text(json.dumps(document))
        figure = bucketed_ddp_published.draw(*training_times.load_trainings(file), 2)
        self.assertEqual(list(figure.axes[0].get_xticks()), [1, 10, 100, 1000])
        self.assertGreater(filled_points(figure), 0)
        self.assertIn("Left out: unfinished: bucketed, overlapped.", texts(figure))

    def test_ddp_suite_has_lines_and_points(self) -> None:
        figure = ddp_suite_published.draw(suite_data.Suite(SUITE))
        self.assertEqual(filled_points(figure), 5 + 5 + 4)
        self.assertEqual(len(figure.axes), 12)
        points: list[Line2D] = [line for line in figure.axes[1].get_lines() if len(line.get_xdata()) == 1]
        self.assertEqual([line.get_ydata()[0] for line in points], [171, 176, 176, 179, 179])

    def table(self, script: Any, *files: Path) -> dict[str, Any]:
        self.script = script
        out = self.folder / "tables"
        self.assertEqual(self.draw(*files, out=out), (0, ""))
        return {each.name.split(".solutions")[0]: json.loads(each.read_text()) for each in out.glob("*.json")}

    def test_tables_say_that_times_are_simulated(self) -> None:
        for script, file, name in (
            (compare_ddp, COMPARE, "compare_ddp"),
            (bucketed_ddp, BUCKETED, "bucketed_ddp"),
            (ddp_suite, SUITE, "ddp_suite.Reducer_25MB"),
        ):
            note = self.table(script, file)[name]["note"]
            self.assertIn("Simulated cluster: ", note)
            self.assertIn(TIMES_ONLY, note)

    def test_predictions_have_a_row_for_each_quantity(self) -> None:
        table = self.table(predictions_table, COMPARE, BUCKETED, SUITE)["predictions"]
        rows = {(row[0], row[1]): row[2:] for row in table["rows"]}
        self.assertEqual(len(rows), 6 + 2 + 3)
        self.assertEqual(rows["bucketed_ddp", predictions.TOTAL][0], "5")
        self.assertTrue(rows["ddp_suite", predictions.AB][1].endswith(" points"))
        self.assertIn("in 2 of 2 panels", table["note"])


class Spread(unittest.TestCase):
    def test_is_the_published_one(self) -> None:
        predicted = ddp_comparison.measured(result_files.load(COMPARE, "compare_ddp"))
        spread = ddp_comparison.with_published_spread(predicted)
        theirs = ddp_comparison.published()[14]["backward"]["async"]
        own = spread[14]["backward"]["async"]
        self.assertEqual(own.p50, predicted[14]["backward"]["async"].p50)
        self.assertAlmostEqual(own.p90 / own.p50, theirs.p90 / theirs.p50)
