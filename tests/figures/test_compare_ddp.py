"""The takeaways and tables of the experiment compare_ddp, on published, small and made-up numbers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from figures.lib import ddp_comparison, ddp_takeaways, result_files
from figures.lib.ddp_comparison import ASYNC, CORE, DIRECTIONS, EQUAL_BYTES, SYNC, Latency
from figures.plots import compare_ddp_delta
from figures.tables import compare_ddp
from tests.figures.figure_test import TEST_DATA, ScriptTest, keep

ELEMENTS = 25_557_032
SAMPLE = TEST_DATA / "compare_ddp.json"

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
        for size in range(3, 28, 3)
    }


def said(comparison: ddp_comparison.Comparison) -> dict[str, str]:
    return ddp_takeaways.takeaways(comparison, ELEMENTS)


def by_variant(core: float, asynchronous: float, sync: float) -> Milliseconds:
    return lambda variant, size: {CORE: core, ASYNC: asynchronous, SYNC: sync}[variant]


def sync_grows_and_async_shrinks(variant: str, size: int) -> float:
    return {CORE: 200, ASYNC: 280 - 2 * size, SYNC: 260 + 2 * size}[variant]


def equal_from_12(variant: str, size: int) -> float:
    return 250 if variant == SYNC or (variant == ASYNC and size >= 12) else 200


EQUAL = by_variant(200, 200, 200)
SAID = (  # of what, on which topic, and what it begins with or has in it
    (ddp_comparison.published(), "forward",
     "In the forward path, async and sync are 1 % faster than core. sync is on par with async."),
    (ddp_comparison.published(), "ranking", "In backward, speed ranking: core > async > sync."),
    (ddp_comparison.published(), "async",
     "async - backward is [2 % - 20 %] slower than core, more with larger buffers"),
    (ddp_comparison.published(), "no difference",
     "No difference between async and sync from 25M on: once buffer size is larger than total elements (24.37M), such "
     "as 25M, 26M, 27M."),
    (ddp_comparison.published(), "sync", "sync - backward is 20 % slower than core, independent of buffer size"),
    (made_up(EQUAL), "forward",
     "In the forward path, async and sync are on par with core. sync is on par with async."),
    (made_up(EQUAL), "ranking", "In backward, speed ranking: core = async = sync."),
    (made_up(EQUAL), "async", "on par with core, independent of buffer size"),
    (made_up(EQUAL), "no difference", "No difference between async and sync at any buffer size, 3M, 6M, "),
    (made_up(EQUAL), "sync", "sync - backward is on par with core"),
    (made_up(by_variant(200, 180, 220)), "ranking", "In backward, speed ranking: async > core > sync."),
    (made_up(by_variant(200, 180, 220)), "async",
     "async - backward is 10 % faster than core, independent of buffer size"),
    (made_up(by_variant(200, 180, 220)), "no difference",
     "differ at every size up to the largest, 27M, which is larger than total"),
    (made_up(sync_grows_and_async_shrinks), "sync", "core, more with larger buffers (rank correlation 1.00)"),
    (made_up(sync_grows_and_async_shrinks), "async", "[13 % - 37 %] slower than core, less with larger buffers"),
    (made_up(lambda variant, size: 190 + size if variant == ASYNC else 200), "ranking",
     "In backward, the speed ranking changes with the buffer size: async > core = sync at 3M, 6M; "
     "async = core = sync at 9M; core = sync > async at 12M, 15M, 18M, 21M, 24M, 27M."),
    (made_up(lambda variant, size: 190 + size if variant == ASYNC else 200), "async",
     "between 4 % faster and 8 % slower than core"),
    (made_up(equal_from_12), "no difference", "from 12M on, though a buffer of that size is smaller"),
    ({size: cell for size, cell in made_up(equal_from_12).items() if size < 12}, "no difference",
     "the largest, 9M; none is larger than total elements"),
    (made_up(EQUAL, by_variant(100, 120, 90)), "forward",
     "In the forward path, async is 20 % slower than core, sync is 10 % faster than core. sync is 30 % faster than "
     "async."),
)  # fmt: skip


class TestTakeaways:
    @pytest.mark.parametrize(("comparison", "topic", "text"), SAID)
    def test_are_said(self, comparison: ddp_comparison.Comparison, topic: str, text: str) -> None:
        assert text in said(comparison)[topic]

    def test_few_sizes_and_variants(self) -> None:
        whole = made_up(lambda variant, size: 200 + 10 * size if variant == SYNC else 200)
        few = {
            size: {way: {v: latency for v, latency in cell[way].items() if v != ASYNC} for way in DIRECTIONS}
            for size, cell in whole.items()
            if size < 9
        }
        texts = said(few)
        assert set(texts) == {"forward", "ranking", "sync"}
        assert "too few to tell" in texts["sync"]
        assert texts["forward"] == "In the forward path, sync is on par with core."

    def test_equal_bytes_are_told_apart(self) -> None:
        comparison = made_up(EQUAL)
        assert "equal bytes" not in said(comparison)
        for cell in comparison.values():
            for latencies in cell.values():
                slower = {name: 1.1 * value for name, value in dataclasses.asdict(latencies[CORE]).items()}
                latencies[EQUAL_BYTES] = Latency(**slower)
        assert "equal bytes - backward is 10 % slower than core as published" in said(comparison)["equal bytes"]

    def test_rank_correlation(self) -> None:
        assert ddp_takeaways.rank_correlation({1: 1, 2: 10, 3: 100}) == pytest.approx(1)
        assert ddp_takeaways.rank_correlation({1: 5, 2: 5, 3: 1, 4: 0}) == pytest.approx(-0.9487, abs=1e-4)
        assert ddp_takeaways.rank_correlation({1: 5, 2: 5}) == 0

    def test_simulated_spread_is_the_published_one(self) -> None:
        result = result_files.load(TEST_DATA / "compare_ddp.simulated.json", "compare_ddp")
        predicted = ddp_comparison.measured(result)
        theirs = ddp_comparison.published()[14]["backward"][ASYNC]
        own = ddp_comparison.with_published_spread(predicted)[14]["backward"][ASYNC]
        assert own.p50 == predicted[14]["backward"][ASYNC].p50
        assert own.p90 / own.p50 == pytest.approx(theirs.p90 / theirs.p50)


class TestTable(ScriptTest):
    def tables(self, file: Path = SAMPLE) -> list[str]:
        return [table.text for _, table in compare_ddp.tables(result_files.load(file, "compare_ddp"))]

    def test_has_model_sizes_and_takeaways(self) -> None:
        text = self.tables()[0]
        for expected in (
            "total parameters        25,557,032 = 24.37M in 161 tensors",
            "trainable parameters    25,557,032 = 24.37M",
            "largest parameter        2,359,296 = 2.25M, layer4.0.conv2.weight (512x512x3x3)",
            *(f" {takeaway}\n" for takeaway in
              said(ddp_comparison.measured(result_files.load(SAMPLE, "compare_ddp"))).values()),
        ):  # fmt: skip
            assert expected in text
        assert "the median, as in the published table" in " ".join(text.split())
        summaries = re.findall(r"=== Summary for buffer_size: (\d+)M ===", text)
        assert summaries == ["3", "6", "10", "14", "19", "24", "25", "27"]

    @pytest.mark.parametrize(
        ("count", "expected"), ((1, 2), (9, 2), (10, 3), (15, 3), (19, 3), (20, 4), (99, 4), (100, 5))
    )
    def test_prints_no_percentile_that_iterations_do_not_support(self, count: int, expected: int) -> None:
        """Of mean, p50, p90, p95, p99."""
        iterations = {"iterations": count + 3, "discarded": 3}
        file = self.changed("compare_ddp", lambda d: d["parameters"].update(iterations))
        known = ddp_comparison.measured_statistics(result_files.load(file, "compare_ddp"))
        assert known == [*ddp_comparison.STATISTICS][:expected]
        row = next(line for line in self.tables(file)[0].splitlines() if line.startswith("DDPOption.PYTHON"))
        assert row.split().count("-") == 2 * (5 - expected)

    def test_left_out_variants_are_named(self) -> None:
        file = self.changed("compare_ddp", keep(lambda of: of["variant"] != SYNC))
        table, takeaways, _ = self.tables(file)
        assert "Left out: unfinished: sync." in table.replace("\n", " ")
        assert "DDPOption.PYTHON_DDP_SYNC_REDUCTION" not in table
        assert "No difference" not in takeaways.split("published:")[0]

    def test_delta_has_own_and_published_lines(self) -> None:
        (figure,) = self.drawn(compare_ddp_delta, SAMPLE)
        series = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) > 2]
        # Own lines have two caps of whiskers each.
        assert sorted(len(line.get_xdata()) for line in series) == [*[8] * 9, 25, 25]
