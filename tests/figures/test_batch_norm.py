"""The figures and tables of stage 04 on small data, good and bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from figures.lib import result_files
from figures.lib.reference_data import load_reference
from figures.plots import sync_batch_norm
from figures.tables import sync_batch_norm as sync_batch_norm_table
from tests.figures.figure_test import OWN_LINK, TEST_DATA, FigureTest, texts_of  # first: it finds the scripts


class SyncBatchNorm(FigureTest):
    script = sync_batch_norm
    sample = TEST_DATA / "sync_batch_norm.json"

    def texts(self, file: Path) -> list[str]:
        figure = sync_batch_norm.draw(result_files.load(file, "sync_batch_norm"))
        return texts_of(figure)

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "sync_batch_norm.solutions.quick")

    def test_says_what_was_measured_and_where(self) -> None:
        texts = self.texts(self.sample)
        for expected in (
            *sync_batch_norm.NAMES.values(),
            "batch of 32 samples a rank",
            "1024",
            "forward [µs]",
            "forward + backward [µs]",
            "peak memory [KiB]",
            "collectives",
        ):
            self.assertIn(expected, texts)
        caption = next(text for text in texts if "Medians of 4 calls" in text)
        self.assertIn("10,000 calls, RTX A4000", caption)
        self.assertTrue(any("commit 01234567" in text and "solutions" in text for text in texts), texts)

    def test_published_numbers_are_whole_and_of_as_many_ranks(self) -> None:
        selfmade, peers = (
            sync_batch_norm.load_published(sync_batch_norm.PUBLISHED[variant], ranks=2) for variant in ("stage", "peer")
        )
        self.assertEqual([len(table.microseconds) for table in (selfmade, peers)], [8, 8])
        cell = sync_batch_norm.Cell(batch=64, hidden=1024)
        self.assertAlmostEqual(selfmade.microseconds[cell], 380)
        self.assertEqual(1024 * peers.kibibytes[cell], 576512)
        self.assertEqual(sync_batch_norm.load_published(sync_batch_norm.PUBLISHED["peer"], ranks=4).microseconds, {})

    def test_other_grids_and_worlds(self) -> None:
        def smaller(document: dict[str, Any]) -> None:
            document["provenance"]["world_size"] = 4
            document["series"] = [one for one in document["series"] if one["labels"]["batch_size"] == 32]
            for series in document["series"]:
                series["labels"]["hidden_dim"] += 1

        texts = self.texts(self.changed(smaller))
        self.assertIn("1025", texts)
        self.assertTrue(any(text.startswith("4 ranks") for text in texts), texts)

    def test_refuses_what_is_missing_or_uneven(self) -> None:
        missing = self.changed(lambda d: d["series"].pop(0))
        self.assert_refused([missing], "has 0 series of batch_size 32, hidden_dim 128")
        self.assert_refused([self.changed(lambda d: d["series"][0]["values"].pop())], "differ in their number of calls")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("affine"))], "lacks the parameter 'affine'")
        without = self.changed(lambda d: d["series"][0]["labels"].pop("hidden_dim"))
        self.assert_refused([without], "a series without batch_size or hidden_dim")
        self.assert_refused([OWN_LINK], "comes from the program 'naive_vs_flat'")


# As published, word for word and space for space.
PUBLISHED = """\
10000 runs for each parameter set

Pytorch BN
| batch_size | hidden_dim | num_workers | median time | max memory allocated |
|------------|------------|-------------|-------------|----------------------|
| 32         | 128        | 2           | 0.00052     | 41984                |
| 32         | 256        | 2           | 0.00047     | 80896                |
| 32         | 512        | 2           | 0.00053     | 158720               |
| 32         | 1024       | 2           | 0.00047     | 314368               |
| 64         | 128        | 2           | 0.00045     | 74752                |
| 64         | 256        | 2           | 0.00046     | 146432               |
| 64         | 512        | 2           | 0.00048     | 289792               |
| 64         | 1024       | 2           | 0.00048     | 576512               |


