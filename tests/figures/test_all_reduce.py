"""The figures and tables of stage 05 (except collectives), and published numbers, on small data, good and bad."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from typing import Any

from figures.lib import all_reduce_costs, reference_data, result_files
from figures.plots import all_reduce_algorithms, ring_all_reduce
from figures.tables import ring_all_reduce as ring_all_reduce_table
from tests.figures.figure_test import TEST_DATA, FigureTest, texts_of  # first: it finds the scripts


class ReferenceData(unittest.TestCase):
    def refuse(self, text: str | None, message: str) -> None:
        if text is not None:
            (self.folder / "table.csv").write_text(text)
        with self.assertRaisesRegex(result_files.ResultError, message):
            reference_data.load_reference("table", self.folder).numbers("time")

    def test_every_table_says_where_it_comes_from(self) -> None:
        files = sorted(reference_data.FOLDER.glob("*.csv"))
        self.assertTrue(files)
        for file in files:
            first = reference_data.load_reference(file.stem).source[0]
            self.assertRegex(first, r"^Source: (\S+\.txt|.*\barXiv:\d|.*/README\.md,)|^Sources: ")

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
    warm = TEST_DATA / "ring_all_reduce.warm.json"

    def drawn(self, file: Path) -> tuple[list[str], list[int]]:
        """The texts of its figure, and the number of lines in each panel."""
        figure = ring_all_reduce.draw(result_files.load(file, "ring_all_reduce"))
        texts = texts_of(figure)
        return texts, [len(axes.get_lines()) for axes in figure.axes]

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "ring_all_reduce.solutions.quick")

    def test_warm_calls_have_a_figure_of_their_own(self) -> None:
        self.assert_drawn([self.warm], "ring_all_reduce.warm.solutions.quick")

    def test_warm_calls_are_not_drawn_beside_published_numbers(self) -> None:
        texts, lines = self.drawn(self.warm)
        self.assertFalse([text for text in texts if "ublished" in text])
        self.assertTrue(any("calls to warm up" in text for text in texts))
        self.assertEqual(lines, [2, 2, 3, 3, 2, 2, 2, 2])  # memory's zero is a line, too

    def test_refuses_an_unknown_procedure(self) -> None:
        other = self.changed(lambda d: d["parameters"].update(procedure="cold"))
        self.assert_refused([other], "its procedure is 'cold', which no benchmark has")

    def test_says_what_was_measured_and_what_is_published(self) -> None:
        texts, lines = self.drawn(self.sample)
        for expected in (
            "ring and butterfly",
            "ring and Gloo's all_reduce",
            "published",
            "time [ms]",
            "more ranks than the 2 cores here",
        ):
            self.assertIn(expected, texts)
        self.assertTrue(any("with torch version 2.1.2; 2x nvidia RTX A4000" in text for text in texts))
        self.assertTrue(any("commit 01234567" in text for text in texts), texts)
        self.assertEqual(lines, [4, 4, 5, 5, 4, 4])  # memory's zero is a line, too

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
        for parameter in ring_all_reduce.PARAMETERS:
            without = self.changed(lambda d, name=parameter: d["parameters"].pop(name))
            self.assert_refused([without], f"lacks the parameter {parameter!r}")
        self.assert_refused([self.changed(lambda d: d["series"][0].update(unit="ms"))], "in 'ms', not in 's'")
        without_size = self.changed(lambda d: d["series"][0]["labels"].pop("tensor_size"))
        self.assert_refused([without_size], "has a series without world_size and tensor_size")
        other = self.changed(lambda d: d.update(series=[{"labels": {"a": 1}, "unit": "s", "values": [1]}]))
        self.assert_refused([other], "has no series beside butterfly or all_reduce")


# As published, except the lines of dashes, which were typed by hand there: some are shorter than the names above.
PUBLISHED = {
    "butterfly": """\
Comprasion with given butterfly all reduce

| world_size | tensor_size | ring_max_time_consumed | butterfly_max_time_consumed | ring_max_memory | butterfly_max_memory | diff_ring | diff_butterfly |
|------------|-------------|------------------------|-----------------------------|-----------------|----------------------|-----------|----------------|
| 1 | 1 | 0.017 | 0.012 | 379424.0 | 379424.0 | 0.0000 | 0.0000 |
| 2 | 2 | 0.024 | 0.026 | 380787.2 | 380966.4 | 0.0000 | 0.0000 |
| 4 | 4 | 0.026 | 0.027 | 380989.6 | 380996.0 | 2.3592e-16 | 0.0000 |
| 8 | 8 | 0.034 | 0.031 | 382106.8 | 382218.8 | 2.5535e-15 | 1.6653e-15 |
| 16 | 16 | 0.043 | 0.036 | 382266.0 | 382289.6 | 1.8666e-14 | 5.0515e-15 |
| 32 | 32 | 0.057 | 0.048 | 382398.4 | 382439.6 | 3.7367e-14 | 1.6990e-14 |

to reproduce: `python allredce.py`
""",  # noqa: E501
    "all_reduce": """\
Comprasion with pytorch all reduce

