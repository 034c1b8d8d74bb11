"""The figures of sharded stages at scale, on small data, good and bad."""

from __future__ import annotations

from figures.lib.result_files import Result, load_group
from figures.plots import memory_by_kind, sharded_scaling
from tests.figures.figure_test import TEST_DATA, FigureTest, texts_of  # first: it finds the scripts


class ShardedScaling(FigureTest):
    script = sharded_scaling
    sample = TEST_DATA / "sharded_scaling.json"

    def result(self) -> Result:
        return load_group([self.sample], "sharded_scaling", shared=(), own=sharded_scaling.PARAMETERS)[0]

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "sharded_scaling.solutions.quick", "sharded_scaling.prefetch.solutions.quick")

    def test_efficiency_is_forward_and_backward_alone_over_the_step(self) -> None:
        steps = sharded_scaling.values_of(self.result(), "step", "s")
        for model, variants in steps.items():
            for name, values in sharded_scaling.efficiencies(variants).items():
                for gpus, percent in values.items():
                    alone = variants["compute only"][1]
                    self.assertAlmostEqual(percent, 100 * alone / variants[name][gpus], msg=(model, name, gpus))
                    self.assertLessEqual(percent, 100, (model, name, gpus))

    def test_what_does_not_fit_is_said(self) -> None:
        most = sharded_scaling.values_of(self.result(), "most", "bytes")["7.5b"]
        self.assertFalse(sharded_scaling.fits(most["bucketed"][64]))
        self.assertTrue(sharded_scaling.fits(most["fully sharded"][64]))
        self.assertIn("more than 80 GB", " ".join(texts_of(sharded_scaling.draw(self.result()))))

    def test_refuses_what_is_missing(self) -> None:
        self.assert_refused(
            [self.kept(lambda labels: labels.get("variant") != "compute only")],
            "lacks compute only; run the benchmark sharded_scaling again",
        )

    def test_no_step_is_shorter_than_the_bound(self) -> None:
        for model, lines in sharded_scaling.by_link(self.result()).items():
            for speed, seconds in sharded_scaling.bound(lines).items():
                for ahead in range(3):
                    self.assertGreaterEqual(lines[sharded_scaling.STEP, ahead][speed], seconds, (model, speed, ahead))
            self.assertGreater(sharded_scaling.most_saved(lines)[1], 10, model)

    def test_prefetch_is_drawn_with_stage_07_alone(self) -> None:
        without = self.kept(lambda labels: "by link" not in labels["quantity"])
        self.assert_drawn([without], "sharded_scaling.solutions.quick")


class MemoryByKind(FigureTest):
    script = memory_by_kind
    sample = TEST_DATA / "memory_per_gpu.kinds.json"

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "memory_per_gpu.kinds.solutions.quick")

    def test_kinds_add_up_to_the_most(self) -> None:
        (result,) = load_group([self.sample], "memory_per_gpu", shared=(), own=memory_by_kind.PARAMETERS)
        for stage, by_gpus in memory_by_kind.bars(result).items():
            for gpus, (moment, kinds) in by_gpus.items():
                most = result.values("bytes", quantity="most", stage=stage, parameters=7_500_000_000, world_size=gpus)
                self.assertAlmostEqual(1e9 * sum(kinds.values()), most[0], delta=1)
                self.assertEqual(list(kinds), list(memory_by_kind.KINDS))
                self.assertIn(moment, ("forward", "backward", "finish", "update"))

    def test_refuses_what_lacks_kinds(self) -> None:
        self.assert_refused(
            [self.kept(lambda labels: labels["quantity"] == "most")],
            "lacks what is held by kind; run the benchmark memory_per_gpu again",
        )
