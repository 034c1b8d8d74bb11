"""The figures and tables of ddp_suite on small data."""

from __future__ import annotations

import pytest

from figures.lib import suite_data
from figures.plots import ddp_suite, ddp_suite_ab
from figures.tables import ddp_suite as ddp_suite_table
from figures.tables import ddp_suite_ab as ddp_suite_ab_table
from tests.figures.figure_test import TEST_DATA, Document, ScriptTest

SAMPLE = TEST_DATA / "ddp_suite.json"
AB_SAMPLE = TEST_DATA / "ddp_suite.simulated.json"


def five_rounds(document: Document) -> None:
    document["series"] = document["series"][:5]
    for index, one in enumerate(document["series"]):
        one["values"] = [0.1 * (index + 1), 0.1 * (index + 1) + 0.02]


def slower_with_1_mb(document: Document) -> None:
    for one in document["series"]:
        one["values"] = [1.5 if one["labels"].get("bucket_size") == 1 else 1.0] * 3


class TestDdpSuite(ScriptTest):
    def test_draws_lines_of_both_variants_and_the_published_ones(self) -> None:
        (figure,) = self.drawn(ddp_suite, SAMPLE)
        assert [len(axes.get_lines()) for axes in figure.axes] == [3] * 4 + [4] * 4

    def test_efficiency_is_relative_to_no_ddp(self) -> None:
        suite = suite_data.Suite(SAMPLE)
        points = ddp_suite.own_points(suite, "resnet50", suite.choices()[0])
        shares = ddp_suite.as_shares(points)
        assert [point.place for point in points] == ["no\nDDP", "1", "2"]
        assert shares[0].median == pytest.approx(100)
        assert shares[2].median == pytest.approx(100 * points[2].median / points[0].median)
        published = ddp_suite.as_shares(ddp_suite.published_points("resnet50"))
        assert published[-1].median == pytest.approx(100 * 306 / 329)

    def test_table_is_in_the_published_form(self) -> None:
        made = self.made(ddp_suite_table, self.changed("ddp_suite", five_rounds))
        header = " " * 28 + "    ".join(["sec/iter    ex/sec  "] * 4).rstrip()
        assert made["ddp_suite.Reducer"]["text"] == (
            "Benchmark: resnet50 with batch size 4\n\n"
            f"{header}\n"
            "   1 GPUs --   no ddp:  p50:  0.110s      36/s  p75:  0.115s      34/s"
            "  p90:  0.118s      33/s  p95:  0.119s      33/s\n"
            "   1 GPUs --    1M/1G:  p50:  0.310s      12/s  p75:  0.315s      12/s"
            "  p90:  0.318s      12/s  p95:  0.319s      12/s\n"
            "   2 GPUs --    1M/2G:  p50:  0.510s       7/s  p75:  0.515s       7/s"
            "  p90:  0.518s       7/s  p95:  0.519s       7/s\n"
        )
        assert len(made["ddp_suite.Reducer"]["rows"]) == 3


class TestDdpSuiteAb(ScriptTest):
    def test_published_differences(self) -> None:
        expected = {1: -0.4, 2: -1.0, 4: -1.8, 8: -2.7, 16: -16.4}
        assert suite_data.published_diffs("resnet50", 95) == expected

    def test_slower_is_negative(self) -> None:
        suite = ddp_suite_ab.load_ab(self.changed("ddp_suite.simulated", slower_with_1_mb))
        diffs = suite_data.own_diffs(suite, "resnet50", "Reducer", 95)
        assert diffs == dict.fromkeys((1, 2, 4, 8, 16), -50.0)

    def test_table_is_in_the_published_form(self) -> None:
        text = self.made(ddp_suite_ab_table, AB_SAMPLE)["ddp_suite_ab.bucketed"]["text"]
        lines, published = text.splitlines(), (TEST_DATA / "ddp_suite_ab.published.txt").read_text().splitlines()
        assert lines[:3] == published[:3]
        assert lines[3] == f"cuda_version:{'None':>28}  vs  {'None':>20}"
        assert lines[8:10] == published[8:10]
        assert len(lines) == len(published)
        suite = ddp_suite_ab.load_ab(AB_SAMPLE)
        for percent in (75, 95):
            diffs = suite_data.own_diffs(suite, "resnet50", "bucketed", percent)
            for line, ranks in zip(lines[10:], (1, 2, 4, 8, 16)):
                assert f"{diffs[ranks]:+8.1f}%" in line
