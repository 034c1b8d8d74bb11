"""Compares two runs of PyTorch's benchmark of DistributedDataParallel:

    .venv/bin/python tools/report/ddp_diff.py BASELINE TEST

Both files were written by build/bin/step ddp_suite --json or PyTorch's own benchmark.py. Prints the test's numbers, at
percentiles 75 and 95 over all ranks' samples, and their difference from the baseline's, in percent of its sec/iter:
negative is slower. Rounds without DDP are not compared, nor what only one file has.

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
import pandas as pd

PERCENTS = (75, 95)
RESULTS = "benchmark_results"
COLUMNS = ["model", "batch_size", "ranks", "percentile", "sec/iter", "ex/sec", "diff"]
Model = tuple[str, int]  # its name and the batch size
Rounds = dict[int, np.ndarray]  # by the number of ranks the seconds of each iteration with DDP


class DiffError(Exception):
    """A file that cannot be compared: which one, why, and what to do."""


@dataclass(frozen=True)
class Suite:
    """One file: facts about the run, and its benchmarks."""

    facts: dict[str, Any]
    benchmarks: dict[Model, Rounds]


def load(file: Path) -> Suite:
    try:
        return parse(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DiffError(f"{file}: {error!r}; give a file that step ddp_suite --json wrote") from None


def parse(document: dict[str, Any]) -> Suite:
    """Raises ValueError, KeyError or TypeError if it is something else."""
    benchmarks: dict[Model, Rounds] = {}
    for one in document[RESULTS]:
        model, rounds = (one["model"], int(one["batch_size"])), Rounds()
        for part in one["result"][1:]:  # the first is without DDP
            rounds[len(part["ranks"])] = np.asarray(part["measurements"], dtype=float)
        benchmarks[model] = rounds
    return Suite({key: value for key, value in document.items() if key != RESULTS}, benchmarks)


def compare(baseline: Suite, test: Suite) -> pd.DataFrame:
    """In COLUMNS, for what both files have, in the test's order: the test's numbers, ex/sec of a rank; and how they
    differ from the baseline's, in percent."""
    rows = []
    for model, rounds in test.benchmarks.items():
        for ranks, seconds in rounds.items():
            if ranks in baseline.benchmarks.get(model, {}):
                then = np.percentile(baseline.benchmarks[model][ranks], PERCENTS)
                for percent, before, now in zip(PERCENTS, then, np.percentile(seconds, PERCENTS)):
                    diff = -100 * ((now - before) / before)  # less time is better
                    rows.append([*model, ranks, percent, now, int(model[1] / now), diff])
    return pd.DataFrame(rows, columns=COLUMNS)


def format_facts(baseline: Suite, test: Suite) -> str:
    """The facts about both runs, side by side."""
    lines = [f"{'':20} {'baseline':>20}      {'test':>20}", f"{'':20} {'-' * 20}      {'-' * 20}"]
    for key in sorted(baseline.facts.keys() | test.facts.keys()):
        before, now = (str(suite.facts.get(key, "-")) for suite in (baseline, test))
        lines.append(f"{key + ':':20} {before:>20}  vs  {now:>20}")
    return "\n".join(lines) + "\n"


def format_diff(baseline: Suite, test: Suite) -> str:
    """The whole comparison. Raises DiffError if the two have nothing in common."""
    table = compare(baseline, test)
    if table.empty:
        raise DiffError("the files have no model with DDP on equally many ranks in common; compare runs of one model")
    parts = [format_facts(baseline, test)]
    for model, of_model in table.groupby(["model", "batch_size"], sort=False):
        title = "Benchmark: {} with batch size {}".format(*model)
        lines = [title, "", " " * 10 + f"{'sec/iter':>16}{'ex/sec':>10}{'diff':>10}" * 2]
        for ranks, cells in of_model.groupby("ranks", sort=False):
            numbers = zip(*(cells[name] for name in ("percentile", "sec/iter", "ex/sec", "diff")))
            texts = (f"  p{percent:02}: {now:8.3f}s {rate:7}/s {diff:+8.1f}%" for percent, now, rate, diff in numbers)
            lines.append(f"{ranks:>4} GPUs:" + "".join(texts))
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ddp_diff.py", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("baseline", type=Path, metavar="BASELINE")
    parser.add_argument("test", type=Path, metavar="TEST")
    options = parser.parse_args(arguments)
    try:
        baseline, test = load(options.baseline), load(options.test)
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
