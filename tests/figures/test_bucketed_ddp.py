"""The figures and the table of bucketed_ddp and bucket_overhead, and their published numbers, on small data, good and
bad."""

from __future__ import annotations

import json
import unittest
from typing import Any

from figures.lib import training_times
from figures.lib.reference_data import load_reference
from figures.lib.result_files import load_group
from figures.plots import bucket_overhead, bucketed_ddp
from figures.tables import bucketed_ddp as bucketed_ddp_table
from tests.figures.figure_test import OWN_LINK, TEST_DATA, FigureTest, texts_of  # first: it finds the scripts

SAMPLE = TEST_DATA / "bucketed_ddp.json"
UNBUCKETED_TABLE = """\
local_bs    seq_len    variant       total time train    total time grad all reduce    ratio
----------  ---------  ------------  ------------------  ----------------------------  -------
2           8          naive         2.0000              0.5000                        0.2500
2           8          flat          2.0000              0.5000                        0.2500
2           8          overlapped    2.0000              0.5000                        0.2500
2           8          Reducer*      2.0000              0.7500                        0.3750
2           8          compute only  1.0000              -                             -
"""


def unfolded(text: str) -> str:
    return text.replace("\n", " ")


def simple(document: dict[str, Any]) -> None:
    """One row, with times that can be checked by eye. Rank 1 is the slower one."""
    document["series"] = [s for s in document["series"] if (s["labels"]["local_bs"], s["labels"]["seq_len"]) == (2, 8)]
    for series in document["series"]:
        alone = series["labels"]["variant"] == "compute only"
        inside = series["labels"]["variant"] == "Reducer"
        times = {"train": 1.0 if alone else 2.0, "backward": 1.25 if inside else 0.5}
        mean = times.get(series["labels"]["part"], 0.0 if inside or alone else 0.5)
        series["values"] = [mean * 0.5, mean * 1.5] if series["labels"]["rank"] else [mean * 0.25, mean * 0.75]


def stage_01_alone(document: dict[str, Any]) -> None:
    document["series"] = [s for s in document["series"] if s["labels"]["variant"] not in ("overlapped", "bucketed")]


class Published(unittest.TestCase):
    def test_table_is_whole(self) -> None:
        table = load_reference("bucketed_ddp")
        cells = list(zip(*(table.columns[name] for name in ("local_bs", "seq_len", "bucket_size_mb"))))
        expected = [(b, n, m) for b in "24" for n in ("128", "256", "512") for m in ("1", "10", "100", "1000")]
        self.assertEqual(cells, expected)
        self.assertIn("003_06c3049dc14f2338.txt", table.source[0])

    def test_ratios_are_those_of_the_times(self) -> None:
        """The times are rounded to 5e-5 s, which moves a ratio by less than 1.5e-4."""
        for way, times in training_times.published_times().items():
            self.assertAlmostEqual(times.ratio, times.all_reduce / times.train, delta=1.5e-4, msg=way.name())