| world_size | tensor_size | ring_max_time_consumed | torch_max_time_consumed | ring_max_memory | torch_max_memory | diff_ring | diff_torch |
|------------|-------------|------------------------|-------------------------|-----------------|------------------|-----------|------------|
| 1 | 1024 | 0.015 | 0.020 | 382460.0 | 382460.0 | 0.0000 | 0.0000 |
| 2 | 2048 | 0.028 | 0.025 | 382460.0 | 382460.0 | 0.0000 | 0.0000 |
| 4 | 4096 | 0.024 | 0.026 | 382523.2 | 382586.4 | 2.4260e-12 | 2.7529e-12 |
| 8 | 16384 | 0.030 | 0.032 | 384578.4 | 385378.8 | 1.0071e-11 | 1.1579e-11 |
| 16 | 131072 | 0.359 | 0.258 | 405353.2 | 410945.6 | 7.6576e-11 | 8.7605e-11 |

to reproduce: `python allredce.py`
""",  # noqa: E501
}


class RingAllReduceTable(FigureTest):
    script = ring_all_reduce_table
    sample = TEST_DATA / "ring_all_reduce.json"
    names = tuple(f"{table.reference}.solutions.quick" for table in ring_all_reduce.TABLES)

    def made(self, file: Path) -> list[dict[str, Any]]:
        self.assertEqual(self.draw(file), (0, ""))
        return [json.loads((self.folder / "out" / f"{name}.json").read_text()) for name in self.names]

    def test_published_numbers_give_the_published_text(self) -> None:
        for table in ring_all_reduce.TABLES:
            columns = ring_all_reduce_table.columns_of(table)
            reference = reference_data.load_reference(table.reference)
            self.assertEqual(columns, list(reference.columns))
            rows = [list(row) for row in zip(*(reference.numbers(column) for column in columns))]
            text = ring_all_reduce_table.text_of(table, rows, "python allredce.py")
            self.assertEqual(text, PUBLISHED[table.peer])

    def test_small_times_show_two_digits(self) -> None:
        texts = {0.0: "0.000", 12.3456: "12.346", 0.02: "0.020", 2.44e-4: "0.00024", 7e-6: "0.0000070"}
        for seconds, text in texts.items():
            self.assertEqual(ring_all_reduce_table.seconds_text(seconds), text)

    def test_warm_calls_have_tables_of_their_own(self) -> None:
        self.assertEqual(self.draw(TEST_DATA / "ring_all_reduce.warm.json"), (0, ""))
        for part in ("butterfly", "torch"):
            file = self.folder / "out" / f"ring_all_reduce.warm.{part}.solutions.quick.json"
            table = json.loads(file.read_text())
            self.assertTrue(table["title"].endswith(": warm calls"))
            self.assertIn("of a warm call alone", table["note"])

    def test_rows_are_means_of_all_worlds(self) -> None:
        def simple(document: dict[str, Any]) -> None:
            values = {"time": [1.0, 2.0], "maxrss": [1000, 1001], "diff": [0, 2e-15], "allocated": [1, 1]}
            for series in document["series"]:
                series["values"] = values[series["labels"]["quantity"]]

        butterfly, torch = self.made(self.changed(simple))
        self.assertEqual([row[0] for row in butterfly["rows"]], ["1", "2", "4", "8", "16", "32"])
        self.assertEqual(butterfly["rows"][1], ["2", "2", *["1.500"] * 2, *["1000.5"] * 2, *["1.0000e-15"] * 2])
        self.assertEqual(torch["rows"][4][:2], ["16", "131072"])
        self.assertEqual(torch["columns"][3], "torch_max_time_consumed")
        self.assertIn("torch: Gloo's all_reduce.", torch["note"])
        for document in (butterfly, torch):
            self.assertIn("| 1.500 | 1.500 | 1000.5 |", document["text"])
            self.assertTrue(document["text"].endswith(f"to reproduce: `{document['provenance'][0]['command']}`\n"))

    def test_one_table_will_do(self) -> None:
        self.assertEqual(self.draw(self.kept(lambda labels: labels["world_size"] == 32)), (0, ""))
        self.assertEqual(len(list((self.folder / "out").iterdir())), 2 * 2)  # with the published one beside it

    def test_refuses_what_is_missing(self) -> None:
        first = self.changed(lambda d: d["series"].pop(0))
        self.assert_refused([first], "has 0 series of peer butterfly, world_size 1")
        self.assert_refused(
            [self.changed(lambda d: d["parameters"].pop("repetitions"))], "lacks the parameter 'repetitions'"
        )
        other = self.changed(lambda d: d.update(series=[{"labels": {"a": 1}, "unit": "s", "values": [1]}]))
        self.assert_refused([other], "has no series beside butterfly or all_reduce")


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
            return texts_of(figure)

        exact = texts(self.sample)
        self.assertTrue(any("They agree exactly where the ranks divide" in text for text in exact), exact)
        for expected in ("8 ranks", "a tensor of 4 KiB", "85.9 KiB", "time [ms]"):
            self.assertIn(expected, exact)
        larger = texts(self.changed(lambda d: d["parameters"].update(worlds_on_cluster="32, 64")))
        self.assertTrue(any("From 32 ranks on: one for all." in text for text in larger), larger)
        slower = texts(self.changed(lambda d: d["series"][0].update(values=[1.0])))
        self.assertFalse(any("exactly" in text for text in slower), slower)

    def test_refuses_what_is_missing(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"].pop())], "has 0 series of algorithm tree, world_size 8")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("alpha_ns"))], "lacks the parameter 'alpha_ns'")
        other = self.changed(lambda d: d["series"][0]["labels"].update(more=1))
        self.assert_refused([other], "has series of something else")
