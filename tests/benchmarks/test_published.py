"""Tests of the subcommand published on the solution: that predictions are as good as calibration.json says,
and it what the tool makes; and what a change of the set-up does.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

from figures.lib import predictions
from tests.benchmarks.program_helpers import AVERAGING, ProgramTest, values
from tools.report import calibrate

CALIBRATION = json.loads(calibrate.FILE.read_text())["experiments"]
MOST_CONSTANTS = 6
SYNC = {"variant": "sync", "direction": "backward"}


pytestmark = [
    pytest.mark.slow,
    pytest.mark.builds("step", *(f"solutions_{stage}" for stage in AVERAGING)),
]


class Published(ProgramTest):
    program = "step"

    def compute(self, *flags: object) -> dict[str, Any]:
        return self.run_well(*flags)

    def seconds(self, document: dict[str, Any], **labels: object) -> float:
        (value,) = values(document, **labels)
        return value


class TestCalibration(Published):
    """The committed file, and what it says of the predictions."""

    def errors_as_committed(self, name: str) -> pd.DataFrame:
        committed = CALIBRATION[name]
        cells = calibrate.Program(name, self.folder).cells(committed["constants"])
        assert calibrate.describe(name, committed["constants"], cells) == committed
        assert len(set(committed["constants"]) - set(committed["given"])) <= MOST_CONSTANTS
        return predictions.errors(cells)

    def test_compare_ddp_is_predicted(self) -> None:
        errors = self.errors_as_committed("compare_ddp")
        for variant in ("core", "async", "sync"):
            found = errors.loc[f"backward of {variant}"]
            assert (found.cells, found["mean"] < 2, found.largest < 4) == (22, True, True), found
            assert variant == "sync" or found.correlation > 0.97

    def test_bucketed_ddp_is_predicted(self) -> None:
        total = self.errors_as_committed("bucketed_ddp").loc[predictions.TOTAL]
        assert (total.cells, total["mean"] < 2, total.largest < 4) == (18, True, True), total
        assert CALIBRATION["bucketed_ddp"]["best_sizes_as_published"] == "4 of 6"

    def test_ddp_suite_is_predicted(self) -> None:
        errors = self.errors_as_committed("ddp_suite")
        iteration = errors.loc[predictions.ITERATION]
        assert (iteration.cells, iteration["mean"] < 2, iteration.largest < 5) == (15, True, True), iteration
        assert errors.loc[predictions.AB].largest < 1.5
        for quantity in (predictions.ITERATION, predictions.OVERHEAD):
            assert errors["mean"][quantity] < errors["baseline_mean"][quantity]

    def test_the_tool_makes_the_same_constants(self) -> None:
        """From its own starting values, by running the program. Libraries for matrices may differ in last digits."""
        name = "compare_ddp"
        made = calibrate.fit(calibrate.Program(name, self.folder), calibrate.EXPERIMENTS[name])
        constants = CALIBRATION[name]["constants"]
        assert {name: made[name] / constant for name, constant in constants.items()} == pytest.approx(
            dict.fromkeys(constants, 1), abs=0.005
        )


class TestCompareDdp(Published):
    subcommand = "compare_ddp published"

    def test_is_the_same_in_every_run(self) -> None:
        first, second = (self.compute("--buffer-sizes", "3,25")["series"] for _ in range(2))
        assert first == second
        assert len(first) == 2 * 5 * 2

    def test_forward_order_is_what_grows(self) -> None:
        """At 24M all but the last buffer is done early in the reverse order, and none in the forward order."""
        document = self.compute("--buffer-sizes", "24")
        core, later, sync, own = (
            self.seconds(document, variant=variant, direction="backward")
            for variant in ("core", "async", "sync", "stage 03")
        )
        assert later > 1.15 * own
        assert own < core
        assert sync > later

    def test_other_hardware_is_an_experiment(self) -> None:
        def backward(*flags: str) -> float:
            return self.seconds(self.compute("--buffer-sizes", "25", *flags), **SYNC)

        slow, fast, eight = backward(), backward("--link", "nvlink3"), backward("--gpus", "8")
        assert slow - fast == pytest.approx(4 * 25_557_032 * (1 / 1.011e9 - 1 / 300e9), abs=0.003)
        assert backward("--link", "nvlink3", "--gpu", "H100") < fast / 2
        assert eight - slow == pytest.approx(0.75 * 4 * 25_557_032 / 1.011e9, abs=0.003)  # 2 (p - 1) / p
        twice = self.compute("--buffer-sizes", "25", "--batch-size", "64")
        assert self.seconds(twice, variant="core", direction="forward") == pytest.approx(2 * 0.2089, abs=0.002)


class TestBucketedDdp(Published):
    subcommand = "bucketed_ddp published"

    def time(self, document: dict[str, Any], **labels: object) -> float:
        return self.seconds(document, part="train", **labels)

    def test_has_a_u_over_the_bucket_size(self) -> None:
        document = self.compute("--batch-sizes", "2", "--sequence-lengths", "512")
        times = [self.time(document, variant="bucketed", bucket_size_mb=size) for size in (1, 10, 100, 1000)]
        assert times[2] < min(times[0], times[3])
        others = [self.time(document, variant=variant) for variant in ("naive", "flat", "overlapped", "compute only")]
        assert others == sorted(others, reverse=True)
        assert others[2] > times[2]

    def test_what_would_align_results_with_expectations(self) -> None:
        """With a fast link nothing is left to hide, and large buckets cost nothing."""
        flags = ("--batch-sizes", "2", "--sequence-lengths", "128")
        slow, fast = self.compute(*flags), self.compute(*flags, "--link", "nvlink3")

        def bucketed(document: dict[str, Any], size: int) -> float:
            """How long it takes beside computing alone."""
            time = self.time(document, variant="bucketed", bucket_size_mb=size)
            return time / self.time(document, variant="compute only")

        assert bucketed(slow, 100) > 1.5
        assert bucketed(fast, 100) < 1.02
        assert bucketed(slow, 1) - bucketed(slow, 100) > 0.03
        assert max(bucketed(fast, size) - bucketed(fast, 100) for size in (1, 1000)) < 0.01


class TestDdpSuite(Published):
    subcommand = "ddp_suite published"

    def test_says_what_ddp_adds_on_more_and_more_gpus(self) -> None:
        document = self.compute("--model", "resnet50", "--gpus", "1,8,64")
        alone = self.seconds(document, round="no ddp")
        assert alone == pytest.approx(CALIBRATION["ddp_suite"]["constants"]["compute_s.resnet50"], abs=5e-5)
        times = [self.seconds(document, round=name, variant="Reducer", bucket_size=25)
                 for name in ("1M/1G", "1M/8G", "8M/8G")]  # fmt: skip
        assert [alone, *times] == sorted([alone, *times])
