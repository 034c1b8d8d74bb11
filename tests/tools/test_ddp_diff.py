"""tools/report/ddp_diff.py prints the published comparison, byte for byte."""

from __future__ import annotations

import csv
import json
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


def test_prints_what_is_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "baseline.json", tmp_path / "test.json"]
    for file, document in zip(files, published_documents()):
        file.write_text(json.dumps(document))
    assert ddp_diff.main([str(file) for file in files]) == 0
    assert capsys.readouterr().out == PUBLISHED.read_text() + "\n"  # the README omits the last line, which is empty
