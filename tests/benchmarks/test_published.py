"""Tests of --preset published on the solution: that predictions are as good as figures/reference/calibration.json says,
and it what the tool makes; what a change of the set-up does; and what is refused.
"""

from __future__ import annotations

import json
from typing import Any

from figures.lib import ddp_comparison, predictions
from figures.lib.ddp_takeaways import takeaways
from figures.lib.result_files import load
from tests.benchmarks.program_test import BUILD, ProgramTest
from tools.report import calibrate

CALIBRATION = json.loads(calibrate.FILE.read_text())["experiments"]
PUBLISHED = ("--preset", "published")
MOST_CONSTANTS = 6


class Published(ProgramTest):
    stage = "03_bucketed_ddp"

    def compute(self, *flags: object) -> dict[str, Any]:
        return self.run_well(*PUBLISHED, *flags)

    def seconds(self, document: dict[str, Any], **labels: object) -> float:
        (one,) = self.series(document, **labels)
        (value,) = one["values"]
        return value


class Calibration(Published):
    """The committed file, and what it says of the predictions."""

    program = "compare_ddp"

    def cells(self, program: str) -> list[predictions.Cell]:
        if not (BUILD / "bin" / program).exists():
            self.skipTest(f"{program} is not built")
        return calibrate.Program(program, self.folder).cells(CALIBRATION[program]["constants"])

    def errors_as_committed(self, program: str) -> dict[str, predictions.Errors]:
        cells = self.cells(program)
        self.assertEqual(calibrate.describe(program, CALIBRATION[program]["constants"], cells), CALIBRATION[program])
        fitted = set(CALIBRATION[program]["constants"]) - set(CALIBRATION[program]["given"])
        self.assertLessEqual(len(fitted), MOST_CONSTANTS)
        return predictions.errors(cells)

    def test_compare_ddp_is_predicted(self) -> None:
        errors = self.errors_as_committed("compare_ddp")
        for variant in ("core", "async", "sync"):
            found = errors[f"backward of {variant}"]
            self.assertEqual(found.cells, 22)
            self.assertLess(found.mean, 2)
            self.assertLess(found.largest, 4)
        self.assertGreater(errors["backward of async"].correlation, 0.97)
        self.assertGreater(errors["backward of core"].correlation, 0.97)

    def test_bucketed_ddp_is_predicted(self) -> None:
        errors = self.errors_as_committed("bucketed_ddp")
        total = errors[predictions.TOTAL]
        self.assertEqual(total.cells, 18)
        self.assertLess(total.mean, 2)
        self.assertLess(total.largest, 4)
        self.assertEqual(CALIBRATION["bucketed_ddp"]["best_sizes_as_published"], "4 of 6")

    def test_ddp_suite_is_predicted(self) -> None:
        errors = self.errors_as_committed("ddp_suite")
        self.assertEqual(errors[predictions.ITERATION].cells, 15)
        self.assertLess(errors[predictions.ITERATION].mean, 2)
        self.assertLess(errors[predictions.ITERATION].largest, 5)
        self.assertLess(errors[predictions.AB].largest, 1.5)
        for quantity in (predictions.ITERATION, predictions.OVERHEAD):
            self.assertLess(errors[quantity].mean, errors[quantity].dull_mean)

    def test_the_tool_makes_the_same_constants(self) -> None:
        """From its own starting values, by running the program. Libraries for matrices may differ in last digits."""
        program = calibrate.Program(self.program, self.folder)
        made = calibrate.fit(program, calibrate.EXPERIMENTS[self.program])
        for name, constant in CALIBRATION[self.program]["constants"].items():
            self.assertAlmostEqual(made[name] / constant, 1, delta=0.005, msg=name)

    def test_the_takeaways_are_the_published_ones(self) -> None:
        self.compute()
        predicted = ddp_comparison.measured(load(self.result, self.program))
        elements = 25_557_032
        own = takeaways(ddp_comparison.with_published_spread(predicted), elements)
        theirs = takeaways(ddp_comparison.published(), elements)
        for topic in ("ranking", "no difference"):
            self.assertEqual(own[topic], theirs[topic])
        self.assertTrue(own["async"].startswith("async - backward is [2 % - 20 %] slower than core, more with larger"))
        self.assertTrue(own["sync"].startswith("sync - backward is 20 % slower than core"))