class BucketedDdpTable(FigureTest):
    script = bucketed_ddp_table
    sample = SAMPLE

    def made(self, change: Any = simple) -> dict[str, Any]:
        self.assertEqual(self.draw(self.changed(change)), (0, ""))
        return json.loads((self.folder / "out" / "bucketed_ddp.solutions.quick.json").read_text())

    def test_published_numbers_give_the_published_text(self) -> None:
        """All lines, byte for byte; in the published text the headings are separate, with a figure under each."""
        text = bucketed_ddp_table.published_form(training_times.published_times(), "cuda")
        lines = [line for line in text.splitlines() if line and not line.startswith("#### Batch size ")]
        published = (TEST_DATA / "bucketed_ddp.published.txt").read_text()
        self.assertEqual("\n".join(lines) + "\n", published)
        self.assertEqual(text.count("#### Batch size "), 2)

    def test_numbers_are_printed_as_torch_does(self) -> None:
        for value, text in (
            (0.72934, "0.7293"),
            (12.0, "12."),
            (0.0, "0."),
            (3.2e-5, "3.2000e-05"),
            (-0.25, "-0.2500"),
        ):
            self.assertEqual(bucketed_ddp_table.as_tensor(value, "cpu"), f"tensor([{text}])")
        self.assertEqual(bucketed_ddp_table.as_tensor(0.5, "cuda"), "tensor([0.5000], device='cuda:0')")

    def test_text_is_the_golden_one(self) -> None:
        text = self.made()["text"]
        first = (
            "#### Batch size 2\n"
            "Training DDP model, local_bs: 2, seq_len: 8, bucket_size_mb: 1 (of xl's gradients; here 421 bytes)\n"
            "total time train: tensor([2.])\n"
            "total time grad all reduce: tensor([0.5000])\n"
            "ratio grad all reduce to train time: tensor([0.2500])\n"
            "Training DDP model, local_bs: 2, seq_len: 8, bucket_size_mb: 10 (of xl's gradients; here 4210 bytes)\n"
        )
        self.assertTrue(text.startswith(first), text)
        self.assertIn(f"\n\n#### Without buckets\n\n{UNBUCKETED_TABLE}\n2 ranks, the machine's own link; ", text)

    def test_rows_are_for_a_page(self) -> None:
        made = self.made()
        self.assertEqual(made["columns"][:6], ["batch", "tokens", "1 MB", "10 MB", "100 MB", "1000 MB"])
        self.assertEqual(made["rows"][0][:3], ["2", "8", "2000.0 (500.0)"])
        self.assertEqual(made["rows"][0][-2:], ["2000.0 (750.0)", "1000.0"])
        self.assertIn("1 MB is 421 B, 10 MB is 4.11 KiB", made["note"])

    def test_caps_of_the_published_size_are_said_once(self) -> None:
        def published(document: dict[str, Any]) -> None:
            simple(document)
            for series in document["series"]:
                if "cap_bytes" in series["labels"]:
                    series["labels"]["cap_bytes"] = series["labels"]["bucket_size_mb"] << 20

        made = self.made(published)
        self.assertIn("seq_len: 8, bucket_size_mb: 1\ntotal", made["text"])
        self.assertNotIn("of xl's", made["note"])

    def test_unfinished_variants_are_missing(self) -> None:
        def without(document: dict[str, Any]) -> None:
            simple(document)
            document["series"] = [s for s in document["series"] if s["labels"]["variant"] not in ("naive", "flat")]

        made = self.made(without)
        self.assertEqual(made["columns"][6:], ["overlapped", "Reducer*", "compute only"])

    def test_of_stage_01_alone(self) -> None:
        made = self.made(lambda document: (simple(document), stage_01_alone(document)))
        self.assertEqual(made["columns"], ["batch", "tokens", "naive", "flat", "Reducer*", "compute only"])
        self.assertTrue(made["text"].startswith("#### Without buckets\n"), made["text"])

    def test_refuses_what_is_missing_or_uneven(self) -> None:
        bad = {
            "lacks a part or a rank of bucketed of 1 MB, batch 2, sequence 8": lambda d: d["series"].pop(0),
            "the number of iterations differs": lambda d: d["series"][0]["values"].pop(),
            "has an iteration of bucketed of 1 MB, batch 2, sequence 8 that took no time": (
                lambda d: d["series"][0].update(values=[0, 0])
            ),
            "has a series without seq_len": lambda d: d["series"][3]["labels"].pop("seq_len"),
            "has a series without cap_bytes": lambda d: d["series"][0]["labels"].pop("cap_bytes"),
            "has no values": lambda d: d["series"][0].update(values=[]),
            "lacks the parameter 'interleaved'": lambda d: d["parameters"].pop("interleaved"),
            "lacks compute only, batch 2, sequence 8": lambda d: d.update(
                series=[s for s in d["series"] if s["labels"]["variant"] != "compute only"]
            ),
        }
        for message, change in bad.items():
            self.assert_refused([self.changed(change)], message)
        self.assert_refused([OWN_LINK], "comes from the program 'naive_vs_flat'")


