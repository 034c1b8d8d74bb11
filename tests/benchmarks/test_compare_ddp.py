"""Tests of the benchmark compare_ddp on the solution: what it measures, that it continues after being killed, what
it refuses, and that its figures and tables can be made from its result.

Each run makes real ResNet-50s, so there are few runs.
"""

from __future__ import annotations

import json
from typing import Any

from tests.benchmarks.program_test import SECONDS, SHARED_MEMORY, UNFINISHED, ProgramTest, slow

TINY = ("--buffer-sizes", "3,25", "--iterations", "1", "--discard", "0")
VARIANTS = ("core", "core, equal bytes", "async", "sync")
LABELS = [
    {"buffer_size": size, "variant": variant, "direction": direction}
    for size in (3, 25)
    for variant in VARIANTS
    for direction in ("forward", "backward")
]


class CompareDdp(ProgramTest):
    program = "compare_ddp"
    stage = "03_bucketed_ddp"
    flags = SHARED_MEMORY

    def test_measures_each_variant_at_each_buffer_size(self) -> None:
        document = self.run_well(*TINY)
        self.assertEqual([one["labels"] for one in document["series"]], LABELS)
        for one in document["series"]:
            self.assertEqual((one["unit"], len(one["values"])), ("s", 1))
            self.assertTrue(0 < one["values"][0] < SECONDS, one)
        values = document["parameters"]
        self.assertEqual((values["parameters"], values["trainable_parameters"]), (25_557_032, 25_557_032))
        self.assertEqual((values["largest_parameter_elements"], values["parameter_tensors"]), (2_359_296, 161))
        self.assertEqual(values["largest_parameter_shape"], "512x512x3x3")
        self.assertIn("25557032 =  24.37M", self.output)
        self.assertIn(values["largest_parameter"], self.output)
        self.assertFalse(self.partial.exists())
        self.assert_drawn("plots.compare_ddp", "plots.compare_ddp_delta")
        self.assert_drawn("tables.compare_ddp", files=6)

    def test_procedure_is_the_published_one_unless_flags_change_it(self) -> None:
        trace = self.folder / "trace.json"
        once = ("--buffer-sizes", "25", "--iterations", "1", "--discard", "0", "--trace", str(trace))

        def measure(*flags: str) -> tuple[dict[str, Any], bool]:
            """The parameters, and whether the counters of all 53 BatchNorms were broadcast together."""
            document = self.run_well(*once, *flags)
            names = {one["name"] for one in json.loads(trace.read_text())["traceEvents"]}
            return document["parameters"], "broadcast of a tensor int64 [53]" in names

        for flags, expected in (
            ((), {"loss": "mse", "times_of": "rank0", "broadcasts_buffers": 1}),
            (("--loss", "cross-entropy", "--times-of", "slowest", "--no-broadcast-buffers"),
             {"loss": "cross-entropy", "times_of": "slowest", "broadcasts_buffers": 0}),
        ):  # fmt: skip
            parameters, broadcast = measure(*flags)
            self.assertEqual({name: parameters[name] for name in expected}, expected)
            self.assertEqual(broadcast, bool(expected["broadcasts_buffers"]))

    @slow
    def test_killed_run_is_resumed(self) -> None:
        flags = (*TINY, "--world-size", "1")
        self.stop_after(1, *flags)
        saved = [json.loads(row) for row in self.partial.read_text().splitlines()[1:]]
        self.assertEqual([cell["labels"] for cell in saved], [{"buffer_size": 3}])
        other = self.start(*flags, "--batch-size", "3", "--resume")
        self.assertEqual(other.returncode, 1)
        self.assertIn("was measured with batch_size 2, and this run has 3", other.stderr)
        document = self.run_well(*flags, "--resume")
        self.assertIn("1 rows are taken over", self.output)
        self.assertEqual([one["labels"] for one in document["series"]], LABELS)
        kept = [one["values"] for one in document["series"]][: len(LABELS) // 2]
        self.assertEqual(kept, [one["values"] for one in saved[0]["series"]])
        self.assertFalse(self.partial.exists())

    def test_names_what_is_unfinished(self) -> None:
        ended = self.start(*TINY, impl="assignments")
        self.assertEqual(ended.returncode, UNFINISHED, ended.stderr)
        for variant in ("bucketed", "bucketed sync"):
            self.assertIn(f"{variant} is left out: TODO(student): 03", ended.stderr)
        self.assertFalse(self.result.exists())

    def test_refuses_bad_flags(self) -> None:
        self.flags = ()
        for flags, message in (
            (("--buffer-sizes", "0"), "not in range"),
            (("--buffer-sizes", "many"), "not in range"),
            (("--image-size", "16"), "not in range"),
            (("--iterations", "2", "--discard", "2"), "2 of 2 iterations leave none to measure"),
            (("--loss", "hinge"), "--loss: hinge not in {mse,cross-entropy}"),
            (("--times-of", "rank1"), "--times-of: rank1 not in {rank0,slowest}"),
            (("--backend", "nccl"), "nccl needs --device cuda and a GPU of its own for each rank; choose gloo"),
        ):
            ended = self.start(*flags)
            self.assertNotIn(ended.returncode, (0, UNFINISHED), flags)
            self.assertIn(message, ended.stderr)
        self.assert_paper_needs("2 GPUs")

    def test_names_a_file_that_cannot_be_written(self) -> None:
        self.assert_output_is_checked("--buffer-sizes", "3", "--iterations", "1", "--discard", "0")

    def test_help_describes_the_presets(self) -> None:
        ended = self.start("--help")
        self.assertEqual(ended.returncode, 0)
        quick = "quick  buffers of 3, 12, 27 M elements; batch 2 of 32x32 images"
        self.assertIn(quick, ended.stdout)
        for preset in ("full ", "paper"):
            self.assertIn(f"{preset}  buffers of 3, 4, 5 ... 27 M elements; batch 32 of 224x224 images", ended.stdout)