class CompareDdp(Published):
    program = "compare_ddp"

    def test_is_the_same_in_every_run(self) -> None:
        first, second = (self.compute("--buffer-sizes", "3,25")["series"] for _ in range(2))
        self.assertEqual(first, second)
        self.assertEqual(len(first), 2 * 5 * 2)
        self.assertIn("=== Summary for buffer_size: 25M ===\nDDP: [forward]", self.output)
        self.assertEqual(self.output.count("DDPOption.PYTHON_DDP_ASYNC_REDUCTION"), 4)

    def test_forward_order_is_what_grows(self) -> None:
        """At 24M all but the last buffer is done early in the reverse order, and none in the forward order."""
        document = self.compute("--buffer-sizes", "24")
        backward = {
            variant: self.seconds(document, variant=variant, direction="backward")
            for variant in ("core", "async", "sync", "stage 03")
        }
        self.assertGreater(backward["async"], 1.15 * backward["stage 03"])
        self.assertLess(backward["stage 03"], backward["core"])
        self.assertGreater(backward["sync"], backward["async"])

    def test_other_hardware_is_an_experiment(self) -> None:
        flags = ("--buffer-sizes", "25")
        sync = {"variant": "sync", "direction": "backward"}
        slow = self.seconds(self.compute(*flags), **sync)
        fast = self.seconds(self.compute(*flags, "--link", "nvlink3"), **sync)
        self.assertAlmostEqual(slow - fast, 4 * 25_557_032 * (1 / 1.011e9 - 1 / 300e9), delta=0.003)
        faster = self.seconds(self.compute(*flags, "--link", "nvlink3", "--gpu", "H100"), **sync)
        self.assertLess(faster, fast / 2)
        twice = self.seconds(self.compute(*flags, "--batch-size", "64"), variant="core", direction="forward")
        self.assertAlmostEqual(twice, 2 * 0.2089, delta=0.002)
        eight = self.seconds(self.compute(*flags, "--gpus", "8"), **sync)
        self.assertAlmostEqual(eight - slow, 0.75 * 4 * 25_557_032 / 1.011e9, delta=0.003)  # 2 (p - 1) / p

    def test_refuses_what_means_nothing(self) -> None:
        refused = {
            ("--gpu", "B200"): "--gpu: B200 not in {V100,A100,H100,A4000,T4,",
            ("--link", "string"): "--link: string not in {pcie3",
            ("--gpus", "0"): "--gpus: Value 0 not in range",
            ("--gpus", "2,4"): "--gpus: this program runs one cluster at a time, not 2; give one number",
            ("--buffer-sizes", "0"): "--buffer-sizes: Value 0 not in range",
            ("--no-broadcast-buffers",): "measures none: leave out --broadcast-buffers",
            ("--iterations", "3"): "--preset published computes times and measures none: leave out --iterations",
            ("--world-size", "2"): "leave out --world-size",
            ("--calibration", "none.json"): "none.json: cannot be read",
        }
        for flags, message in refused.items():
            with self.subTest(flags=flags):
                ended = self.start(*PUBLISHED, *flags)
                self.assertNotEqual(ended.returncode, 0)
                self.assertIn(message, ended.stderr)
                self.assertFalse(self.result.exists())
        ended = self.start("--gpu", "H100")
        self.assertIn("--gpu: only with --preset published", ended.stderr)

    def test_refuses_the_calibration_of_another_experiment(self) -> None:
        other = self.folder / "other.json"
        other.write_text(json.dumps({"experiments": {"ddp_suite": CALIBRATION["ddp_suite"]}}))
        self.assert_refused(
            "other.json: has nothing about compare_ddp, only about: ddp_suite", *PUBLISHED, "--calibration", other
        )

    def test_says_that_a_stub_is_unfinished(self) -> None:
        ended = self.start(*PUBLISHED, impl="assignments")
        self.assertEqual(ended.returncode, 3, ended.stderr)
        self.assertIn("TODO(student)", ended.stderr)

    def test_is_drawn(self) -> None:
        self.compute()
        self.assert_drawn("plots.compare_ddp_published")
        self.assert_drawn("tables.compare_ddp", files=6)
        self.assert_presets_are_described("\n  published  ")


