"""Tests of benchmarks that compare several stages: they measure what is finished, and name what is not.

Run: python3 -m unittest discover tests/meta
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import toolchain  # noqa: E402

BUILD = toolchain.BUILD_DIR
PROGRAM = BUILD / "bin" / "step_time"
STUB = BUILD / "stages" / "assignments" / "02_overlapped_ddp" / "libstage.so"
SOLUTION = BUILD / "stages" / "solutions" / "01_naive_ddp" / "libstage.so"
UNFINISHED = 3
SECONDS = 60


@unittest.skipUnless(all(file.exists() for file in (PROGRAM, STUB, SOLUTION)), f"skipped: {BUILD} is not built")
class StepTime(unittest.TestCase):
    def setUp(self) -> None:
        """A build folder of its own: programs look for stages beside themselves."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "bin").mkdir()
        shutil.copy2(PROGRAM, self.folder / "bin")
        (self.folder / "lib").symlink_to(BUILD / "lib")

    def give(self, stage: str, library: Path) -> None:
        stage_folder = self.folder / "stages" / "assignments" / stage
        stage_folder.mkdir(parents=True)
        (stage_folder / "libstage.so").symlink_to(library)

    def run_benchmark(self) -> tuple[int, str, set[str]]:
        """Exit code, stderr, and the variants in the result."""
        result = self.folder / "result.json"
        flags = ["--batch-size=1", "--steps=1", "--warmup=0", f"--output={result}"]
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


BATCH_NORM = "04_sync_batch_norm"
BATCH_NORM_PROGRAMS = {
    "sync_batch_norm": ("--batch-sizes=2,3", "--hidden-dims=4,5", "--rounds=2", "--warmup=1"),
    "batch_norm_speed": ("--batch-size=2", "--channels=3", "--image-size=4", "--rounds=2", "--warmup=0", "--threads=1"),
}
BATCH_NORM_BUILT = [BUILD / "bin" / program for program in BATCH_NORM_PROGRAMS] + [
    BUILD / "stages" / impl / BATCH_NORM / "libstage.so" for impl in ("assignments", "solutions")
]


@unittest.skipUnless(all(file.exists() for file in BATCH_NORM_BUILT), f"skipped: {BUILD} is not built")
class BatchNorm(unittest.TestCase):
    """The programs of stage 04, on tiny inputs."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.result = Path(folder.name) / "result.json"

    def run_benchmark(self, program: str, *flags: str) -> tuple[int, str]:
        """Exit code and stderr."""
        command = [str(BUILD / "bin" / program), *BATCH_NORM_PROGRAMS[program], f"--output={self.result}", *flags]
        process = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        return process.returncode, process.stderr

    def measure(self, program: str, *flags: str) -> dict[tuple[str, ...], list[float]]:
        """The values of every series by its labels."""
        code, errors = self.run_benchmark(program, "--impl=solutions", *flags)
        self.assertEqual(code, 0, errors)
        series = json.loads(self.result.read_text())["series"]
        values = {tuple(map(str, one["labels"].values())): one["values"] for one in series}
        self.assertEqual(len(values), len(series), "labels are repeated")
        return values

    def test_grid_has_times_collectives_and_memory_of_all_cells(self) -> None:
        for ranks in (1, 3):
            values = self.measure("sync_batch_norm", f"--world-size={ranks}")
            self.assertEqual(len(values), 2 * 2 * 3 * 2 * 3)
            for labels, times in values.items():
                batch, hidden, variant, direction, quantity = labels
                self.assertTrue(all(value >= 0 for value in times), labels)
                if quantity == "time":
                    collectives = values[(*labels[:-1], "collective")]
                    self.assertEqual((len(times), len(collectives)), (2, 2))
                    self.assertTrue(all(part < whole for part, whole in zip(collectives, times)), labels)
                    if ranks > 1:
                        self.assertEqual(sum(collectives) > 0, variant != "local", labels)
                if quantity == "peak memory":
                    tensors = 2 if direction == "forward" else 4
                    self.assertGreaterEqual(min(times), tensors * 4 * int(batch) * int(hidden), labels)

    def test_speed_has_times_and_memory_in_both_layouts(self) -> None:
        values = self.measure("batch_norm_speed")
        self.assertEqual(len(values), 2 * 2 * 4)
        for labels, times in values.items():
            self.assertTrue(all(value > 0 for value in times), labels)
        self.assertGreaterEqual(values["contiguous", "local", "forward", "peak memory"][0], 2 * 4 * 2 * 3 * 4 * 4)

    def test_says_if_the_stage_is_unfinished(self) -> None:
        for program in BATCH_NORM_PROGRAMS:
            code, errors = self.run_benchmark(program, "--impl=assignments")
            self.assertEqual(code, UNFINISHED, errors)
            self.assertIn("04_sync_batch_norm is unfinished: TODO(student): 04", errors)
            self.assertFalse(self.result.exists())

    def test_refuses_bad_flags(self) -> None:
        for program, flag in (
            ("sync_batch_norm", "--hidden-dims=0"),
            ("sync_batch_norm", "--batch-sizes=many"),
            ("batch_norm_speed", "--threads=0"),
        ):
            code, errors = self.run_benchmark(program, "--impl=solutions", flag)
            self.assertNotIn(code, (0, UNFINISHED), errors)
            self.assertRegex(errors, "Value .* not in range")

    def test_names_a_file_that_cannot_be_written(self) -> None:
        self.result = Path("/proc/none/result.json")
        for program in BATCH_NORM_PROGRAMS:
            code, errors = self.run_benchmark(program, "--impl=solutions")
            self.assertEqual(code, 1, errors)
            self.assertIn("cannot write /proc/none/result.json", errors)


if __name__ == "__main__":
    unittest.main()
