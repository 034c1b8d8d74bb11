"""Tests of tools/report/ddp_diff.py: the published comparison, byte for byte, and files that do not fit."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import random
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

from tools.report import ddp_diff
from tools.report.ddp_diff import RESULTS

PUBLISHED = ROOT / "figures" / "testdata" / "ddp_suite_ab.published.txt"
PUBLISHED_CELLS = ROOT / "figures" / "reference" / "ddp_suite_diff.csv"
FACTS = {"cuda_version": "10.0", "distributed_backend": "nccl", "pytorch_version": "1.4.0a0+05140f0"}
BATCH = 32
Json = dict[str, Any]


def samples(at_75: float, at_95: float) -> list[float]:
    """Times with these 75th and 95th percentiles."""
    times = [at_75] * 16 + [at_95] * 5  # sorted, the percentiles are at indices 15 and 19 of 0 to 20
    random.Random(0).shuffle(times)
    return times


def possible_seconds(cell: dict[str, str], share: float) -> float:
    """A time that is printed as the cell's sec/iter and ex/sec; share 0: about the smallest one, 1: the largest."""
    seconds, examples = float(cell["sec/iter"]), int(cell["ex/sec"])
    least = max(seconds - 0.0005, BATCH / (examples + 1))
    return least + (min(seconds + 0.0005, BATCH / examples) - least) * (0.05 + 0.9 * share)


def published_documents() -> tuple[Json, Json]:
    """A possible baseline and test: only their percentiles are published."""
    with PUBLISHED_CELLS.open(encoding="utf-8") as lines:
        cells = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    results: tuple[dict[str, list], dict[str, list]] = ({}, {})
    for at_75, at_95 in zip(cells[::2], cells[1::2]):
        test = [possible_seconds(at_75, 0), possible_seconds(at_95, 1)]
        baseline = [now / (1 - float(cell["diff"]) / 100) for now, cell in zip(test, (at_75, at_95))]
        for times, models in zip((baseline, test), results):
            rounds = models.setdefault(at_75["model"], [{"ranks": [0], "measurements": [9.0]}])
            rounds.append({"ranks": list(range(int(at_75["gpus"]))), "measurements": samples(*times)})
    return tuple(
        {
            **FACTS,
            "bucket_size": bucket_size,
            RESULTS: [{"model": model, "batch_size": BATCH, "result": rounds} for model, rounds in models.items()],
        }
        for bucket_size, models in zip((25, 1), results)
    )


def document(
    model: str = "resnet50", ranks: tuple[int, ...] = (1, 2), batch_size: int = BATCH, seconds: float = 1.0
) -> Json:
    rounds = [{"ranks": list(range(count)), "measurements": [seconds] * 3} for count in (1, *ranks)]
    return {**FACTS, RESULTS: [{"model": model, "batch_size": batch_size, "result": rounds}]}


