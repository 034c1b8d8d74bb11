"""The figure of memory on each GPU, on small data, good and bad."""

from __future__ import annotations

from figures.lib.result_files import Result, load_group
from figures.plots import memory_per_gpu
from tests.figures.figure_test import TEST_DATA, FigureTest, texts_of  # first: it finds the scripts


class MemoryPerGpu(FigureTest):
    script = memory_per_gpu
    sample = TEST_DATA / "memory_per_gpu.json"

    def result(self) -> Result:
        return load_group([self.sample], "memory_per_gpu", shared=(), own=memory_per_gpu.PARAMETERS)[0]

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "memory_per_gpu.solutions.quick")

    def test_what_is_published_is_found_again(self) -> None:
        held = memory_per_gpu.held_by(self.result())
        self.assertEqual(sorted(held), [7_500_000_000, 128_000_000_000, 1_000_000_000_000])
        small = held[7_500_000_000]
        self.assertEqual([round(small[stage][64], 1) for stage in memory_per_gpu.LOOKS], [120.0, 16.6, 1.9])
        self.assertEqual(memory_per_gpu.published(7_500_000_000)["os+g"][64], 16.6)
        self.assertLess(memory_per_gpu.largest_error(held), 0.5, "percent")
        self.assertEqual(memory_per_gpu.published(1)["os"], {})

    def test_the_largest_model_is_that_of_a_steps_peak(self) -> None:
        largest = memory_per_gpu.largest_model(memory_per_gpu.held_by(self.result(), "most"))
        # 18 bytes a parameter: its own 2, 2 of the gradient, 2 in buckets, 12 of state.
        self.assertAlmostEqual(largest["03_bucketed_ddp"][64], 80 / 18, delta=0.01)
        self.assertGreater(largest["06_sharded_optimizer"][64], 2 * largest["03_bucketed_ddp"][64])

    def test_says_what_it_counts(self) -> None:
        texts = " ".join(texts_of(memory_per_gpu.draw(self.result())))
        for expected in ("7.5 billion", "1,000 billion", "ZeRO: and gradients", "Activations are not"):
            self.assertIn(expected, texts)

    def test_refuses_what_lacks_bytes(self) -> None:
        self.assert_refused(
            [self.kept(lambda labels: labels["quantity"] != "held")],
            "lacks what is held; run the benchmark memory_per_gpu again",
        )