class BucketedDdp(Published):
    program = "bucketed_ddp"

    def time(self, document: dict[str, Any], **labels: object) -> float:
        return self.seconds(document, part="train", **labels)

    def test_has_a_u_over_the_bucket_size(self) -> None:
        document = self.compute("--batch-sizes", "2", "--sequence-lengths", "512")
        times = [self.time(document, variant="bucketed", bucket_size_mb=size) for size in (1, 10, 100, 1000)]
        self.assertGreater(times[0], times[2])
        self.assertGreater(times[3], times[2])
        others = [self.time(document, variant=variant) for variant in ("naive", "flat", "overlapped", "compute only")]
        self.assertEqual(others, sorted(others, reverse=True))
        self.assertGreater(others[2], times[2])
        self.assertIn("Training DDP model, local_bs: 2, seq_len: 512, bucket_size_mb: 1000\n", self.output)

    def test_what_would_align_results_with_expectations(self) -> None:
        """With a fast link nothing is left to hide, and large buckets cost nothing."""
        flags = ("--batch-sizes", "2", "--sequence-lengths", "128")
        slow, fast = self.compute(*flags), self.compute(*flags, "--link", "nvlink3")

        def bucketed(document: dict[str, Any], size: int) -> float:
            """How long it takes beside computing alone."""
            time = self.time(document, variant="bucketed", bucket_size_mb=size)
            return time / self.time(document, variant="compute only")

        self.assertGreater(bucketed(slow, 100), 1.5)
        self.assertLess(bucketed(fast, 100), 1.02)
        self.assertGreater(bucketed(slow, 1) - bucketed(slow, 100), 0.03)
        self.assertLess(max(bucketed(fast, size) - bucketed(fast, 100) for size in (1, 1000)), 0.01)

    def test_refuses_a_cap_of_zero(self) -> None:
        self.assertIn("--bucket-mb: Value 0 not in range", self.start(*PUBLISHED, "--bucket-mb", "0").stderr)

    def test_is_drawn(self) -> None:
        self.compute()
        self.assert_drawn("plots.bucketed_ddp_published", files=4)
        self.assert_drawn("tables.bucketed_ddp", files=4)


class DdpSuite(Published):
    program = "ddp_suite"

    def test_says_what_ddp_adds_on_more_and_more_gpus(self) -> None:
        document = self.compute("--model", "resnet50", "--gpus", "1,8,64")
        alone = self.seconds(document, round="no ddp")
        self.assertAlmostEqual(alone, CALIBRATION["ddp_suite"]["constants"]["compute_s.resnet50"], places=4)
        times = [
            self.seconds(document, round=name, variant="Reducer", bucket_size=25)
            for name in ("1M/1G", "1M/8G", "8M/8G")
        ]
        self.assertEqual([alone, *times], sorted([alone, *times]))
        self.assertIn("  64 GPUs --    8M/8G:  p50:  ", self.output)

    def test_refuses_a_cap_of_zero(self) -> None:
        self.assertIn("--bucket-size: Value 0 not in range", self.start(*PUBLISHED, "--bucket-size", "0").stderr)

    def test_is_drawn(self) -> None:
        self.compute()
        self.assert_drawn("plots.ddp_suite_published")
        self.assert_drawn("tables.ddp_suite", files=12)


del Published  # else it would be run as a test of its own
