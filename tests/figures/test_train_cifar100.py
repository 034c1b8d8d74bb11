"""Figure and tables of train_cifar100 on small data, good and bad, and on the published numbers."""

from __future__ import annotations

import json
import math
import re
import unittest
from pathlib import Path
from typing import Any

from figures.lib import train_cifar100_runs
from figures.lib.reference_data import load_reference
from figures.plots import train_cifar100
from figures.tables import train_cifar100 as train_cifar100_table
from tests.figures.figure_test import OWN_LINK, TEST_DATA, FigureTest, texts_of  # first: it finds the scripts

SAMPLE = TEST_DATA / "train_cifar100.json"

# The published text, byte for byte.
PUBLISHED = """\
# Training loop benchmark
Selfmade distributed training
| Rank | Time                       | Max Memory Allocated |
|------|----------------------------|----------------------|
| 0    | 29.588 seconds | 170099200 bytes      |
| 1    | 29.632 seconds | 170098688 bytes      |
loss: 3.2136, acc: 0.2734375


pytorch Distributed Data Parallel
| Rank | Time                     | Max Memory Allocated |
|------|--------------------------|----------------------|
| 0    | 29.227 seconds | 173903360 bytes     |
| 1    | 29.279 seconds | 174062592 bytes     |
loss: 3.2149, acc: 0.27734375"""

GOLDEN_SEEDS = """\
Convergence over seeds (synthetic)
| implementation   | seeds   | loss            | accuracy        | validation      | time [s]    | memory [MiB]   |
|------------------|---------|-----------------|-----------------|-----------------|-------------|----------------|
| selfmade         | 3       | 2.0000 ± 1.0000 | 0.2000 ± 0.1000 | 0.4000 ± 0.2000 | 6.00 ± 1.00 | 2.00 ± 0.00    |
| pytorch          | 3       | 2.5000 ± 1.0000 | 0.2000 ± 0.1000 | 0.4000 ± 0.2000 | 6.00 ± 1.00 | 3.00 ± 0.00    |

loss: selfmade - pytorch = -0.5000, within what the spread over seeds allows (Welch's t = -0.61, p = 0.57).
accuracy: selfmade - pytorch = +0.0000, within what the spread over seeds allows (Welch's t = 0.00, p = 1.00).
validation: selfmade - pytorch = +0.0000, within what the spread over seeds allows (Welch's t = 0.00, p = 1.00).
pytorch against selfmade, here: time +0.0 %, memory +50.0 %.
pytorch against selfmade, published: time -1.2 %, memory +2.3 %.
Data: synthetic. Mean ± standard deviation over the seeds, after 5 epochs. Loss and accuracy: rank 0's running \
training loss and last batch, as published; validation: accuracy over all its images.
"""

GOLDEN_BESIDE = """\
Beside the published numbers
| implementation   | quantity               | here      | published   | here / published   |
|------------------|------------------------|-----------|-------------|--------------------|
| selfmade         | rank 0: time [s]       | 6.000     | 29.588      | 0.203              |
| selfmade         | rank 0: memory [bytes] | 2097152   | 170099200   | 0.0123             |
| selfmade         | rank 1: time [s]       | 6.000     | 29.632      | 0.202              |
| selfmade         | rank 1: memory [bytes] | 2097152   | 170098688   | 0.0123             |
| selfmade         | loss                   | 2.0000    | 3.2136      | 0.622              |
| selfmade         | accuracy               | 0.2000000 | 0.2734375   | 0.731              |
"""


def simplify(document: dict[str, Any]) -> None:
    """Values that can be checked by mental arithmetic; those of validation are twice the training's."""
    for series in document["series"]:
        labels, count = series["labels"], len(series["values"])
        own, seed = labels["distributed_impl"] == "selfmade", labels["seed"]
        value = {
            "loss": (1.0 if own else 1.5) + seed,
            "accuracy": 0.1 + 0.1 * seed,
            "time": (5.0 + seed) / count,
            "memory": (2 if own else 3) * 2**20,
        }[labels["quantity"].split()[-1]]
        factor = 2 if labels["quantity"].startswith("validation") else 1
        series["values"] = [factor * value] * count


def in_cells(text: str) -> str:
    """Without column widths: the published headers were made wider than their rows by hand."""
    return re.sub(r"-+", "-", re.sub(r" +", " ", text))