Selfmade BN
| batch_size | hidden_dim | num_workers | median time | max memory allocated |
|------------|------------|-------------|-------------|----------------------|
| 32         | 128        | 2           | 0.00037     | 101888               |
| 32         | 256        | 2           | 0.00046     | 203264               |
| 32         | 512        | 2           | 0.00037     | 406016               |
| 32         | 1024       | 2           | 0.00040     | 811520               |
| 64         | 128        | 2           | 0.00036     | 200192               |
| 64         | 256        | 2           | 0.00036     | 399872               |
| 64         | 512        | 2           | 0.00039     | 799232               |
| 64         | 1024       | 2           | 0.00038     | 1597952              |

to reproduce: `CUDA_VISIBLE_DEVICES=X,Y python syncbn_benchmark.py`
"""


def published_rows() -> sync_batch_norm_table.Rows:
    rows: sync_batch_norm_table.Rows = {}
    for variant, name in sync_batch_norm.PUBLISHED.items():
        reference = load_reference(name)
        columns = [reference.numbers(column) for column in sync_batch_norm_table.COLUMNS]
        rows[variant] = [
            sync_batch_norm_table.Row(sync_batch_norm.Cell(int(batch), int(hidden)), int(workers), seconds, int(memory))
            for batch, hidden, workers, seconds, memory in zip(*columns)
        ]
    return rows


class SyncBatchNormTable(FigureTest):
    script = sync_batch_norm_table
    sample = TEST_DATA / "sync_batch_norm.json"

    def test_published_numbers_give_the_published_text_and_claim(self) -> None:
        rows = published_rows()
        command = "CUDA_VISIBLE_DEVICES=X,Y python syncbn_benchmark.py"
        self.assertEqual(sync_batch_norm_table.text_of(rows, 10_000, command), PUBLISHED)
        # "in general, custom implementation is turned out to be faster but is has larger memory consumption"
        takeaway = sync_batch_norm_table.takeaway(rows)
        self.assertEqual(takeaway, "Selfmade is faster in 8 of 8 cells, and takes more memory in 8.")

    def test_each_direction_has_a_table_of_medians(self) -> None:
        def simple(document: dict[str, Any]) -> None:
            for series in document["series"]:
                labels = series["labels"]
                factor = (1 if labels["variant"] == "stage" else 2) * (1 if labels["direction"] == "forward" else 3)
                series["values"] = [factor * value for value in (1e-4, 2e-4, 9)]
                if series["unit"] == "bytes":
                    series["values"] = [factor * 1000]

        self.assertEqual(self.draw(self.changed(simple)), (0, ""))
        for suffix, factor in (("", 1), (".backward", 3)):
            document = json.loads((self.folder / "out" / f"sync_batch_norm{suffix}.solutions.quick.json").read_text())
            self.assertEqual(document["columns"], ["implementation", *sync_batch_norm_table.COLUMNS])
            self.assertEqual(len(document["rows"]), 8)
            peer, stage = document["rows"][0], document["rows"][4]
            self.assertEqual(peer, ["Pytorch BN", "32", "128", "2", f"{factor * 4e-4:.5f}", str(factor * 2000)])
            self.assertEqual(stage, ["Selfmade BN", "32", "128", "2", f"{factor * 2e-4:.5f}", str(factor * 1000)])
            self.assertIn("Selfmade is faster in 4 of 4 cells, and takes more memory in 0.", document["note"])
            self.assertIn(f"\n\nto reproduce: `{document['provenance'][0]['command']}`\n", document["text"])

    def test_refuses_what_is_missing_or_uneven(self) -> None:
        missing = self.changed(lambda d: d["series"].pop(0))
        self.assert_refused([missing], "has 0 series of batch_size 32, hidden_dim 128")
        self.assert_refused([self.changed(lambda d: d["series"][0]["values"].pop())], "differ in their number of calls")
        self.assert_refused([OWN_LINK], "comes from the program 'naive_vs_flat'")
