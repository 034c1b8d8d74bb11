"""The figures and tables of ddp_suite, and its published numbers, on small data, good and bad."""

from __future__ import annotations

import json
import unittest
from typing import Any

from figures.lib import reference_data, suite_data
from figures.plots import ddp_suite, ddp_suite_ab
from figures.tables import ddp_suite as ddp_suite_table
from figures.tables import ddp_suite_ab as ddp_suite_ab_table
from tests.figures.figure_test import TEST_DATA, FigureTest, texts_of  # first: it finds the scripts

SAMPLE = TEST_DATA / "ddp_suite.json"
AB_SAMPLE = TEST_DATA / "ddp_suite.ab.json"
MODELS = ("resnet50", "resnet101", "resnext50_32x4d", "resnext101_32x8d")
PERCENTS = ["50", "75", "90", "95"]


class Published(unittest.TestCase):
    def test_suite_is_whole(self) -> None:
        columns = reference_data.load_reference("ddp_suite").columns
        self.assertEqual({len(column) for column in columns.values()}, {96})
        cells = set(zip(columns["model"], columns["round"], columns["percentile"]))
        rounds = ["no ddp", "1M/1G", "1M/2G", "1M/4G", "1M/8G", "2M/8G"]
        self.assertEqual(cells, {(m, r, p) for m in MODELS for r in rounds for p in PERCENTS})
        self.assertEqual(columns["gpus"][::4][:6], ["1", "1", "2", "4", "8", "16"])

    def test_differences_are_whole(self) -> None:
        columns = reference_data.load_reference("ddp_suite_diff").columns
        self.assertEqual({len(column) for column in columns.values()}, {40})
        cells = set(zip(columns["model"], columns["gpus"], columns["percentile"]))
        gpus = ["1", "2", "4", "8", "16"]
        self.assertEqual(cells, {(m, g, p) for m in MODELS for g in gpus for p in ("75", "95")})

    def test_throughput_follows_from_time(self) -> None:
        for name in ("ddp_suite", "ddp_suite_diff"):
            table = reference_data.load_reference(name)
            for seconds, examples in zip(table.numbers("sec/iter"), table.numbers("ex/sec")):
                # Both are printed with three digits; ex/sec is truncated.
                self.assertLessEqual(32 / (seconds + 0.0005), examples + 1)
                self.assertGreaterEqual(32 / (seconds - 0.0005), examples)

    def test_times_grow_with_the_percentile(self) -> None:
        for name, count in (("ddp_suite", 4), ("ddp_suite_diff", 2)):
            times = reference_data.load_reference(name).numbers("sec/iter")
            for start in range(0, len(times), count):
                self.assertEqual(times[start : start + count], sorted(times[start : start + count]))

    def test_prints_what_is_published(self) -> None:
        text = ddp_suite_table.blocks(suite_data.load_published(), suite_data.PUBLISHED_BATCH)
        self.assertEqual(text, (TEST_DATA / "ddp_suite.published.txt").read_text())


class DdpSuite(FigureTest):
    script = ddp_suite
    sample = SAMPLE

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([SAMPLE], "ddp_suite.solutions.quick")

    def test_says_what_was_measured_and_what_is_published(self) -> None:
        figure = ddp_suite.draw(suite_data.Suite(SAMPLE))
        texts = texts_of(figure)
        for expected in (*MODELS, "stage 03", "c10d::Reducer", "examples/s of a rank",
                         "scaling efficiency [%]", "published: PyTorch 1.4, V100 GPUs, NCCL"):  # fmt: skip
            self.assertIn(expected, texts)
        self.assertTrue(any("commit 01234567" in text and "solutions" in text for text in texts), texts)
        self.assertEqual([len(axes.get_lines()) for axes in figure.axes], [3] * 4 + [4] * 4)

    def test_efficiency_is_relative_to_no_ddp(self) -> None:
        suite = suite_data.Suite(SAMPLE)
        points = ddp_suite.own_points(suite, "resnet50", suite.choices()[0])
        shares = ddp_suite.as_shares(points)
        self.assertEqual([point.place for point in points], ["no\nDDP", "1", "2"])
        self.assertAlmostEqual(shares[0].median, 100)
        self.assertAlmostEqual(shares[2].median, 100 * points[2].median / points[0].median)
        published = ddp_suite.as_shares(ddp_suite.published_points("resnet50"))
        self.assertAlmostEqual(published[-1].median, 100 * 306 / 329)

    def test_one_model_will_do(self) -> None:
        self.assertEqual(self.draw(self.kept(lambda labels: labels["model"] == "resnet101")), (0, ""))

    def test_refuses_what_is_missing(self) -> None:
        for change, message in (
            (lambda d: d["series"].clear(), "is empty"),
            (lambda d: d["series"][0]["values"].clear(), "has no values of"),
            (lambda d: d["series"].pop(0), "lacks resnet50 without DDP, or with bucketed, 25 MB"),
            (lambda d: d["series"][1]["labels"].pop("round"), "has a series without the label 'round'"),
            (lambda d: d["series"][1]["values"].append(0), "that is not above zero"),
            (lambda d: d["series"][1].update(unit="ms"), "in 'ms', not in 's'"),
            (lambda d: d["parameters"].pop("batch_size"), "lacks the parameter 'batch_size'"),
            (lambda d: d.update(program="step_time"), "comes from the program 'step_time'"),
            (lambda d: d.update(series=d["series"][:1]), "has no round with DDP"),
        ):
            self.assert_refused([self.changed(change)], message)

    def test_refuses_other_files(self) -> None:
        self.assert_refused([self.folder / "none.json"], "there is no such file; run the benchmark ddp_suite")
        report = self.folder / "report.json"
        report.write_text(json.dumps({"benchmark_results": []}))
        self.assert_refused([report], "is not a result of a benchmark")
        self.assert_refused([AB_SAMPLE], "has several bucket sizes; draw it with figures.plots.ddp_suite_ab")


