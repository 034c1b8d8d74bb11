"""The figures, the table and the takeaways of the experiment compare_ddp, on published, small and made-up numbers."""

from __future__ import annotations

import dataclasses
import json
import re
import unittest
from collections.abc import Callable
from typing import Any

from figures.lib import ddp_comparison, ddp_takeaways, result_files
from figures.lib.ddp_comparison import ASYNC, CORE, DIRECTIONS, EQUAL_BYTES, SYNC, Latency
from figures.lib.reference_data import load_reference
from figures.plots import compare_ddp, compare_ddp_delta
from figures.tables import compare_ddp as compare_ddp_table
from tests.figures.figure_test import OWN_LINK, TEST_DATA, FigureTest, texts_of  # first: it finds the scripts

ELEMENTS = 25_557_032
SAMPLE = TEST_DATA / "compare_ddp.json"
GOLDEN = TEST_DATA / "compare_ddp.table.txt"  # of SAMPLE
SEED = TEST_DATA / "compare_ddp.published.txt"  # the published summaries, as printed
SIZES = tuple(range(3, 28, 3))

Milliseconds = Callable[[str, int], float]  # a median by variant and buffer size


def made_up(backward: Milliseconds, forward: Milliseconds = lambda variant, size: 100) -> ddp_comparison.Comparison:
    """Iterations spread by 1 ms."""
    return {
        size: {
            direction: {
                variant: Latency(median, median, median + 1, median + 1, median + 1)
                for variant in (CORE, ASYNC, SYNC)
                for median in [function(variant, size)]
            }
            for direction, function in zip(DIRECTIONS, (forward, backward))
        }
        for size in SIZES
    }


def said(comparison: ddp_comparison.Comparison) -> dict[str, str]:
    return {one.topic: one.text for one in ddp_takeaways.takeaways(comparison, ELEMENTS)}


class Published(unittest.TestCase):
    def setUp(self) -> None:
        self.reference = load_reference("compare_ddp")
        self.rows = ddp_comparison.published_rows(self.reference)

    def test_is_whole(self) -> None:
        self.assertEqual(len(self.reference.columns["variant"]), 25 * 2 * 3)
        self.assertEqual(len(self.rows), 25 * 2 * 3)
        self.assertEqual({size for size, _, _ in self.rows}, set(range(3, 28)))
        self.assertEqual({variant for _, _, variant in self.rows}, {CORE, ASYNC, SYNC})
        self.assertTrue(all(len(row) == 10 for row in self.rows.values()))

    def test_differences_follow_from_the_latencies(self) -> None:
        """Latencies are printed to a thousandth of a millisecond."""
        for (size, direction, variant), row in self.rows.items():
            core = self.rows[size, direction, CORE]
            for value, base, difference in zip(row[::2], core[::2], row[1::2]):
                self.assertAlmostEqual(100 * (value - base) / base, difference, delta=6e-4, msg=f"{size} {variant}")

    def test_percentiles_ascend(self) -> None:
        for key, row in self.rows.items():
            self.assertEqual(row[2::2], sorted(row[2::2]), key)


