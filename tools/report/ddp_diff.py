"""Compares two runs of PyTorch's benchmark of DistributedDataParallel:

    .venv/bin/python tools/report/ddp_diff.py BASELINE TEST

Both files were written by build/bin/ddp_suite --json or PyTorch's own benchmark.py. Prints the test's numbers, at
percentiles 75 and 95 over all ranks' samples, and their difference from the baseline's, in percent of its sec/iter:
negative is slower. Rounds without DDP are not compared. What only one file has is named on stderr, and left out.

Exit code: 0 if something was compared, 1 after a message if not, 2 for a bad command line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PERCENTS = (75, 95)
RESULTS = "benchmark_results"
REMEDY = "give a file that ddp_suite --json wrote"
Model = tuple[str, int]  # its name and the batch size
Rounds = dict[int, np.ndarray]  # by the number of ranks the seconds of each iteration with DDP


class DiffError(Exception):
    """A file that cannot be compared: which one, why, and what to do."""


@dataclass(frozen=True)
class Suite:
    """One file: facts about the run, and its benchmarks."""

    facts: dict[str, Any]
    benchmarks: dict[Model, Rounds]


@dataclass(frozen=True)
class Cell:
    """One percentile of one round: the test's numbers, and how they differ from the baseline's."""

    percent: int
    seconds: float
    examples: int  # per second and rank
    diff: float  # percent


Row = tuple[int, list[Cell]]  # ranks, and a cell for each of PERCENTS


def load(file: Path) -> Suite:
    try:
        return parse(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise DiffError(f"{file}: cannot be read: {error.strerror}; {REMEDY}") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DiffError(f"{file}: is none of this benchmark: {type(error).__name__}: {error}; {REMEDY}") from None


def parse(document: dict[str, Any]) -> Suite:
    """Raises ValueError, KeyError, TypeError or OverflowError if it is something else."""
    benchmarks: dict[Model, Rounds] = {}
    for one in document[RESULTS]:
        model, rounds = (one["model"], int(one["batch_size"])), Rounds()
        if model in benchmarks:
            raise ValueError(f"{title(model)} is there twice")
        if model[1] < 1:
            raise ValueError(f"{model[1]} is no batch size")
        for part in one["result"][1:]:  # the first is without DDP
            seconds, ranks = np.asarray(part["measurements"]), len(part["ranks"])
            if seconds.dtype.kind not in "if" or not seconds.size or not np.all(np.isfinite(seconds) & (seconds > 0)):
                raise ValueError(f"measurements of {model[0]} on {in_words(ranks)} are no times")
            if ranks in rounds:
                raise ValueError(f"two rounds of {model[0]} are with DDP on {in_words(ranks)}")
            rounds[ranks] = seconds
        benchmarks[model] = rounds
    if not benchmarks:
        raise ValueError(f"nothing is in {RESULTS!r}")
    return Suite({key: value for key, value in document.items() if key != RESULTS}, benchmarks)


def in_words(ranks: int) -> str:
    return f"{ranks} rank" + ("" if ranks == 1 else "s")


def title(model: Model) -> str:
    return f"{model[0]} with batch size {model[1]}"


def compare(baseline: Suite, test: Suite) -> dict[Model, list[Row]]:
    """A row for each number of ranks that both files have, in the test's order."""
    return {
        model: [
            (ranks, cells(baseline.benchmarks[model][ranks], seconds, model[1]))
            for ranks, seconds in rounds.items()
            if ranks in baseline.benchmarks[model]
        ]
        for model, rounds in test.benchmarks.items()
        if model in baseline.benchmarks
    }


def cells(baseline: np.ndarray, test: np.ndarray, batch_size: int) -> list[Cell]:
    pairs = zip(PERCENTS, np.percentile(baseline, PERCENTS), np.percentile(test, PERCENTS))
    return [
        Cell(percent, now, int(batch_size / now), -100 * ((now - before) / before))  # less time is better
        for percent, before, now in pairs
    ]


def only_in_one(baseline: Suite, test: Suite) -> list[str]:
    """What is not compared, and why not."""
    skipped = []
    for own, other, name in ((baseline, test, "the test"), (test, baseline, "the baseline")):
        for model, rounds in own.benchmarks.items():
            missing = [f" on {in_words(ranks)}" for ranks in rounds if ranks not in other.benchmarks.get(model, {})]
            for where in missing if model in other.benchmarks else [""]:
                skipped.append(f"skipped: {title(model)}{where}, which {name} does not have")
    return skipped


def format_facts(baseline: Suite, test: Suite) -> str:
    """The facts about both runs, side by side."""
    lines = [f"{'':20} {'baseline':>20}      {'test':>20}", f"{'':20} {'-' * 20}      {'-' * 20}"]
    for key in sorted(baseline.facts.keys() | test.facts.keys()):
        before, now = (str(suite.facts.get(key, "-")) for suite in (baseline, test))
        lines.append(f"{key + ':':20} {before:>20}  vs  {now:>20}")
    return "\n".join(lines) + "\n"


def format_rows(model: Model, rows: list[Row]) -> str:
    header = " " * 10 + f"{'sec/iter':>16}{'ex/sec':>10}{'diff':>10}" * len(PERCENTS)
    lines = [f"Benchmark: {title(model)}", "", header]
    for ranks, own in rows:
        texts = (f"  p{cell.percent:02}: {cell.seconds:8.3f}s {cell.examples:7}/s {cell.diff:+8.1f}%" for cell in own)
        lines.append(f"{ranks:>4} GPUs:" + "".join(texts))
    return "\n".join(lines) + "\n"


def format_diff(baseline: Suite, test: Suite) -> str:
    """The whole comparison. Raises DiffError if the two have nothing in common."""
    parts = [format_rows(model, rows) for model, rows in compare(baseline, test).items() if rows]
    if not parts:
        raise DiffError("the files have no model with DDP on equally many ranks in common; compare runs of one model")
    return "\n".join([format_facts(baseline, test), *parts])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ddp_diff.py", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("baseline", type=Path, metavar="BASELINE")
    parser.add_argument("test", type=Path, metavar="TEST")
    options = parser.parse_args(arguments)
    try:
        baseline, test = load(options.baseline), load(options.test)
        print("".join(f"{line}\n" for line in only_in_one(baseline, test)), end="", file=sys.stderr)
        print(format_diff(baseline, test), flush=True)
    except DiffError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # as when piped into head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
