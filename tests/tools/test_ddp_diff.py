"""Tests of tools/report/ddp_diff.py: the published comparison, byte for byte, and files that do not fit."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.report import ddp_diff
from tools.report.ddp_diff import RESULTS
from tools.setup.toolchain import ROOT

PUBLISHED = ROOT / "figures" / "testdata" / "ddp_suite_ab.published.txt"
PUBLISHED_CELLS = ROOT / "figures" / "reference" / "ddp_suite_diff.csv"
FACTS = {"cuda_version": "10.0", "distributed_backend": "nccl", "pytorch_version": "1.4.0a0+05140f0"}
BATCH = 32
Json = dict[str, Any]
Diff = Callable[[Any, Any], tuple[int, str, str]]


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
            # Sorted, the percentiles are at indices 15 and 19 of 0 to 20.
            measurements = [times[1]] * 5 + [times[0]] * 16
            rounds.append({"ranks": list(range(int(at_75["gpus"]))), "measurements": measurements})
    return tuple(
        {
            **FACTS,
            "bucket_size": bucket_size,
            RESULTS: [{"model": model, "batch_size": BATCH, "result": rounds} for model, rounds in models.items()],
        }
        for bucket_size, models in zip((25, 1), results)
    )


def document(model: str = "resnet50", ranks: tuple[int, ...] = (1, 2), batch: Any = BATCH, times: Any = (1.0,)) -> Json:
    rounds = [{"ranks": list(range(count)), "measurements": list(times)} for count in (1, *ranks)]
    return {**FACTS, RESULTS: [{"model": model, "batch_size": batch, "result": rounds}]}


@pytest.fixture
def diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Diff:
    """The exit code, stdout and stderr: of documents, of texts, or of a file that is there."""

    def run(*contents: Any) -> tuple[int, str, str]:
        files = [tmp_path / "baseline.json", tmp_path / "test.json"]
        for number, content in enumerate(contents):
            if isinstance(content, Path):
                files[number] = content
            else:
                files[number].write_text(content if isinstance(content, str) else json.dumps(content))
        return ddp_diff.main([str(file) for file in files]), *capsys.readouterr()

    return run


def test_prints_what_is_published(diff: Diff) -> None:
    # The published program ends with an empty line, which its README omits.
    assert diff(*published_documents()) == (0, PUBLISHED.read_text() + "\n", "")


def test_less_time_is_positive(diff: Diff) -> None:
    code, output, _ = diff(document(times=[2.0]), document(times=[1.0]))
    assert code == 0
    assert "   2 GPUs:  p75:    1.000s      32/s    +50.0%  p95:    1.000s      32/s    +50.0%\n" in output
    assert output.count("GPUs") == 2, "the round without DDP is not compared"


def test_absent_facts_are_a_dash(diff: Diff) -> None:
    test = {**document(), "bucket_size": 1, "cuda_version": None}
    del test["pytorch_version"]
    output = diff(document(), test)[1]
    for name, before, now in (("bucket_size:", "-", "1"), ("cuda_version:", "10.0", "None"),
                              ("pytorch_version:", "1.4.0a0+05140f0", "-")):  # fmt: skip
        assert f"{name:20} {before:>20}  vs  {now:>20}\n" in output


def test_names_what_only_one_file_has(diff: Diff) -> None:
    baseline, test = document(ranks=(1, 2, 4)), document(ranks=(2, 8))
    baseline[RESULTS] += document("resnet101")[RESULTS]
    test[RESULTS] = document("vgg", batch=8)[RESULTS] + test[RESULTS]
    code, output, errors = diff(baseline, test)
    assert (code, output.count("Benchmark: "), output.count("GPUs")) == (0, 1, 1)
    assert sorted(errors.splitlines()) == [
        "skipped: resnet101 with batch size 32, which the test does not have",
        "skipped: resnet50 with batch size 32 on 1 rank, which the test does not have",
        "skipped: resnet50 with batch size 32 on 4 ranks, which the test does not have",
        "skipped: resnet50 with batch size 32 on 8 ranks, which the baseline does not have",
        "skipped: vgg with batch size 8, which the baseline does not have",
    ]


def test_models_match_by_name_not_by_place(diff: Diff) -> None:
    one, other = document("resnet50")[RESULTS], document("resnet101", times=[3.0])[RESULTS]
    code, output, errors = diff({**FACTS, RESULTS: one + other}, {**FACTS, RESULTS: other + one})
    assert (code, errors) == (0, "")
    assert output.count("-0.0%") == 8, "as the published program prints it"


@pytest.mark.parametrize("fields", [{"model": "vgg"}, {"batch": 4}, {"ranks": (4,)}, {"ranks": ()}])
def test_refuses_files_without_anything_in_common(diff: Diff, fields: dict[str, Any]) -> None:
    code, output, errors = diff(document(), document(**fields))
    assert (code, output) == (1, "")
    assert "have no model with DDP on equally many ranks in common" in errors


NO_TIMES = "measurements of resnet50 on 1 rank are no times"


@pytest.mark.parametrize(
    ("test", "message"),
    [
        *((other, "") for other in ("{", "[" * 100_000, [], {RESULTS: {"a": 1}}, {"series": []}, {RESULTS: [{}]})),
        ({RESULTS: []}, "nothing is in 'benchmark_results'"),
        ({RESULTS: 2 * document()[RESULTS]}, "resnet50 with batch size 32 is there twice"),
        (document(ranks=(2, 2)), "two rounds of resnet50 are with DDP on 2 ranks"),
        (document(batch=0), "no batch size"),
        (document(batch="?"), ""),
        *((document(times=[value]), NO_TIMES) for value in (0, -1.0, "1", None, True, float("nan"), float("inf"))),
        (document(times=[]), NO_TIMES),
    ],
)
def test_refuses_other_files(diff: Diff, test: Any, message: str) -> None:
    code, output, errors = diff(document(), test)
    assert (code, output, errors.count("\n")) == (1, "", 1)
    assert "test.json: is none of this benchmark: " in errors
    assert message in errors
    assert errors.endswith(f"; {ddp_diff.REMEDY}\n")


def test_refuses_what_cannot_be_read(diff: Diff, tmp_path: Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    for file, message in ((tmp_path / "none.json", "No such file"), (tmp_path, "Is a directory"),
                          (tmp_path / "bytes.json", "UnicodeDecodeError")):  # fmt: skip
        code, _, errors = diff(document(), file)
        assert code == 1
        assert f"{file}: " in errors
        assert message in errors


def test_is_a_program(tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    good.write_text(json.dumps(document()))
    command = [sys.executable, ROOT / "tools" / "report" / "ddp_diff.py", good]
    both = subprocess.run([*command, good], capture_output=True, text=True, timeout=60, check=False)
    assert (both.returncode, both.stdout.count("GPUs"), both.stderr) == (0, 2, "")
    one = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert one.returncode == 2, one.stderr