class Table(FigureTest):
    script = compare_ddp_table
    sample = SAMPLE

    def texts(self, file: Any = SAMPLE) -> list[str]:
        result = result_files.load(file, "compare_ddp")
        return [table.text for _, table in compare_ddp_table.tables(result)]

    def test_published_numbers_give_the_published_text(self) -> None:
        """Byte for byte. Before 4M and 5M the published text has one blank line fewer than elsewhere."""
        rows = ddp_comparison.published_rows(load_reference("compare_ddp"))
        summaries = [
            compare_ddp_table.summary(
                size,
                {way: {v: row for (s, d, v), row in rows.items() if (s, d) == (size, way)} for way in DIRECTIONS},
            )
            for size in range(3, 28)
        ]
        published = SEED.read_text()
        for size in (4, 5):
            title = f"\n=== Summary for buffer_size: {size}M ==="
            self.assertEqual(published.count(f"\n{title}"), 1)
            self.assertEqual(published.count(f"\n\n{title}"), 0)
            published = published.replace(title, f"\n{title}")
        self.assertEqual("\n\n\n".join(summaries) + "\n", published)

    def test_small_data(self) -> None:
        text = self.texts()[0]
        for expected in (
            "total parameters        25,557,032 = 24.37M in 161 tensors",
            "trainable parameters    25,557,032 = 24.37M",
            "largest parameter        2,359,296 = 2.25M, layer4.0.conv2.weight (512x512x3x3)",
        ):
            self.assertIn(expected, text)
        summaries = re.findall(r"=== Summary for buffer_size: (\d+)M ===", text)
        self.assertEqual(summaries, ["3", "6", "10", "14", "19", "24", "25", "27"])
        self.assertEqual(text, GOLDEN.read_text().rstrip("\n"))
        for takeaway in said(ddp_comparison.measured(result_files.load(SAMPLE, "compare_ddp"))).values():
            self.assertIn(f" {takeaway}\n", text)

    def test_writes_text_and_json(self) -> None:
        self.assertEqual(self.draw(SAMPLE), (0, ""))
        names = sorted(file.name for file in (self.folder / "out").iterdir())
        stems = [f"compare_ddp{part}.solutions.quick" for part in ("", ".takeaways", ".beside")]
        self.assertEqual(names, sorted(f"{stem}.{kind}" for stem in stems for kind in ("txt", "json")))
        document = json.loads((self.folder / "out" / "compare_ddp.solutions.quick.json").read_text())
        self.assertEqual(len(document["rows"]), 8 * 2)
        self.assertEqual({len(row) for row in document["rows"]}, {len(document["columns"])})
        self.assertIn("the median, as in the published table", document["note"])

    def test_prints_no_percentile_that_iterations_do_not_support(self) -> None:
        supported = {1: 2, 9: 2, 10: 3, 15: 3, 19: 3, 20: 4, 99: 4, 100: 5}  # of mean, p50, p90, p95, p99
        for count, expected in supported.items():
            iterations = {"iterations": count + 3, "discarded": 3}
            file = self.changed(lambda d, values=iterations: d["parameters"].update(values))
            result = result_files.load(file, "compare_ddp")
            self.assertEqual(ddp_comparison.measured_statistics(result), [*ddp_comparison.STATISTICS][:expected])
            row = next(line for line in self.texts(file)[0].splitlines() if line.startswith("DDPOption.PYTHON"))
            self.assertEqual(row.split().count("-"), 2 * (5 - expected), row)

    def test_left_out_variants_are_named(self) -> None:
        table, takeaways, _ = self.texts(self.kept(lambda labels: labels["variant"] != SYNC))
        self.assertIn("Left out: unfinished: sync.", table.replace("\n", " "))
        self.assertNotIn("DDPOption.PYTHON_DDP_SYNC_REDUCTION", table)
        self.assertNotIn("No difference", takeaways.split("published:")[0])

    def test_refuses_what_is_missing_or_foreign(self) -> None:
        refused = self.assert_refused
        refused([self.changed(lambda d: d["series"].pop(0))], "lacks forward of core at 3M")
        other = self.changed(lambda d: d["series"][0]["labels"].update(variant="other"))
        refused([other], "a series of something else")
        refused([self.changed(lambda d: d["series"][0].update(values=[0.0]))], "takes no time")
        refused([self.changed(lambda d: d["series"][0].update(values=[]))], "has no values of")
        refused([self.changed(lambda d: d["series"][0].update(unit="ms"))], "not in 's'")
        refused([self.changed(lambda d: d["parameters"].pop("iterations"))], "lacks the parameter 'iterations'")
        refused([self.changed(lambda d: d["parameters"].pop("times_of"))], "lacks the parameter 'times_of'")
        refused([self.changed(lambda d: d["series"].append(d["series"][0]))], "has 2 series of")
        refused([OWN_LINK], "comes from the program 'naive_vs_flat'")


