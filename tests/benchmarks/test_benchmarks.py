"""Tests of benchmarks that compare several stages: they measure finished stages, and name the others."""

from __future__ import annotations

import json
import shutil
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

from tests.benchmarks.program_test import SHARED_MEMORY, ProgramTest
from tools.setup import toolchain

BUILD = toolchain.BUILD_DIR
PROGRAM = BUILD / "bin" / "step_time"
STUB = BUILD / "stages" / "assignments" / "02_overlapped_ddp" / "libstage.so"
SOLUTION = BUILD / "stages" / "solutions" / "01_naive_ddp" / "libstage.so"
UNFINISHED = 3
SECONDS = 60


@unittest.skipUnless(all(file.exists() for file in (PROGRAM, STUB, SOLUTION)), f"skipped: {BUILD} is not built")
class StepTime(unittest.TestCase):
    def setUp(self) -> None:
        """A build folder of its own: programs look for stages next to themselves."""
        (self.folder / "bin").mkdir()
        shutil.copy2(PROGRAM, self.folder / "bin")
        (self.folder / "lib").symlink_to(BUILD / "lib")

    def give(self, stage: str, library: Path) -> None:
        stage_folder = self.folder / "stages" / "assignments" / stage
        stage_folder.mkdir(parents=True)
        (stage_folder / "libstage.so").symlink_to(library)

    def run_benchmark(self) -> tuple[int, str, set[str]]:
        """The exit code, stderr, and the variants in the result."""
        result = self.folder / "result.json"
        flags = [*SHARED_MEMORY, "--batch-size=1", "--steps=1", "--warmup=0", f"--output={result}"]
        process = subprocess.run(
            [self.folder / "bin" / "step_time", *flags], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        series = json.loads(result.read_text())["series"] if result.exists() else []
        return process.returncode, process.stderr, {one["labels"]["variant"] for one in series}

    def test_measures_what_is_finished(self) -> None:
        self.give("01_naive_ddp", SOLUTION)
        self.give("02_overlapped_ddp", STUB)
        code, errors, variants = self.run_benchmark()
        self.assertEqual(code, 0, errors)
        self.assertEqual(variants, {"compute only", "naive", "flat", "Reducer", "Reducer as_view"})
        self.assertEqual(errors.count("is left out"), 2, errors)
        self.assertIn("overlapped is left out: TODO(student): 02 overlapped DDP", errors)
        self.assertIn("bucketed is left out: there is no ", errors)

    def test_says_if_nothing_is_finished(self) -> None:
        self.give("02_overlapped_ddp", STUB)
        code, errors, variants = self.run_benchmark()
        self.assertEqual((code, variants), (UNFINISHED, set()), errors)
        self.assertEqual(errors.count("is left out"), 4, errors)
        self.assertIn("none of the variants that are code of assignments/ is finished", errors)


class NaiveVsFlat(ProgramTest):
    program, stage = "naive_vs_flat", "01_naive_ddp"
    flags = SHARED_MEMORY
    tiny = ("--batch-size=2", "--image-size=32", "--steps=2", "--warmup=0")

    def test_is_measured_and_drawn(self) -> None:
        self.run_well(*self.tiny)
        self.assert_drawn()

    def test_a_slow_link_delays_every_message(self) -> None:
        """An all-reduce of two ranks takes two turns of messages; flat has one all-reduce."""
        document = self.run_well(*self.tiny, "--latency-us=2000")
        seconds = {
            variant: min(self.series(document, variant=variant, phase="communication")[0]["values"])
            for variant in ("naive", "flat")
        }
        all_reduces = document["parameters"]["parameter_tensors"]
        self.assertEqual(document["parameters"]["latency_us"], 2000)
        self.assertGreaterEqual(seconds["naive"], all_reduces * 2 * 2e-3)
        self.assertLess(seconds["flat"], seconds["naive"])

    def test_says_if_the_stage_is_unfinished(self) -> None:
        self.assert_unfinished(*self.tiny)

    def test_says_if_the_images_are_too_small(self) -> None:
        self.assert_refused("give --batch-size 2, or --image-size 33", "--batch-size=1", "--image-size=32")

    def test_paper_needs_its_hardware(self) -> None:
        self.assert_paper_needs("2 GPUs")

    def test_names_a_file_that_cannot_be_written(self) -> None:
        self.assert_output_is_checked(*self.tiny)


class DrawnStepTime(ProgramTest):
    program, stage = "step_time", "03_bucketed_ddp"
    flags = SHARED_MEMORY

    def test_is_measured_and_drawn(self) -> None:
        self.run_well("--batch-size=2", "--steps=2", "--warmup=0")
        self.assert_drawn()

    def test_paper_needs_its_hardware(self) -> None:
        self.assert_paper_needs("2 GPUs")


class DrawnTimeline(ProgramTest):
    program, stage = "timeline", "03_bucketed_ddp"

    def test_is_measured_and_drawn(self) -> None:
        self.run_well()
        self.assert_drawn()