class DdpSuiteTable(FigureTest):
    script = ddp_suite_table
    sample = SAMPLE

    def test_writes_a_table_for_each_variant(self) -> None:
        self.assertEqual(self.draw(SAMPLE), (0, ""))
        names = {file.name for file in (self.folder / "out").iterdir()}
        variants = ("bucketed", "Reducer")
        self.assertEqual(names, {
            f"ddp_suite.{variant}{part}.solutions.quick.{kind}"
            for variant in variants for part in ("", ".beside") for kind in ("txt", "json")
        })  # fmt: skip
        document = json.loads((self.folder / "out" / "ddp_suite.bucketed.solutions.quick.json").read_text())
        self.assertEqual(len(document["rows"]), 4 * 3)
        self.assertEqual({len(row) for row in document["rows"]}, {len(document["columns"])})

    def test_is_in_the_published_form(self) -> None:
        def simplify(document: dict[str, Any]) -> None:
            document["series"] = document["series"][:5]
            for index, one in enumerate(document["series"]):
                one["values"] = [0.1 * (index + 1), 0.1 * (index + 1) + 0.02]

        self.assertEqual(self.draw(self.changed(simplify)), (0, ""))
        text = json.loads((self.folder / "out" / "ddp_suite.Reducer.solutions.quick.json").read_text())["text"]
        header = " " * 28 + "    ".join(["sec/iter    ex/sec  "] * 4).rstrip()
        self.assertEqual(
            text,
            "Benchmark: resnet50 with batch size 4\n\n"
            f"{header}\n"
            "   1 GPUs --   no ddp:  p50:  0.110s      36/s  p75:  0.115s      34/s"
            "  p90:  0.118s      33/s  p95:  0.119s      33/s\n"
            "   1 GPUs --    1M/1G:  p50:  0.310s      12/s  p75:  0.315s      12/s"
            "  p90:  0.318s      12/s  p95:  0.319s      12/s\n"
            "   2 GPUs --    1M/2G:  p50:  0.510s       7/s  p75:  0.515s       7/s"
            "  p90:  0.518s       7/s  p95:  0.519s       7/s\n",
        )

    def test_several_bucket_sizes_have_a_table_each(self) -> None:
        self.assertEqual(self.draw(AB_SAMPLE), (0, ""))
        names = {file.name.split(".")[1] for file in (self.folder / "out").iterdir()}
        self.assertEqual(names, {f"{v}_{size}MB" for v in ("bucketed", "Reducer") for size in (25, 1)})


class DdpSuiteAb(FigureTest):
    script = ddp_suite_ab
    sample = AB_SAMPLE

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([AB_SAMPLE], "ddp_suite_ab.solutions.quick")

    def test_draws_differences_beside_the_published_ones(self) -> None:
        suite = ddp_suite_ab.load_ab(AB_SAMPLE)
        self.assertEqual(set(ddp_suite_ab.own_diffs(suite, "resnet50", "bucketed", 75)), {1, 2})
        figure = ddp_suite_ab.draw(suite)
        self.assertEqual(len(figure.axes), 2, "a column for the one model, a row for each percentile")
        self.assertEqual(ddp_suite_ab.published_diffs("resnet50", 95), {1: -0.4, 2: -1.0, 4: -1.8, 8: -2.7, 16: -16.4})
        texts = texts_of(figure)
        for expected in ("resnet50", "diff at p75 [%]", "diff at p95 [%]", "stage 03"):
            self.assertIn(expected, texts)

    def test_slower_is_negative(self) -> None:
        def slow_down(document: dict[str, Any]) -> None:
            for one in document["series"]:
                one["values"] = [1.5 if one["labels"].get("bucket_size") == 1 else 1.0] * 3

        suite = ddp_suite_ab.load_ab(self.changed(slow_down))
        self.assertEqual(ddp_suite_ab.own_diffs(suite, "resnet50", "Reducer", 95), {1: -50.0, 2: -50.0})

    def test_refuses_what_does_not_fit(self) -> None:
        self.assert_refused([SAMPLE], "has 1 bucket sizes, not two; run ddp_suite --bucket-size 25 1")
        self.assert_refused([self.changed(lambda d: d["series"].pop())], "on other ranks with one bucket size")


class DdpSuiteAbTable(FigureTest):
    script = ddp_suite_ab_table
    sample = AB_SAMPLE

    def test_is_in_the_published_form(self) -> None:
        self.assertEqual(self.draw(AB_SAMPLE), (0, ""))
        text = json.loads((self.folder / "out" / "ddp_suite_ab.bucketed.solutions.quick.json").read_text())["text"]
        lines, published = text.splitlines(), (TEST_DATA / "ddp_suite_ab.published.txt").read_text().splitlines()
        self.assertEqual(lines[:3], published[:3])
        self.assertEqual(lines[3], f"cuda_version:{'None':>28}  vs  {'None':>20}")
        self.assertEqual(lines[8:10], published[8:10])
        self.assertEqual(len(lines), 12)
        suite = ddp_suite_ab.load_ab(AB_SAMPLE)
        for line, ranks in zip(lines[10:], (1, 2)):
            for percent in (75, 95):
                diff = ddp_suite_ab.own_diffs(suite, "resnet50", "bucketed", percent)[ranks]
                self.assertIn(f"{diff:+8.1f}%", line)
