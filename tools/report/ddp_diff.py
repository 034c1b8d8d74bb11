"""Compares two runs of PyTorch's benchmark of DistributedDataParallel: python3 tools/report/ddp_diff.py BASELINE TEST

Both files were written by build/bin/ddp_suite --json or PyTorch's own benchmark.py. Prints the test's numbers, at
percentiles 75 and 95 over all ranks' samples, and their difference from the baseline's, in percent of its sec/iter:
negative is slower. Rounds without DDP are not compared. What only one file has is named on stderr, and left out.

Exit code: 0 if something was compared, 1 after a message if not, 2 for a bad command line.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PERCENTS = (75, 95)
RESULTS = "benchmark_results"
REMEDY = "give a file that ddp_suite --json wrote"


class DiffError(Exception):
    """A file that cannot be compared: which one, why, and what to do."""


@dataclass(frozen=True)
class Benchmark:
    """One model. `rounds` maps the number of ranks to the seconds per iteration of the round with DDP."""

    model: str
    batch_size: int
    rounds: dict[int, list[float]]

    @property
    def title(self) -> str:
        return f"{self.model} with batch size {self.batch_size}"


@dataclass(frozen=True)
class Suite:
    """One file: facts about the run, and its benchmarks by title."""

    facts: dict[str, Any]
    benchmarks: dict[str, Benchmark]


@dataclass(frozen=True)
class Cell:
    """One percentile of one round: the test's numbers, and how they differ from the baseline's."""

    percent: int
    seconds: float
    examples: int  # per second and rank
    diff: float  # percent


Row = tuple[int, list[Cell]]  # ranks, and a cell for each of PERCENTS


def percentile(values: list[float], percent: float) -> float:
    """With linear interpolation between neighbours: numpy's default, to the last bit."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * (percent / 100)
    below = math.floor(position)
    low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    part = position - below
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part


def load(file: Path) -> Suite:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DiffError(f"{file}: cannot be read: {error.strerror}; {REMEDY}") from None
    except (ValueError, RecursionError) as error:  # JSON and UTF-8 errors
        raise DiffError(f"{file}: is not JSON ({error}); {REMEDY}") from None
    try:
        return parse(document)
    except DiffError as error:
        raise DiffError(f"{file}: {error}; {REMEDY}") from None


def parse(document: Any) -> Suite:
    if isinstance(document, dict) and "schema_version" in document:
        raise DiffError("is a result for figures, which ddp_suite --output writes")
    if not isinstance(document, dict) or not isinstance(document.get(RESULTS), list):
        raise DiffError(f"is not of this benchmark: it has no list {RESULTS!r}")
    benchmarks = {}
    for entry in document[RESULTS]:
        benchmark = parse_benchmark(entry)
        if benchmark.title in benchmarks:
            raise DiffError(f"has {benchmark.title} twice")
        benchmarks[benchmark.title] = benchmark
    if not benchmarks:
        raise DiffError(f"is empty: nothing is in {RESULTS!r}")
    return Suite({key: value for key, value in document.items() if key != RESULTS}, benchmarks)


def parse_benchmark(entry: Any) -> Benchmark:
    if not isinstance(entry, dict) or not {"model", "batch_size", "result"} <= entry.keys():
        raise DiffError(f"has a benchmark in {RESULTS!r} without model, batch_size or result")
    model, batch_size, result = entry["model"], entry["batch_size"], entry["result"]
    if not isinstance(model, str) or not is_count(batch_size) or not isinstance(result, list):
        raise DiffError(f"has a benchmark in {RESULTS!r} whose model, batch_size or result is of the wrong kind")
    rounds: dict[int, list[float]] = {}
    for index, part in enumerate(result):
        if not isinstance(part, dict) or not all(isinstance(part.get(key), list) for key in ("ranks", "measurements")):
            raise DiffError(f"has a round of {model} without the lists 'ranks' and 'measurements'")
        ranks, seconds = len(part["ranks"]), part["measurements"]
        if not seconds:
            raise DiffError(f"has no measurements of {model} on {in_words(ranks)}")
        if not all(is_time(value) for value in seconds):
            raise DiffError(f"has a measurement of {model} on {in_words(ranks)} that is no time in seconds")
        if index == 0:
            continue  # without DDP
        if ranks in rounds:
            raise DiffError(f"has two rounds of {model} with DDP on {in_words(ranks)}")
        rounds[ranks] = seconds
    return Benchmark(model, batch_size, rounds)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def in_words(ranks: int) -> str:
    return f"{ranks} rank" + ("" if ranks == 1 else "s")


