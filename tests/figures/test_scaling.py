"""The figure of weak scaling on the simulated cluster, on small data, good and bad."""

from __future__ import annotations

from typing import Any

from figures.lib.result_files import Result, load_group
from figures.plots import scaling
from tests.figures.figure_test import OWN_LINK, TEST_DATA, FigureTest, texts_of  # first: it finds the scripts


class Scaling(FigureTest):
    script = scaling
    sample = TEST_DATA / "scaling.json"

    def result(self) -> Result:
        return load_group([self.sample], "scaling", shared=(), own=scaling.PARAMETERS)[0]

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "scaling.solutions.quick")

    def test_efficiency_is_computing_alone_over_the_step(self) -> None:
        result = self.result()
        steps, efficiencies = scaling.steps_of(result), scaling.efficiencies(result)
        self.assertEqual(list(efficiencies), ["naive", "flat", "overlapped", "bucketed", "Reducer"])
        for name, values in efficiencies.items():
            self.assertEqual(sorted(values), [1, 2, 64, 4096], name)
            for gpus, value in values.items():
                self.assertAlmostEqual(value, 100 * steps["compute only"][1] / steps[name][gpus])
                self.assertLess(value, 100, name)

    def test_best_caps_and_those_nearly_as_good(self) -> None:
        self.assertEqual(scaling.best_caps({1: 2.0, 2: 1.004, 4: 1.0, 8: 1.0049, 16: 1.006}), (4, 2, 8))
        self.assertEqual(scaling.best_caps({1: 1.0, 2: 1.0}), (1, 1, 2))
        by_gpus = scaling.steps_by_cap(self.result())
        self.assertEqual(sorted(by_gpus), [2, 64, 4096])
        self.assertTrue(all(len(steps) > 5 for steps in by_gpus.values()))

    def test_says_what_was_simulated(self) -> None:
        texts = " ".join(texts_of(scaling.draw(self.result())))
        for expected in ("weak scaling", "b* = √(s·w·o)", "1,998 M parameters", "A100 at 50% of its peak",
                         "whether or not the code's values are right"):  # fmt: skip
            self.assertIn(expected, texts)

    def test_unfinished_stages_are_left_out(self) -> None:
        def without_03(document: dict[str, Any]) -> None:
            document["series"] = [
                s for s in document["series"]
                if s["labels"].get("variant") != "bucketed" and s["labels"]["quantity"] == "step"
            ]  # fmt: skip

        self.assert_drawn([self.changed(without_03)], "scaling.solutions.quick")

    def test_refuses_what_is_missing(self) -> None:
        self.assert_refused(
            [self.kept(lambda labels: labels.get("variant") != "compute only")],
            "lacks compute only; run the benchmark scaling again",
        )
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("gpu"))], "lacks the parameter 'gpu'")
        self.assert_refused([OWN_LINK], "comes from the program 'naive_vs_flat'")
