"""The figure scripts of stage 04 on small data, good and bad."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

from figure_test import FigureTest, OWN_LINK, TEST_DATA  # first: it finds the scripts

import batch_norm_speed
import result_files
import sync_batch_norm
from matplotlib.text import Text


class SyncBatchNorm(FigureTest):
    script = sync_batch_norm
    sample = TEST_DATA / "sync_batch_norm.json"

    def texts(self, file: Path) -> list[str]:
        figure = sync_batch_norm.draw(result_files.load(file, "sync_batch_norm"))
        return [text.get_text() for text in figure.findobj(Text)]

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


class BatchNormSpeed(FigureTest):
    script = batch_norm_speed
    sample = TEST_DATA / "batch_norm_speed.json"

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "batch_norm_speed.solutions.quick")

    def test_says_what_was_measured_and_the_ratios(self) -> None:
        def simple(document: dict[str, Any]) -> None:
            for series in document["series"]:
                own = series["labels"]["variant"] == "stage"
                series["values"] = [1e-3, 4e-3] if own else [3e-3, 4e-3]

        figure = batch_norm_speed.draw(result_files.load(self.changed(simple), "batch_norm_speed"))
        texts = [text.get_text() for text in figure.findobj(Text)]
        for expected in ("input of (256, 64, 28, 28), float32", "contiguous\nbackward", "2.00×", "time [ms]"):
            self.assertIn(expected, texts)
        self.assertTrue(any(text.startswith("1 rank, 2 threads a rank") for text in texts), texts)

    def test_refuses_what_is_missing_or_uneven(self) -> None:
        missing = self.changed(lambda d: d["series"].pop())
        self.assert_refused([missing], "has 0 series of layout channels_last, variant local")
        self.assert_refused([self.changed(lambda d: d["series"][0]["values"].pop())], "differs in its number of rounds")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("threads"))], "lacks the parameter 'threads'")


if __name__ == "__main__":
    unittest.main()