def compare(baseline: Benchmark, test: Benchmark) -> list[Row]:
    """A row for each number of ranks that both files have, in the test's order."""
    return [
        (ranks, [compare_at(percent, baseline.rounds[ranks], seconds, test.batch_size) for percent in PERCENTS])
        for ranks, seconds in test.rounds.items()
        if ranks in baseline.rounds
    ]


def compare_at(percent: int, baseline: list[float], test: list[float], batch_size: int) -> Cell:
    before, now = percentile(baseline, percent), percentile(test, percent)
    return Cell(percent, now, int(batch_size / now), -100 * ((now - before) / before))  # less time is better


def only_in_one(baseline: Suite, test: Suite) -> list[str]:
    """What is not compared, and why not."""
    skipped = []
    for own, other, name in ((baseline, test, "the test"), (test, baseline, "the baseline")):
        for title, benchmark in own.benchmarks.items():
            if title not in other.benchmarks:
                skipped.append(f"skipped: {title}, which {name} does not have")
                continue
            missing = [ranks for ranks in benchmark.rounds if ranks not in other.benchmarks[title].rounds]
            skipped += [f"skipped: {title} on {in_words(ranks)}, which {name} does not have" for ranks in missing]
    return skipped


def format_facts(baseline: Suite, test: Suite) -> str:
    """The facts about both runs, side by side."""
    lines = [f"{'':20} {'baseline':>20}      {'test':>20}", f"{'':20} {'-' * 20}      {'-' * 20}"]
    for key in sorted(baseline.facts.keys() | test.facts.keys()):
        values = (str(suite.facts.get(key, "-")) for suite in (baseline, test))
        lines.append(f"{key + ':':20} {next(values):>20}  vs  {next(values):>20}")
    return "\n".join(lines) + "\n"


def format_rows(title: str, rows: list[Row]) -> str:
    header = " " * 10 + f"{'sec/iter':>16}{'ex/sec':>10}{'diff':>10}" * len(PERCENTS)
    lines = [f"Benchmark: {title}", "", header]
    for ranks, cells in rows:
        lines.append(f"{ranks:>4} GPUs:" + "".join(format_cell(cell) for cell in cells))
    return "\n".join(lines) + "\n"


def format_cell(cell: Cell) -> str:
    return f"  p{cell.percent:02}: {cell.seconds:8.3f}s {cell.examples:7}/s {cell.diff:+8.1f}%"


def format_diff(baseline: Suite, test: Suite) -> str:
    """The whole comparison. Raises DiffError if the two have nothing in common."""
    parts = [format_facts(baseline, test)]
    for title, benchmark in test.benchmarks.items():
        rows = compare(baseline.benchmarks[title], benchmark) if title in baseline.benchmarks else []
        if rows:
            parts.append(format_rows(title, rows))
    if len(parts) == 1:
        raise DiffError("the files have no model with DDP on equally many ranks in common; compare runs of one model")
    return "\n".join(parts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="ddp_diff.py", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("baseline", type=Path, metavar="BASELINE")
    parser.add_argument("test", type=Path, metavar="TEST")
    options = parser.parse_args(arguments)
    try:
        baseline, test = load(options.baseline), load(options.test)
        for line in only_in_one(baseline, test):
            print(line, file=sys.stderr)
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