class Curves(FigureTest):
    script = train_cifar100
    sample = SAMPLE

    def texts(self, file: Path) -> list[str]:
        (trainings,) = train_cifar100_runs.load_trainings([file])
        return texts_of(train_cifar100.draw(trainings))

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "train_cifar100.solutions.quick")

    def test_says_what_was_trained_and_that_it_is_synthetic(self) -> None:
        texts = self.texts(self.sample)
        for expected in (
            "synthetic data", "running training loss", "last batch's accuracy [%]", "validation accuracy [%]", "epoch",
            "selfmade: bucketed DDP (stage 03), SyncBatchNorm (stage 04)",
        ):  # fmt: skip
            self.assertIn(expected, texts)
        caption = next(text for text in texts if text.startswith("Data: synthetic"))
        for part in ("mean of 3 seeds", "another training, not drawn", "0.27734375 (71 of 256 images)"):
            self.assertIn(part, caption)

    def real(self, **parameters: object) -> Path:
        """The sample as if it were of the published training, but for some parameters."""

        def change(document: dict[str, Any]) -> None:
            document["parameters"].update(train_cifar100_runs.PUBLISHED_RUN, **parameters)
            for series in document["series"]:
                series["values"] = (series["values"] * 16)[: max(1, 16 * (len(series["values"]) > 1))]

        return self.changed(change)

    def test_published_ends_stand_on_the_published_quantities_alone(self) -> None:
        file = self.real()
        texts = self.texts(file)
        self.assertIn("CIFAR-100 data", texts)
        self.assertIn("published, of the same colour (2 GPUs)", texts)
        self.assertFalse(any("not drawn" in text for text in texts))
        (trainings,) = train_cifar100_runs.load_trainings([file])
        ends = {
            panel.get_title(loc="left"): [
                tuple(float(number) for number in line.get_xydata()[0])
                for line in panel.lines
                if line.get_marker() == train_cifar100.PUBLISHED["marker"]
            ]
            for panel in train_cifar100.draw(trainings).axes
        }
        self.assertEqual(
            ends,
            {
                "running training loss": [(16, 3.2136), (16, 3.2149)],
                "last batch's accuracy [%]": [(16, 27.34375), (16, 27.734375)],
                "validation accuracy [%]": [],
            },
        )

    def test_published_ends_are_not_drawn_beside_another_training(self) -> None:
        for other in ({"data": "synthetic"}, {"batch_size": 64}, {"learning_rate": 0.1}, {"train_size": 49_999}):
            self.assertTrue(any("not drawn" in text for text in self.texts(self.real(**other))), other)

    def test_draws_one_seed_and_one_implementation(self) -> None:
        def fewer(document: dict[str, Any]) -> None:
            wanted = {"distributed_impl": "pytorch", "seed": 1}
            document["series"] = [one for one in document["series"] if wanted.items() <= one["labels"].items()]

        texts = self.texts(self.changed(fewer))
        self.assertTrue(any("One seed." in text for text in texts), texts)

    def test_refuses_what_is_missing_uneven_or_foreign(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"].pop(0))], "has 0 series of distributed_impl selfmade")
        uneven = self.changed(lambda d: d["series"][0]["values"].pop())
        self.assert_refused([uneven], "has 4 epochs of selfmade, seed 0, not 5")
        empty = self.changed(lambda d: d["series"][0].update({"values": []}))
        self.assert_refused([empty], "has no values of distributed_impl selfmade")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("data"))], "lacks the parameter 'data'")
        other = self.changed(lambda d: d["series"][0]["labels"].update(distributed_impl="other"))
        self.assert_refused([other], "has unknown implementations: other")
        unlabelled = self.changed(lambda d: d["series"][0]["labels"].pop("seed"))
        self.assert_refused([unlabelled], "a series without distributed_impl, seed or quantity")
        self.assert_refused([OWN_LINK], "comes from the program 'naive_vs_flat'")