class DdpDiff(unittest.TestCase):
    def write(self, name: str, content: Any) -> Path:
        file = self.folder / name
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    def diff(self, baseline: Any, test: Any) -> tuple[int, str, str]:
        """The exit code, stdout and stderr."""
        files = [self.write("baseline.json", baseline), self.write("test.json", test)]
        return self.diff_files(*files)

    def diff_files(self, *files: Path) -> tuple[int, str, str]:
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = ddp_diff.main([str(file) for file in files])
        return code, output.getvalue(), errors.getvalue()

    def refuse(self, test: Any, message: str) -> str:
        code, output, errors = self.diff(document(), test)
        self.assertEqual((code, output), (1, ""))
        self.assertIn(message, errors)
        self.assertIn("test.json: ", errors)
        self.assertEqual(errors.count("\n"), 1, errors)
        return errors

    def test_prints_what_is_published(self) -> None:
        code, output, errors = self.diff(*published_documents())
        self.assertEqual((code, errors), (0, ""))
        # The published program ends with an empty line, which its README omits.
        self.assertEqual(output, PUBLISHED.read_text() + "\n")

    def test_less_time_is_positive(self) -> None:
        code, output, _ = self.diff(document(seconds=2.0), document(seconds=1.0))
        self.assertEqual(code, 0)
        self.assertIn("   2 GPUs:  p75:    1.000s      32/s    +50.0%  p95:    1.000s      32/s    +50.0%\n", output)
        self.assertEqual(output.count("GPUs"), 2)  # the round without DDP is not compared

    def test_absent_facts_are_a_dash(self) -> None:
        baseline, test = document(), document()
        test["bucket_size"], test["cuda_version"] = 1, None
        del test["pytorch_version"]
        output = self.diff(baseline, test)[1]
        self.assertIn(f"bucket_size:{'-':>29}  vs  {'1':>20}\n", output)
        self.assertIn(f"cuda_version:{'10.0':>28}  vs  {'None':>20}\n", output)
        self.assertIn(f"pytorch_version:{'1.4.0a0+05140f0':>25}  vs  {'-':>20}\n", output)

    def test_names_what_only_one_file_has(self) -> None:
        baseline, test = document(ranks=(1, 2, 4)), document(ranks=(2, 8))
        baseline[RESULTS] += document("resnet101")[RESULTS]
        test[RESULTS] = document("vgg", batch_size=8)[RESULTS] + test[RESULTS]
        code, output, errors = self.diff(baseline, test)
        self.assertEqual(code, 0)
        self.assertEqual(output.count("Benchmark: "), 1)
        self.assertEqual(output.count("GPUs"), 1)
        for expected in (
            "skipped: resnet50 with batch size 32 on 1 rank, which the test does not have",
            "skipped: resnet50 with batch size 32 on 4 ranks, which the test does not have",
            "skipped: resnet101 with batch size 32, which the test does not have",
            "skipped: vgg with batch size 8, which the baseline does not have",
            "skipped: resnet50 with batch size 32 on 8 ranks, which the baseline does not have",
        ):
            self.assertIn(f"{expected}\n", errors)
        self.assertEqual(errors.count("\n"), 5, errors)

    def test_models_match_by_name_not_by_place(self) -> None:
        one, other = document("resnet50"), document("resnet101", seconds=3.0)
        both = {**one, RESULTS: one[RESULTS] + other[RESULTS]}
        turned = {**one, RESULTS: other[RESULTS] + one[RESULTS]}
        code, output, errors = self.diff(both, turned)
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(output.count("-0.0%"), 8)  # as the published program prints it

    def test_refuses_files_without_anything_in_common(self) -> None:
        for test in (document("vgg"), document(batch_size=4), document(ranks=(4,)), document(ranks=())):
            code, output, errors = self.diff(document(), test)
            self.assertEqual((code, output), (1, ""))
            self.assertIn("have no model with DDP on equally many ranks in common", errors)

    def test_refuses_other_files(self) -> None:
        for other in ("{", "[" * 100_000, [], {RESULTS: {"a": 1}}, {"series": []}, {RESULTS: [{}]}):
            errors = self.refuse(other, "is none of this benchmark")
            self.assertEqual(ddp_diff.REMEDY, errors.rstrip().rpartition("; ")[2])
        self.refuse({RESULTS: []}, "nothing is in 'benchmark_results'")
        self.refuse({RESULTS: 2 * document()[RESULTS]}, "resnet50 with batch size 32 is there twice")
        self.refuse(document(ranks=(2, 2)), "two rounds of resnet50 are with DDP on 2 ranks")
        self.refuse(document(batch_size=0), "no batch size")
        self.refuse(document(batch_size="?"), "is none of this benchmark")

    def test_refuses_measurements_that_are_none(self) -> None:
        for value in (0, -1.0, "1", None, True, float("nan"), float("inf")):
            self.refuse(document(seconds=value), "measurements of resnet50 on 1 rank are no times")
        empty = document()
        empty[RESULTS][0]["result"][2]["measurements"] = []
        self.refuse(empty, "measurements of resnet50 on 2 ranks are no times")
        del empty[RESULTS][0]["result"][2]["measurements"]
        self.refuse(empty, "'measurements'")

    def test_refuses_what_cannot_be_read(self) -> None:
        good = self.write("good.json", document())
        for file, message in ((self.folder / "none.json", "No such file"), (self.folder, "Is a directory")):
            code, _, errors = self.diff_files(good, file)
            self.assertEqual(code, 1)
            self.assertIn(f"{file}: cannot be read: {message}", errors)
        (self.folder / "bytes.json").write_bytes(b"\xff\xfe")
        self.assertIn("UnicodeDecodeError", self.diff_files(good, self.folder / "bytes.json")[2])

    def test_is_a_program(self) -> None:
        good = self.write("good.json", document())
        command = [sys.executable, ROOT / "tools" / "report" / "ddp_diff.py", good]
        both = subprocess.run([*command, good], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((both.returncode, both.stdout.count("GPUs"), both.stderr), (0, 2, ""))
        one = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(one.returncode, 2, one.stderr)
