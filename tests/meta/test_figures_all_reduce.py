"""The figure scripts of stage 05, and published numbers, on small data, good and bad."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from typing import Any

from figure_test import FigureTest, TEST_DATA  # first: it finds the scripts

import all_reduce_algorithms
import all_reduce_bandwidth
import all_reduce_costs
import reference_data
import result_files
import ring_all_reduce
from matplotlib.text import Text


class ReferenceData(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def refuse(self, text: str | None, message: str) -> None:
        if text is not None:
            (self.folder / "table.csv").write_text(text)
        with self.assertRaisesRegex(result_files.ResultError, message):
            reference_data.load_reference("table", self.folder).numbers("time")

    def test_every_table_says_where_it_comes_from(self) -> None:
        files = sorted(reference_data.FOLDER.glob("*.csv"))
        self.assertTrue(files)
        for file in files:
            self.assertRegex(reference_data.load_reference(file.stem).source[0], r"^Source: \S+\.txt")

    def test_ring_tables_are_whole(self) -> None:
        for name, worlds in (("butterfly", [1, 2, 4, 8, 16, 32]), ("torch", [1, 2, 4, 8, 16])):
            table = reference_data.load_reference(f"ring_all_reduce.{name}")
            self.assertEqual(table.numbers("world_size"), worlds)
            self.assertEqual(len(table.columns), 8)
            for column in table.columns:
                self.assertEqual(len(table.numbers(column)), len(worlds))
        self.assertEqual(table.columns["diff_torch"][-1], "8.7605e-11")
        self.assertEqual(table.columns["ring_max_memory"][-1], "405353.2")

    def test_refuses_what_is_broken(self) -> None:
        self.refuse(None, "table.csv: cannot be read")
        self.refuse("time\n1\n", "has no source or no rows")
        self.refuse("# Source\ntime\n", "has no source or no rows")
        self.refuse("# Source\n", "has no source or no rows")
        self.refuse("# Source\ntime,size\n1\n", "the row 1 does not fit the header time,size")
        self.refuse("# Source\ntime,time\n1,2\n", "names of columns are repeated")
        self.refuse("# Source\nsize\n1\n", "lacks the column 'time'; it has size")
        self.refuse("# Source\ntime\nfast\n", "the column 'time' is not all numbers")


class RingAllReduce(FigureTest):
    script = ring_all_reduce
    sample = TEST_DATA / "ring_all_reduce.json"

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "ring_all_reduce.solutions.quick")

    def test_says_what_was_measured_and_what_is_published(self) -> None:
        figure = ring_all_reduce.draw(result_files.load(self.sample, "ring_all_reduce"))
        texts = [text.get_text() for text in figure.findobj(Text)]
        for expected in ("ring and butterfly", "ring and Gloo's all_reduce", "published", "time [ms]",
                         "more ranks than the 2 cores here"):
            self.assertIn(expected, texts)
        self.assertTrue(any("Published with torch version 2.1.2; 2x nvidia RTX A4000" in text for text in texts))
        self.assertTrue(any("commit 01234567" in text for text in texts), texts)
        lines = [len(axes.get_lines()) for axes in figure.axes]
        self.assertEqual(lines, [4, 4, 5, 5, 2, 2, 4, 4])  # memory's zero is a line, too

    def test_draws_means_beside_the_published_numbers(self) -> None:
        result = result_files.load(self.sample, "ring_all_reduce")
        table, time = ring_all_reduce.TABLES[0], ring_all_reduce.QUANTITIES[0]
        first = [series for series in result.series if series["labels"]["quantity"] == "time"][0]
        own = ring_all_reduce.measured(result, table, "ring", time)
        self.assertEqual([world for world, _ in own], [1, 2, 4, 8, 16, 32])
        self.assertAlmostEqual(own[0][1], 1e3 * sum(first["values"]) / len(first["values"]))
        self.assertEqual(ring_all_reduce.published(table, "butterfly", time)[1], (2, 26.0))

    def test_one_world_and_one_table_will_do(self) -> None:
        def keep(document: dict[str, Any]) -> None:
            kept = [one for one in document["series"] if one["labels"]["world_size"] == 32]
            document["series"] = kept

        self.assertEqual(self.draw(self.changed(keep)), (0, ""))

    def test_refuses_what_is_missing(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"].pop())], "has 0 series of peer butterfly, world_size")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("rounds"))], "lacks the parameter 'rounds'")
        self.assert_refused([self.changed(lambda d: d["series"][0].update(unit="ms"))], "in 'ms', not in 's'")
        without_size = self.changed(lambda d: d["series"][0]["labels"].pop("tensor_size"))
        self.assert_refused([without_size], "has a series without world_size and tensor_size")
        other = self.changed(lambda d: d.update(series=[{"labels": {"a": 1}, "unit": "s", "values": [1]}]))
        self.assert_refused([other], "has no series beside butterfly or all_reduce")


class AllReduceBandwidth(FigureTest):
    script = all_reduce_bandwidth
    sample = TEST_DATA / "all_reduce_bandwidth.json"

    def texts(self, file: Path) -> list[str]:
        figure = all_reduce_bandwidth.draw(result_files.load(file, "all_reduce_bandwidth"))
        return [text.get_text() for text in figure.findobj(Text)]

    def without(self, variant: str) -> Path:
        def change(document: dict[str, Any]) -> None:
            document["series"] = [one for one in document["series"] if one["labels"]["variant"] != variant]

        return self.changed(change, "without.json")

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "all_reduce_bandwidth.solutions.quick")

    def test_fit_finds_the_alpha_and_beta_of_exact_times(self) -> None:
        for ranks, alpha, beta in ((2, 20e-6, 1e-9), (5, 1e-3, 3e-11), (3, 0, 1e-9), (3, 1e-5, 0)):
            times = {size: all_reduce_bandwidth.model_seconds(size, ranks, alpha, beta) for size in (4096, 2**20)}
            fitted = all_reduce_bandwidth.fit(times, ranks)
            self.assertAlmostEqual(fitted[0], alpha, delta=1e-12)
            self.assertAlmostEqual(fitted[1], beta, delta=1e-15)

    def test_fitted_numbers_are_never_negative(self) -> None:
        for times in ({1024: 1e-6, 2048: 4e-6, 4096: 16e-6}, {1024: 4e-6, 2048: 2e-6, 4096: 1e-6}):
            fitted = all_reduce_bandwidth.fit(times, 2)
            self.assertEqual(min(fitted), 0)
            self.assertGreater(max(fitted), 0)

    def test_bus_bandwidth_is_that_of_nccl_tests(self) -> None:
        self.assertAlmostEqual(all_reduce_bandwidth.bus_bandwidth(4e9, 2, 4), 3)

    def test_says_what_was_measured_and_fitted(self) -> None:
        texts = self.texts(self.sample)
        for expected in ("2 ranks, the machine's own link", "bus bandwidth [GB/s]"):
            self.assertIn(expected, texts)
        for variant in ("ring", "pipelined ring", "butterfly", "Gloo's all_reduce"):
            self.assertTrue(any(text.startswith(f"{variant}: α = ") for text in texts), texts)
        self.assertFalse(any("Left out" in text for text in texts))

    def test_says_what_was_left_out(self) -> None:
        texts = self.texts(self.without("pipelined ring"))
        self.assertTrue(any("Left out: unfinished: pipelined ring." in text for text in texts), texts)

    def test_refuses_what_is_missing(self) -> None:
        self.assert_refused([self.without("ring")], "lacks the variant 'ring'")
        self.assert_refused([self.changed(lambda d: d["series"].pop())], "needs two sizes or more, the same of each")
        self.assert_refused([self.changed(lambda d: d["provenance"].update(world_size=1))], "one rank has no bus")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("rate_gbit"))], "lacks the parameter")


class AllReduceAlgorithms(FigureTest):
    script = all_reduce_algorithms
    sample = TEST_DATA / "all_reduce_algorithms.json"
    network = {"alpha_ns": 10_000, "beta_ns_per_byte": 1.0}

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "all_reduce_algorithms.solutions.quick")

    def test_formulas_are_those_of_the_literature(self) -> None:
        for algorithm, world, expected in (
            ("ring", 8, 14 * (10_000 + 1_024)),
            ("butterfly", 2, 2 * (10_000 + 4_096)),
            ("butterfly", 8, 14 * (10_000 + 1_024)),
            ("recursive doubling", 8, 3 * (10_000 + 8_192)),
            ("recursive doubling", 7, 4 * (10_000 + 8_192)),
            ("tree", 8, 6 * (10_000 + 8_192)),
            ("tree", 5, 6 * (10_000 + 8_192)),
            ("tree", 1, 0),
        ):
            seconds = all_reduce_costs.formula_seconds(algorithm, world, 8_192, self.network)
            self.assertAlmostEqual(seconds, 1e-9 * expected, msg=f"{algorithm}, {world} ranks")

    def test_crossovers_are_where_times_are_equal(self) -> None:
        for world in (3, 4, 8, 16):
            size = all_reduce_costs.crossover("ring", "recursive doubling", world, self.network)
            times = [
                all_reduce_costs.formula_seconds(algorithm, world, size, self.network)
                for algorithm in ("ring", "recursive doubling")
            ]
            self.assertAlmostEqual(times[0] / times[1], 1)
        self.assertAlmostEqual(all_reduce_costs.crossover("ring", "recursive doubling", 8, self.network), 88_000)
        for world, one, other in ((2, "ring", "recursive doubling"), (8, "ring", "butterfly")):
            self.assertIsNone(all_reduce_costs.crossover(one, other, world, self.network))

    def test_simulation_and_formulas_agree(self) -> None:
        times = all_reduce_algorithms.times_of(result_files.load(self.sample, "all_reduce_algorithms"))
        self.assertLess(all_reduce_algorithms.largest_difference(times, self.network, divisible=True), 1e-9)
        self.assertLess(all_reduce_algorithms.largest_difference(times, self.network, divisible=False), 1e-2)

    def test_says_how_well_they_agree(self) -> None:
        def texts(file: Path) -> list[str]:
            figure = all_reduce_algorithms.draw(result_files.load(file, "all_reduce_algorithms"))
            return [text.get_text() for text in figure.findobj(Text)]

        exact = texts(self.sample)
        self.assertTrue(any("They agree exactly where the ranks divide" in text for text in exact), exact)
        for expected in ("8 ranks", "a tensor of 4 KiB", "85.9 KiB", "time [ms]"):
            self.assertIn(expected, exact)
        slower = texts(self.changed(lambda d: d["series"][0].update(values=[1.0])))
        self.assertFalse(any("exactly" in text for text in slower), slower)

    def test_refuses_what_is_missing(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"].pop())], "has 0 series of algorithm tree, world_size 8")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("alpha_ns"))], "lacks the parameter 'alpha_ns'")
        other = self.changed(lambda d: d["series"][0]["labels"].update(more=1))
        self.assert_refused([other], "has series of something else")


if __name__ == "__main__":
    unittest.main()