class Tables(FigureTest):
    script = train_cifar100_table
    sample = SAMPLE

    def written(self, *files: Path) -> dict[str, str]:
        self.assertEqual(self.draw(*files), (0, ""))
        return {file.name: file.read_text() for file in (self.folder / "out").iterdir()}

    def test_published_numbers_come_out_as_published(self) -> None:
        """Everything but column widths: the published headers and rows differ in them."""
        published = train_cifar100_runs.load_published()
        blocks = [train_cifar100_table.published_block(*one) for one in published.items()]
        self.assertEqual(in_cells(train_cifar100_table.text_of(blocks)), in_cells(PUBLISHED))

    def test_reference_is_whole_and_its_accuracies_are_of_256_images(self) -> None:
        table = load_reference("train_cifar100")
        self.assertEqual(len(table.columns["Rank"]), 4)
        self.assertTrue(any("under each other's title" in line for line in table.source))
        for accuracy in table.numbers("acc"):
            self.assertEqual(256 * accuracy, round(256 * accuracy))
        for cell in (cell for column in table.columns.values() for cell in column):
            self.assertIn(cell, PUBLISHED.lower())

    def test_text_is_golden(self) -> None:
        written = self.written(self.changed(simplify))
        # The rest says where the numbers come from, as below every table.
        self.assertEqual(written["train_cifar100.seeds.solutions.quick.txt"][: len(GOLDEN_SEEDS)], GOLDEN_SEEDS)
        text = written["train_cifar100.solutions.quick.txt"]
        expected = in_cells(PUBLISHED)
        for old, new in (
            ("training\n", "training (synthetic)\n"), ("Parallel\n", "Parallel (synthetic)\n"),
            ("29.588", "6.000"), ("29.632", "6.000"), ("29.227", "6.000"), ("29.279", "6.000"),
            ("170099200", "2097152"), ("170098688", "2097152"), ("173903360", "3145728"), ("174062592", "3145728"),
            ("3.2136", "2.0000"), ("3.2149", "2.5000"), ("0.27734375", "0.2000000"), ("0.2734375", "0.2000000"),
        ):  # fmt: skip
            expected = expected.replace(old, new)
        self.assertIn(expected, in_cells(text))
        for part in ("# Experimental setup", "* data: synthetic, 256 images", "under the other one's name"):
            self.assertIn(part, text)
        self.assertIn(GOLDEN_BESIDE, text)
        document = json.loads(written["train_cifar100.solutions.quick.json"])
        self.assertEqual(
            document["rows"][0], ["selfmade", "rank 0: time [s]", "6.000", "29.588", "0.203"]
        )  # fmt: skip
        self.assertEqual(len(document["rows"]), 12)
        self.assertIn("synthetic", document["title"])
        self.assertIn("another training than the published one", document["note"])

    def test_a_rank_that_was_not_published_has_nothing_beside_it(self) -> None:
        block = train_cifar100_table.Block("", [("2", "6.000", "2097152")], "2.0000", "0.2000000")
        published = train_cifar100_table.published_block("selfmade", train_cifar100_runs.load_published()["selfmade"])
        rows = train_cifar100_table.beside_published("selfmade", block, published)
        self.assertEqual(rows[0], ["selfmade", "rank 2: time [s]", "6.000", "", ""])

    def test_one_seed_or_implementation_is_not_compared(self) -> None:
        name = "train_cifar100.seeds.solutions.quick.txt"
        self.assertIn("one seed has no spread", self.written(self.kept(lambda labels: labels["seed"] == 0))[name])
        alone = self.written(self.kept(lambda labels: labels["distributed_impl"] == "pytorch"))[name]
        self.assertNotIn("selfmade", alone)

    def test_refuses_what_is_missing(self) -> None:
        memory = self.changed(lambda d: d["series"].remove(next(s for s in d["series"] if s["unit"] == "bytes")))
        self.assert_refused([memory], "has 0 series of distributed_impl selfmade, quantity peak memory")
        self.assert_refused([OWN_LINK], "comes from the program 'naive_vs_flat'")


class WelchTest(unittest.TestCase):
    def test_agrees_with_tables_of_students_t(self) -> None:
        for t, freedom, p in ((12.7062, 1, 0.05), (2.77645, 4, 0.05), (4.60409, 4, 0.01), (2.22814, 10, 0.05)):
            self.assertAlmostEqual(train_cifar100_runs.two_sided_p(t, freedom), p, delta=2e-5)

    def test_compares_means_by_their_spread(self) -> None:
        # Variances 1 and 4 over 3 values each: 2.94 degrees of freedom; 3 would give p = 0.1027.
        found = train_cifar100_runs.compare([1, 2, 3], [3, 5, 7])
        self.assertAlmostEqual(found.t, -3 / math.sqrt(5 / 3))
        self.assertAlmostEqual(found.p, 0.1045, delta=1e-3)
        self.assertTrue(found.within_spread())
        self.assertFalse(train_cifar100_runs.compare([1, 1.01, 1.02], [2, 2.01, 2.02]).within_spread())
        self.assertTrue(train_cifar100_runs.compare([1, 1], [1, 1]).within_spread())
        self.assertFalse(train_cifar100_runs.compare([1, 1], [2, 2]).within_spread())
        self.assertTrue(math.isnan(train_cifar100_runs.compare([1], [2]).p))