class Takeaways(unittest.TestCase):
    def test_published_numbers_lead_to_the_published_claims(self) -> None:
        texts = said(ddp_comparison.published())
        self.assertEqual(
            texts["forward"], "In the forward path, async and sync are 1 % faster than core. sync is on par with async."
        )
        self.assertEqual(texts["ranking"], "In backward, speed ranking: core > async > sync.")
        self.assertIn("async - backward is [2 % - 20 %] slower than core, more with larger buffers", texts["async"])
        self.assertEqual(
            texts["no difference"],
            "No difference between async and sync from 25M on: once buffer size is larger than total elements "
            "(24.37M), such as 25M, 26M, 27M.",
        )
        self.assertIn("sync - backward is 20 % slower than core, independent of buffer size", texts["sync"])
        self.assertNotIn("equal bytes", texts)

    def test_equal_numbers(self) -> None:
        texts = said(made_up(lambda variant, size: 200))
        self.assertEqual(
            texts["forward"], "In the forward path, async and sync are on par with core. sync is on par with async."
        )
        self.assertEqual(texts["ranking"], "In backward, speed ranking: core = async = sync.")
        self.assertIn("on par with core, independent of buffer size", texts["async"])
        self.assertIn("No difference between async and sync at any buffer size, 3M, 6M, ", texts["no difference"])
        self.assertIn("sync - backward is on par with core", texts["sync"])

    def test_async_is_faster(self) -> None:
        texts = said(made_up(lambda variant, size: {CORE: 200, ASYNC: 180, SYNC: 220}[variant]))
        self.assertEqual(texts["ranking"], "In backward, speed ranking: async > core > sync.")
        self.assertIn("async - backward is 10 % faster than core, independent of buffer size", texts["async"])
        self.assertIn("differ at every size up to the largest, 27M, which is larger than total", texts["no difference"])

    def test_sync_grows_and_async_shrinks(self) -> None:
        slowdown = {CORE: lambda size: 0, ASYNC: lambda size: 80 - 2 * size, SYNC: lambda size: 60 + 2 * size}
        texts = said(made_up(lambda variant, size: 200 + slowdown[variant](size)))
        self.assertIn("core, more with larger buffers (rank correlation 1.00)", texts["sync"])
        self.assertIn("[13 % - 37 %] slower than core, less with larger buffers", texts["async"])

    def test_ranking_that_changes_says_where(self) -> None:
        texts = said(made_up(lambda variant, size: 190 + size if variant == ASYNC else 200))
        self.assertEqual(
            texts["ranking"],
            "In backward, the speed ranking changes with the buffer size: async > core = sync at 3M, 6M; "
            "async = core = sync at 9M; core = sync > async at 12M, 15M, 18M, 21M, 24M, 27M.",
        )
        self.assertIn("between 4 % faster and 8 % slower than core", texts["async"])

    def test_equal_from_another_size(self) -> None:
        def backward(first: int) -> Milliseconds:
            return lambda variant, size: 250 if variant == SYNC or (variant == ASYNC and size >= first) else 200

        text = said(made_up(backward(12)))["no difference"]
        self.assertIn("from 12M on, though a buffer of that size is smaller", text)
        sizes = {size: cell for size, cell in made_up(backward(12)).items() if size < 12}
        self.assertIn("the largest, 9M; none is larger than total elements", said(sizes)["no difference"])

    def test_forward_may_differ(self) -> None:
        forward = {CORE: 100, ASYNC: 120, SYNC: 90}
        texts = said(made_up(lambda variant, size: 200, lambda variant, size: forward[variant]))
        self.assertEqual(
            texts["forward"],
            "In the forward path, async is 20 % slower than core, sync is 10 % faster than core. "
            "sync is 30 % faster than async.",
        )

    def test_few_sizes_and_variants(self) -> None:
        whole = made_up(lambda variant, size: 200 + 10 * size if variant == SYNC else 200)
        few = {
            size: {way: {v: latency for v, latency in cell[way].items() if v != ASYNC} for way in DIRECTIONS}
            for size, cell in whole.items()
            if size < 9
        }
        texts = said(few)
        self.assertEqual(set(texts), {"forward", "ranking", "sync"})
        self.assertIn("too few to tell", texts["sync"])
        self.assertEqual(texts["forward"], "In the forward path, sync is on par with core.")

    def test_equal_bytes_are_told_apart(self) -> None:
        comparison = made_up(lambda variant, size: 200)
        for cell in comparison.values():
            for latencies in cell.values():
                slower = {name: 1.1 * value for name, value in dataclasses.asdict(latencies[CORE]).items()}
                latencies[EQUAL_BYTES] = Latency(**slower)
        self.assertIn("equal bytes - backward is 10 % slower than core as published", said(comparison)["equal bytes"])

    def test_rank_correlation(self) -> None:
        self.assertAlmostEqual(ddp_takeaways.rank_correlation({1: 1, 2: 10, 3: 100}), 1)
        self.assertAlmostEqual(ddp_takeaways.rank_correlation({1: 5, 2: 5, 3: 1, 4: 0}), -0.9487, places=4)
        self.assertEqual(ddp_takeaways.rank_correlation({1: 5, 2: 5}), 0)


class Figures(FigureTest):
    sample = SAMPLE

    def texts(self, draw: Callable[[result_files.Result], Any], file: Any = SAMPLE) -> list[str]:
        figure = draw(result_files.load(file, "compare_ddp"))
        return [text.replace("\n", " ") for text in texts_of(figure)]

    def test_latency(self) -> None:
        self.script = compare_ddp
        self.assert_drawn([SAMPLE], "compare_ddp.solutions.quick")
        texts = self.texts(compare_ddp.draw)
        for expected in ("backward [ms]", "forward [ms]", "measured: batch 2, 32x32, the machine's own link",
                         "published: batch 32, 224x224", "all 24.37M",
                         "async (stage 03)", "core, equal bytes"):  # fmt: skip
            self.assertIn(expected, texts)
        self.assertTrue(any("n = 3 iterations; mean squared error; rank 0's times" in text for text in texts))

    def test_delta(self) -> None:
        self.script = compare_ddp_delta
        self.assert_drawn([SAMPLE], "compare_ddp.delta.solutions.quick")
        figure = compare_ddp_delta.draw(result_files.load(SAMPLE, "compare_ddp"))
        series = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) > 2]
        # Own lines have two caps of whiskers each.
        self.assertEqual(sorted(len(line.get_xdata()) for line in series), [*[8] * 9, 25, 25])
        self.assertIn("published, of the same colour", self.texts(compare_ddp_delta.draw))

    def test_left_out_variants_are_named(self) -> None:
        file = self.kept(lambda labels: labels["variant"] not in (ASYNC, SYNC))
        for draw in (compare_ddp.draw, compare_ddp_delta.draw):
            self.assertTrue(any("Left out: unfinished: async, sync." in text for text in self.texts(draw, file)))

    def test_refuses_foreign_files(self) -> None:
        for self.script in (compare_ddp, compare_ddp_delta):
            self.assert_refused([OWN_LINK], "comes from the program 'naive_vs_flat'")
            self.assert_refused([self.folder / "none.json"], "there is no such file; run the benchmark compare_ddp")
