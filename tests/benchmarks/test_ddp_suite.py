"""Tests of the benchmark ddp_suite, run on the solution: what it measures, prints and writes, and what it refuses."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.benchmarks.program_test import ROOT, SECONDS, UNFINISHED, ProgramTest, slow  # first: it finds the tools
from tests.harness.test_launch import environment, free_port
from tools.report import ddp_diff
from tools.setup import toolchain

TINY = ("--model", "resnet50", "--batch-size", "2", "--image-size", "32", "--steps", "1", "--warmup", "0")
ROUNDS = [("no ddp", 1), ("1M/1G", 1), ("1M/2G", 2)]
Json = dict[str, Any]


def labels_of(document: Json) -> list[Json]:
    return [one["labels"] for one in document["series"]]


def expected_labels(rounds: list[tuple[str, int]], bucket_sizes: tuple[int, ...] = (25,)) -> list[Json]:
    labels = []
    for name, ranks in rounds:
        cell = {"model": "resnet50", "round": name, "ranks": ranks}
        if name == "no ddp":
            labels.append({**cell, "variant": "compute only"})
            continue
        for size in bucket_sizes:
            labels += [{**cell, "variant": variant, "bucket_size": size} for variant in ("bucketed", "Reducer")]
    return labels


class DdpSuite(ProgramTest):
    program = "ddp_suite"
    stage = "03_bucketed_ddp"

    def assert_valid(self, report: Path) -> None:
        python = toolchain.load().figure_python
        if subprocess.run([python, "-c", "import jsonschema"], capture_output=True, check=False).returncode:
            self.skipTest("no Python with jsonschema")
        check = "import json, jsonschema, sys; jsonschema.validate(*(json.load(open(file)) for file in sys.argv[1:]))"
        command = [python, "-c", check, report, ROOT / "figures" / "lib" / "suite_schema.json"]
        ended = subprocess.run(command, text=True, capture_output=True, timeout=SECONDS, check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_measures_prints_and_writes_the_suite(self) -> None:
        report = self.folder / "report.json"
        document = self.run_well(*TINY, "--world-size", 2, "--json", report)
        self.assertEqual(labels_of(document), expected_labels(ROUNDS))
        self.assertEqual([len(one["values"]) for one in document["series"]], [1, 1, 1, 2, 2])
        self.assertEqual(document["parameters"]["parameters of resnet50"], 25_557_032)
        self.assertFalse(self.partial.exists())
        for expected in (
            "\nPyTorch distributed benchmark suite\n",
            "\n* PyTorch version: 2.",
            "\n* CUDA version: None\n",
            "\n* Distributed backend: gloo\n",
            "\n* Maximum bucket size: 25MB\n",
            " ---\n\n",
        ):
            self.assertIn(expected, self.output)
        for name, ranks in ROUNDS:
            line = rf"(?m)^{ranks:>4} GPUs -- {name:>8}:(  p\d\d:  \d+\.\d{{3}}s  [ \d]{{6}}/s){{4}}$"
            self.assertRegex(self.output, line)
        self.assert_report(report, document)
        self.assert_valid(report)
        self.assert_drawn("plots.ddp_suite")
        self.assert_drawn("tables.ddp_suite", files=8)
        # The same numbers in the same form, written by two programs.
        written = (self.folder / "tables.ddp_suite" / "ddp_suite.Reducer.solutions.quick.json").read_text()
        table = json.loads(written)["text"]
        title = "Benchmark: resnet50 with batch size 2"
        self.assertIn(table.replace(title, f"{title}, Reducer"), self.output)

    def assert_report(self, report: Path, document: Json) -> None:
        written = json.loads(report.read_text())
        self.assertEqual(
            set(written),
            {"pytorch_version", "cuda_version", "distributed_backend", "bucket_size", "benchmark_results"},
        )
        (benchmark,) = written["benchmark_results"]
        self.assertEqual((benchmark["model"], benchmark["batch_size"]), ("resnet50", 2))
        self.assertEqual([one["ranks"] for one in benchmark["result"]], [[0], [0], [0, 1]])
        own = [one["values"] for one in document["series"] if one["labels"]["variant"] != "Reducer"]
        self.assertEqual([one["measurements"] for one in benchmark["result"]], own)
        with contextlib.redirect_stdout(io.StringIO()) as output:
            self.assertEqual(ddp_diff.main([str(report), str(report)]), 0)
        self.assertEqual(output.getvalue().count("GPUs"), 2)

    @slow
    def test_bucket_sizes_take_turns_and_have_a_report_each(self) -> None:
        document = self.run_well(*TINY, "--world-size", 1, "--bucket-size", 25, 1, "--variant", "Reducer")
        self.assertEqual(labels_of(document), expected_labels(ROUNDS[:2], (25, 1)))
        self.assertIn("* Maximum bucket size: 25MB, 1MB\n", self.output)
        for size in (25, 1):
            report = json.loads((self.folder / f"result.{size}MB.json").read_text())
            self.assertEqual(report["bucket_size"], size)
            wanted = {"variant": "Reducer", "bucket_size": size}
            (series,) = [one for one in document["series"] if wanted.items() <= one["labels"].items()]
            self.assertEqual(report["benchmark_results"][0]["result"][1]["measurements"], series["values"])
        self.assert_drawn("plots.ddp_suite_ab")
        self.assert_drawn("tables.ddp_suite_ab", files=8)

    @slow
    def test_a_killed_run_goes_on(self) -> None:
        flags = (*TINY, "--world-size", 1)
        resumed, _ = self.resume(1, *flags)
        self.assertEqual(labels_of(resumed), expected_labels(ROUNDS[:2]))

    def test_a_process_for_each_rank(self) -> None:
        job = ("--world-size", 2, "--master-addr", "127.0.0.1", "--master-port", free_port())
        job += ("--distributed-backend", "gloo")
        other = subprocess.Popen(
            self.command(*TINY, *job, "--rank", 1), cwd=self.folder, env=environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        first = self.start(*TINY, *job, "--rank", 0)
        output, errors = other.communicate(timeout=SECONDS)
        self.assertEqual((first.returncode, other.returncode), (0, 0), first.stderr + errors)
        self.assertEqual(output, "")
        document = json.loads(self.result.read_text())
        self.assertEqual(labels_of(document), expected_labels(ROUNDS))
        self.assertEqual(document["provenance"]["world_size"], 2)

    def test_refuses_bad_flags(self) -> None:
        for message, code, flags in (
            ("--rank requires --world-size", 107, ("--rank", 0)),
            ("--rank requires", 107, ("--rank", 0, "--world-size", 2, "--master-port", 1)),
            ("belong to a job", 1, ("--master-addr", "localhost", "--master-port", 1)),
            ("RANK=2", 1, ("--rank", 2, "--world-size", 2, "--master-addr", "localhost", "--master-port", 1)),
            ("--bucket-size: Value 0 not in range", 105, ("--bucket-size", 0)),
            ("--bucket-size has 5 twice", 1, ("--bucket-size", 5, 1, 5)),
            ("leave out --device cpu", 1, ("--distributed-backend", "nccl", "--device", "cpu")),
            ("--distributed-backend: mpi not in", 105, ("--distributed-backend", "mpi")),
            ("--model: vgg not in", 105, ("--model", "vgg")),
            ("--variant: naive not in", 105, ("--variant", "naive")),
            ("one value of each channel", 1, ("--batch-size", 1)),
        ):
            with self.subTest(message):
                self.assert_refused(message, *flags, code=code)

    def test_presets(self) -> None:
        self.assert_paper_needs('8 GPUs named "V100"')
        self.assert_presets_are_described(
            "--resume", "batch 4, 32x32 images", "batch 32, 224x224 images", "8 V100 GPUs"
        )

    def test_names_a_file_that_cannot_be_written_before_measuring(self) -> None:
        (self.folder / "file").touch()
        nowhere = self.folder / "file" / "x.json"
        self.assert_refused(f"cannot write {nowhere}", "--json", nowhere)
        self.assert_refused(f"cannot write {self.folder}: it is a folder", "--json", self.folder)
        self.result = nowhere
        self.assert_refused(f"cannot write {nowhere}", *TINY)

    def test_says_if_the_stage_is_unfinished(self) -> None:
        self.assert_refused("bucketed is left out: TODO(student): 03", *TINY, code=UNFINISHED, impl="assignments")