class BucketedDdp(FigureTest):
    script = bucketed_ddp
    sample = SAMPLE

    def texts(self, file: Any, batch: int) -> list[str]:
        figure = bucketed_ddp.draw(*training_times.load_trainings(file), batch)
        return texts_of(figure)

    def test_writes_a_figure_for_each_batch(self) -> None:
        self.assertEqual(self.draw(SAMPLE), (0, ""))
        names = [f"bucketed_batch_size_{batch}.solutions.quick.{kind}" for batch in (2, 4) for kind in ("pdf", "png")]
        self.assertEqual(sorted(file.name for file in (self.folder / "out").iterdir()), names)

    def test_says_what_was_measured_and_where(self) -> None:
        texts = self.texts(SAMPLE, 4)
        for expected in (
            "8 tokens", "16 tokens", "1 MB\n421 B", "1000 MB\n411 KiB", "naive",
            "Reducer*", "compute only", "time of an iteration [ms]", "of it all-reduce in finish() [ms]",
        ):  # fmt: skip
            self.assertIn(expected, texts)
        self.assertTrue(
            any("Means of 2 iterations with AdamW (in turns)" in text for text in map(unfolded, texts)), texts
        )

    def test_names_what_is_unfinished(self) -> None:
        def without(document: dict[str, Any]) -> None:
            document["series"] = [s for s in document["series"] if s["labels"]["variant"] != "overlapped"]

        texts = self.texts(self.changed(without), 2)
        self.assertIn("Left out: unfinished: overlapped.", unfolded(" ".join(texts)))
        texts = self.texts(self.changed(stage_01_alone), 2)
        self.assertIn("Left out: unfinished: overlapped, bucketed.", unfolded(" ".join(texts)))
        self.assertIn("without buckets", texts)

    def test_refuses_other_results(self) -> None:
        self.assert_refused([OWN_LINK], "comes from the program 'naive_vs_flat'")
        self.assert_refused([self.changed(lambda d: d["series"].clear())], "is empty: it has no series")


class BucketOverhead(FigureTest):
    script = bucket_overhead
    sample = TEST_DATA / "bucket_overhead.json"

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "bucket_overhead.solutions.quick")

    def test_formula_is_the_handouts(self) -> None:
        """Its table of ResNet-50."""
        for cap, launches, last in ((0.25, 7.80, 0.05), (1, 1.95, 0.18), (3.26, 0.60, 0.60), (25, 0.08, 4.59)):
            terms = bucket_overhead.formula_seconds(cap * 2**20, 102_228_128, 20e-6, 1e9 / 0.175)
            self.assertEqual([round(1e3 * term, 2) for term in terms], [launches, last])

    def test_says_what_was_measured(self) -> None:
        (result,) = load_group([self.sample], "bucket_overhead", shared=(), own=bucket_overhead.PARAMETERS)
        texts = texts_of(bucket_overhead.draw(result))
        for expected in ("measured", "simulated network", "formula: s/b · o + b/w"):
            self.assertIn(expected, texts)
        self.assertTrue(any(text.startswith(" b* = √(s·w·o) = ") for text in texts), texts)
        for expected in ("Gradients s = 3.06 MiB", "medians of 3 repetitions"):
            self.assertIn(expected, unfolded(" ".join(texts)))

    def test_simulation_may_be_missing(self) -> None:
        self.assert_drawn(
            [self.kept(lambda labels: labels["quantity"] != "simulated overhead")], "bucket_overhead.solutions.quick"
        )

    def test_refuses_what_is_missing_or_uneven(self) -> None:
        self.assert_refused(
            [self.kept(lambda labels: labels.get("cap_bytes", 3209344) == 3209344)],
            "needs buckets of two sizes or more",
        )
        self.assert_refused(
            [self.changed(lambda d: d["parameters"].pop("overhead_s"))], "lacks the parameter 'overhead_s'"
        )
        uneven = self.changed(lambda d: next(s for s in d["series"] if "cap_bytes" in s["labels"])["values"].pop())
        self.assert_refused([uneven], "differ in their number of steps")
        self.assert_refused([OWN_LINK], "comes from the program 'naive_vs_flat'")
