"""Tests of the benchmark ddp_suite, run on the solution: what it measures, prints and writes, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.program_test import ROOT, SECONDS, VALIDATION, MeasuringTest, series, slow
from tests.harness.test_launch import environment, free_port
from tools.report import ddp_diff
from tools.setup import toolchain

ROUNDS = [("no ddp", 1), ("1M/1G", 1), ("1M/2G", 2)]
Json = dict[str, Any]


def labels_of(document: Json) -> list[Json]:
    return [one["labels"] for one in document["series"]]


def expected_labels(rounds: list[tuple[str, int]], bucket_sizes: tuple[int, ...] = (25,)) -> list[Json]:
    cells = [{"model": "resnet50", "round": name, "ranks": ranks} for name, ranks in rounds]
    return [
        {**cells[0], "variant": "compute only"},
        *({**cell, "variant": variant, "bucket_size": size}
          for cell in cells[1:] for size in bucket_sizes for variant in ("bucketed", "Reducer")),
    ]  # fmt: skip


class TestDdpSuite(MeasuringTest):
    program, stage = "ddp_suite", "03_bucketed_ddp"
    tiny = ("--model", "resnet50", "--batch-size", "2", "--image-size", "32", "--steps", "1", "--warmup", "0")
    unfinished = "bucketed is left out: TODO(student): 03"
    paper = '8 GPUs named "V100"'
    described = ("--resume", "batch 4, 32x32 images", "batch 32, 224x224 images", "8 V100 GPUs")

    def test_measures_prints_and_writes_the_suite(self, capsys: pytest.CaptureFixture[str]) -> None:
        report = self.folder / "report.json"
        document = self.run_well(*self.tiny, "--world-size", 2, "--json", report)
        assert labels_of(document) == expected_labels(ROUNDS)
        assert [len(one["values"]) for one in document["series"]] == [1, 1, 1, 2, 2]
        assert document["parameters"]["parameters of resnet50"] == 25_557_032
        assert not self.partial.exists()
        for expected in (
            "\nPyTorch distributed benchmark suite\n",
            "\n* PyTorch version: 2.",
            "\n* CUDA version: None\n",
            "\n* Distributed backend: gloo\n",
            "\n* Maximum bucket size: 25MB\n",
            " ---\n\n",
        ):
            assert expected in self.output
        for name, ranks in ROUNDS:
            line = rf"(?m)^{ranks:>4} GPUs -- {name:>8}:(  p\d\d:  \d+\.\d{{3}}s  [ \d]{{6}}/s){{4}}$"
            assert re.search(line, self.output)
        self.assert_report(report, document)
        assert ddp_diff.main([str(report), str(report)]) == 0
        assert capsys.readouterr().out.count("GPUs") == 2
        self.assert_drawn("plots.ddp_suite")
        self.assert_drawn("tables.ddp_suite", files=8)
        # The same numbers in the same form, written by two programs.
        written = (self.folder / "tables.ddp_suite" / "ddp_suite.Reducer.solutions.quick.json").read_text()
        title = "Benchmark: resnet50 with batch size 2"
        assert json.loads(written)["text"].replace(title, f"{title}, Reducer") in self.output

    def assert_report(self, report: Path, document: Json) -> None:
        written = json.loads(report.read_text())
        (benchmark,) = written["benchmark_results"]
        assert (written["bucket_size"], benchmark["model"], benchmark["batch_size"]) == (25, "resnet50", 2)
        assert [one["ranks"] for one in benchmark["result"]] == [[0], [0], [0, 1]]
        own = [one["values"] for one in document["series"] if one["labels"]["variant"] != "Reducer"]
        assert [one["measurements"] for one in benchmark["result"]] == own
        python = toolchain.load().figure_python
        if subprocess.run([python, "-c", "import jsonschema"], capture_output=True, check=False).returncode == 0:
            check = (
                "import json, jsonschema, sys; jsonschema.validate(*(json.load(open(file)) for file in sys.argv[1:]))"
            )
            command = [python, "-c", check, report, ROOT / "figures" / "lib" / "suite_schema.json"]
            subprocess.run(command, timeout=SECONDS, check=True)

    @slow
    def test_bucket_sizes_take_turns_and_have_a_report_each(self) -> None:
        document = self.run_well(*self.tiny, "--world-size", 1, "--bucket-size", 25, 1, "--variant", "Reducer")
        assert labels_of(document) == expected_labels(ROUNDS[:2], (25, 1))
        assert "* Maximum bucket size: 25MB, 1MB\n" in self.output
        for size in (25, 1):
            report = json.loads((self.folder / f"result.{size}MB.json").read_text())
            assert report["bucket_size"] == size
            (one,) = series(document, variant="Reducer", bucket_size=size)
            assert report["benchmark_results"][0]["result"][1]["measurements"] == one["values"]
        self.assert_drawn("plots.ddp_suite_ab")
        self.assert_drawn("tables.ddp_suite_ab", files=8)

    @slow
    def test_a_killed_run_goes_on(self) -> None:
        resumed, _ = self.resume(1, *self.tiny, "--world-size", 1)
        assert labels_of(resumed) == expected_labels(ROUNDS[:2])

    def test_a_process_for_each_rank(self) -> None:
        job = ("--world-size", 2, "--master-addr", "127.0.0.1", "--master-port", free_port(),
               "--distributed-backend", "gloo")  # fmt: skip
        other = subprocess.Popen(
            self.command(*self.tiny, *job, "--rank", 1), cwd=self.folder, env=environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        document = self.run_well(*self.tiny, *job, "--rank", 0)
        output, errors = other.communicate(timeout=SECONDS)
        assert (other.returncode, output) == (0, ""), errors
        assert labels_of(document) == expected_labels(ROUNDS)
        assert document["provenance"]["world_size"] == 2

    @pytest.mark.parametrize(
        ("message", "code", "flags"),
        [
            ("--rank requires --world-size", 107, ("--rank", 0)),
            ("--rank requires", 107, ("--rank", 0, "--world-size", 2, "--master-port", 1)),
            ("belong to a job", 1, ("--master-addr", "localhost", "--master-port", 1)),
            ("RANK=2", 1, ("--rank", 2, "--world-size", 2, "--master-addr", "localhost", "--master-port", 1)),
            ("--bucket-size: Value 0 not in range", VALIDATION, ("--bucket-size", 0)),
            ("--bucket-size has 5 twice", 1, ("--bucket-size", 5, 1, 5)),
            ("leave out --device cpu", 1, ("--distributed-backend", "nccl", "--device", "cpu")),
            ("--distributed-backend: mpi not in", VALIDATION, ("--distributed-backend", "mpi")),
            ("--model: vgg not in", VALIDATION, ("--model", "vgg")),
            ("--variant: naive not in", VALIDATION, ("--variant", "naive")),
            ("one value of each channel", 1, ("--batch-size", 1)),
        ],
    )
    def test_refuses_bad_flags(self, message: str, code: int, flags: tuple[object, ...]) -> None:
        self.assert_refused(message, *flags, code=code)

    def test_names_a_report_that_cannot_be_written_before_measuring(self) -> None:
        (self.folder / "file").touch()
        nowhere = self.folder / "file" / "x.json"
        self.assert_refused(f"cannot write {nowhere}", "--json", nowhere)
        self.assert_refused(f"cannot write {self.folder}: it is a folder", "--json", self.folder)
