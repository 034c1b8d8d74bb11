"""The figures and the table of the benchmark collectives, on small data, good and bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from figures.lib import all_reduces, result_files
from figures.plots import all_reduce_bandwidth, collectives
from figures.tables import collectives as collectives_table
from tests.figures.figure_test import TEST_DATA, FigureTest, texts_of  # first: it finds the scripts

SAMPLE = TEST_DATA / "collectives.json"
WORLDS = (2, 4, 6)


class CollectivesTest(FigureTest):
    sample = SAMPLE

    def without(self, **labels: Any) -> Path:
        """The sample without the series that have these labels."""

        def change(document: dict[str, Any]) -> None:
            document["series"] = [one for one in document["series"] if not labels.items() <= one["labels"].items()]

        return self.changed(change, "without.json")

    def texts(self, file: Path) -> list[str]:
        figure = self.script.draw(result_files.load(file, "collectives"))
        return texts_of(figure)

    def refuse_what_all_refuse(self) -> None:
        self.assert_refused([self.without(variant="ring")], "lacks the variant 'ring'")
        self.assert_refused([self.changed(lambda d: d["series"].pop())], "6 ranks have not measured each variant")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("rate_gbit"))], "lacks the parameter")
        other = self.changed(lambda d: d["series"][0]["labels"].update(more=1))
        self.assert_refused([other], "has series of something else")
        unknown = self.changed(lambda d: d["series"][0]["labels"].update(variant="telepathy"))
        self.assert_refused([unknown], "has series of something else")
        self.assert_refused([TEST_DATA / "ring_all_reduce.json"], "comes from the program 'ring_all_reduce'")
        self.assert_refused([self.changed(lambda d: d["series"][0].update(values=[]))], "has no values of")


class AllReduceBandwidth(CollectivesTest):
    script = all_reduce_bandwidth

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

    def test_says_what_was_measured_and_fitted(self) -> None:
        texts = self.texts(self.sample)
        for expected in ("2 ranks, the machine's own link", "bus bandwidth [GB/s]"):
            self.assertIn(expected, texts)
        for variant in ("ring", "pipelined ring", "butterfly", "Gloo's all_reduce"):
            self.assertTrue(any(text.startswith(f"{variant}: α = ") for text in texts), texts)
        self.assertFalse(any("Left out" in text for text in texts))

    def test_says_what_was_left_out(self) -> None:
        texts = self.texts(self.without(variant="pipelined ring"))
        caption = " ".join(" ".join(texts).split())  # lines are broken wherever they end
        self.assertIn("Left out: unfinished: pipelined ring.", caption)

    def test_draws_the_smallest_world_with_a_bus(self) -> None:
        self.assertTrue(any(text.startswith("4 ranks, ") for text in self.texts(self.without(world_size=2))))

    def test_refuses_what_is_missing(self) -> None:
        self.refuse_what_all_refuse()

        def shrink(document: dict[str, Any]) -> None:
            for series in document["series"]:
                series["labels"]["world_size"] = 1
            document["series"] = document["series"][:16]

        self.assert_refused([self.changed(shrink)], "one rank has no bus")

        self.assert_refused([self.kept(lambda labels: labels["bytes"] == 1024)], "needs two sizes or more")


class Collectives(CollectivesTest):
    script = collectives

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "collectives.solutions.quick")

    def test_bus_bandwidth_is_that_of_nccl_tests(self) -> None:
        self.assertAlmostEqual(all_reduces.bus_bandwidth(4e9, 2, 4), 3)
        self.assertEqual(all_reduces.bus_bandwidth(4e9, 2, 1), 0)

    def test_says_what_was_measured(self) -> None:
        texts = self.texts(self.sample)
        for expected in ("2 ranks", "4 ranks", "6 ranks", "time [ms]", "bus bandwidth [GB/s]", "size of the tensor"):
            self.assertIn(expected, texts)
        caption = next(text for text in texts if "as nccl-tests counts it" in text)
        self.assertIn("Medians of 3 calls, of the slowest rank", caption)
        self.assertIn("The worlds of 4 and 6 ranks share 2 cores", caption)
        self.assertNotIn("Left out", caption)

    def test_says_nothing_of_cores_where_there_are_enough(self) -> None:
        texts = self.texts(self.changed(lambda d: d["provenance"].update(cores=64)))
        self.assertFalse(any("share" in text for text in texts), texts)

    def test_other_worlds_and_variants_left_out(self) -> None:
        self.assertEqual(self.draw(self.without(world_size=4)), (0, ""))
        texts = self.texts(self.without(variant="pipelined ring"))
        caption = " ".join(" ".join(texts).split())  # lines are broken wherever they end
        self.assertIn("Left out: unfinished: pipelined ring.", caption)

    def test_one_rank_has_no_bus_but_times(self) -> None:
        def shrink(document: dict[str, Any]) -> None:
            document["series"] = [one for one in document["series"] if one["labels"]["world_size"] == 2]
            for series in document["series"]:
                series["labels"]["world_size"] = 1

        self.assertEqual(self.draw(self.changed(shrink)), (0, ""))

    def test_worlds_on_both_backends_have_no_backends_name(self) -> None:
        texts = self.texts(self.changed(lambda d: d["provenance"].update(backend="nccl, gloo")))
        self.assertIn("the backend's all_reduce", texts)

    def test_refuses_what_is_missing(self) -> None:
        self.refuse_what_all_refuse()


# The columns of nccl-tests' all_reduce_perf, doc/PERFORMANCE.md, without its second half for calls in place.
GOLDEN = """\
# 4 ranks, ring
#       size         count      type   redop        time     algbw     busbw
#        (B)    (elements)                          (us)    (GB/s)    (GB/s)
        1024           256     float     sum        10.0    0.1024    0.1536
    16777216       4194304     float     sum      1000.0   16.7772   25.1658
# Avg bus bandwidth    : 12.6597
"""


class CollectivesTable(CollectivesTest):
    script = collectives_table

    def made(self, file: Path) -> tuple[dict[str, Any], str]:
        self.assertEqual(self.draw(file), (0, ""))
        document = json.loads((self.folder / "out" / "collectives.solutions.quick.json").read_text())
        return document, document["text"]

    def test_columns_are_those_of_nccl_tests(self) -> None:
        def simple(document: dict[str, Any]) -> None:
            seconds = {1024: [10e-6, 9e-6, 1], 16 << 20: [1e-3]}
            document["series"] = [
                {"labels": {"world_size": 4, "bytes": size, "variant": "ring"}, "unit": "s", "values": values}
                for size, values in seconds.items()
            ]

        self.assertEqual(self.made(self.changed(simple))[1], GOLDEN.rstrip("\n"))

    def test_has_every_world_variant_and_size(self) -> None:
        document, text = self.made(self.sample)
        self.assertEqual(document["columns"][:2], ["ranks", "size"])
        self.assertEqual(document["columns"][2:], ["ring", "pipelined ring", "butterfly", "Gloo's all_reduce"])
        self.assertEqual(len(document["rows"]), 3 * 4)
        self.assertEqual(text.count("Avg bus bandwidth"), 3 * 4)
        self.assertEqual(len([line for line in text.splitlines() if not line.startswith("#")]), 3 * 4 * 4)
        for world in WORLDS:
            self.assertIn(f"# {world} ranks, Gloo's all_reduce\n", text)
        self.assertIn("The ranks share 2 cores.", document["note"])

    def test_refuses_what_is_missing(self) -> None:
        self.refuse_what_all_refuse()
