"""Predicts figures/reference/held_out.csv anew with the programs, writes its column `predicted`, and prints all errors.

    .venv/bin/python -m tools.report.held_out

figures/reference/machines.json says what each source's machine is: flags of the programs, and constants that follow from
the source's own calibration rows. calibration.json has the suite's, and those of A that were fitted.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tabulate import tabulate

from figures.lib import held_out, suite_data, training_times
from figures.lib.held_out import AB, AFTER, ALL_REDUCE, BOTH, FORWARD, ONE_GPU, OPTIMIZER, STEP, Row
from figures.lib.reference_data import FOLDER
from figures.lib.result_files import load
from figures.lib.training_times import BACKWARD, TRAIN, Way
from tools.grading.exit_codes import ending_of
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError

FILE, MACHINES, CALIBRATION = (FOLDER / name for name in ("held_out.csv", "machines.json", "calibration.json"))
PROGRAM, SUITE, ALL_REDUCES = "bucketed_ddp", "ddp_suite", "all_reduce_times"
SHAPES = {
    "small": "768,3072,12,12", "medium": "1024,4096,24,16", "large": "1280,5120,36,20", "xl": "1600,6400,48,25",
    "2.7b": "2560,10240,32,32", "10b": "4608,12288,50,36",
}  # fmt: skip
ONE_MACHINE = 1 << 20  # GPUs
Constants = dict[str, float]


@dataclass(frozen=True)
class Machine:
    flags: tuple[str, ...]
    constants: Constants

    def speeds(self) -> list[str]:
        """Flags for the links' measured speeds; none where they are what --link says."""
        names = {"--link-gb-per-s": "link_bytes_per_second", "--between-gb-per-s": "link_between_bytes_per_second"}
        speeds = {flag: self.constants.get(name) for flag, name in names.items()}
        return [text for flag, speed in speeds.items() if speed for text in (flag, f"{speed / 1e9:.6g}")]


def machines() -> dict[str, Machine]:
    """By source."""
    found = json.loads(MACHINES.read_text(encoding="utf-8"))
    return {source: Machine(tuple(one["flags"]), one["constants"]) for source, one in found.items()}


def calibrated(experiment: str) -> Constants:
    return json.loads(CALIBRATION.read_text(encoding="utf-8"))["experiments"][experiment]["constants"]


def write_constants(file: Path, program: str, constants: Constants) -> None:
    """As a calibration, which the programs take by --calibration."""
    document = {"schema_version": 1, "experiments": {program: {"constants": constants}}}
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def run(program: str, flags: Iterable[str], output: Path) -> None:
    command = [str(BUILD_DIR / "bin" / program), *flags, "--output", str(output)]
    try:
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LabError(f"{command[0]} is not built: make setup && cmake --build build") from None
    if ended.returncode:
        raise LabError(f"{' '.join(command)} ended with code {ended.returncode}: {ended.stderr.strip()}")


def is_resnet(row: Row) -> bool:
    return row.model.startswith("resn")


def trained(machine: Machine, rows: list[Row], folder: Path) -> Iterator[Row]:
    """Transformers of one shape, on so many GPUs."""
    candidate, output = folder / "candidate.json", folder / "result.json"
    write_constants(candidate, PROGRAM, machine.constants)
    flags = ["--shape", SHAPES.get(rows[0].model, rows[0].model)]
    for flag, values in (
        ("--batch-sizes", {row.batch for row in rows}),
        ("--sequence-lengths", {row.seq for row in rows}),
        ("--bucket-mb", {row.bucket_mb for row in rows} - {""} or {"1000"}),
        ("--gpus", {str(max(rows[0].gpus, 2))}),
    ):
        flags += [flag, ",".join(sorted(values, key=int))]
    base = ["--preset", "published", "--impl", "solutions", "--calibration", str(candidate), *machine.flags]
    run(PROGRAM, [*base, *machine.speeds(), *flags], output)
    result, trainings = training_times.load_trainings(output)
    for row in rows:
        way = Way(int(row.batch), int(row.seq), row.method, int(row.bucket_mb) if row.bucket_mb else None)
        after = 0.0 if row.method == ONE_GPU else trainings.times(way).all_reduce
        step = trainings.seconds(way, TRAIN)
        besides = result.parameters["besides_s"]
        both = step - besides - after
        forward = both - trainings.seconds(way, BACKWARD)
        times = {STEP: step, AFTER: after, BOTH: both, FORWARD: forward, OPTIMIZER: besides}
        yield replace(row, predicted=times[row.metric])


def all_reduced(machine: Machine, rows: list[Row], folder: Path) -> Iterator[Row]:
    flags = [flag for flag in machine.flags if flag not in ("--precision", "fp32", "tf32", "bf16")]
    flags += [*machine.speeds(), "--link-latency-us", str(1e6 * machine.constants["all_reduce_overhead_s"])]
    for flag, value in (("--link", "pcie4"), ("--gpus-per-node", str(ONE_MACHINE))):
        flags += [] if flag in flags else [flag, value]
    for row in rows:
        size = str(round(float(row.model) * 2**20))
        run(ALL_REDUCES, [*flags, "--gpus", str(row.gpus), "--bytes", size], folder / "result.json")
        seconds = load(folder / "result.json", ALL_REDUCES).series[0]["values"][0]
        yield replace(row, predicted=seconds)


def suite(machine: Machine, rows: list[Row], folder: Path) -> Iterator[Row]:
    """ResNets of one kind; without flags, on the suite's machines, with the constants of calibration.json."""
    model, batch, side = rows[0].model, rows[0].batch, rows[0].seq
    sizes = sorted({size for row in rows for size in row.bucket_mb.split(" against ")} - {""}, key=int) or ["25"]
    gpus = sorted({row.gpus for row in rows})
    candidate, output = folder / "candidate.json", folder / "result.json"
    flags = ["--model", model, "--batch-size", batch, "--image-size", side, "--gpus", ",".join(map(str, gpus))]
    if machine.flags:
        own = calibrated(SUITE)
        write_constants(candidate, SUITE, own | {name: machine.constants.get(name, own[name]) for name in own})
        flags += ["--calibration", str(candidate), *machine.flags, *machine.speeds()]
    run(SUITE, ["--preset", "published", "--impl", "solutions", *flags, "--bucket-size", *sizes[::-1]], output)
    result = suite_data.Suite(output)
    for row in rows:
        if row.metric == AB:
            yield replace(row, predicted=suite_data.own_diffs(result, model, row.method, 75)[row.gpus])
            continue
        choice = suite_data.Choice("Reducer" if row.method == ONE_GPU else row.method, int(row.bucket_mb or 25))
        alone, *others = result.rounds(model, choice)
        found = alone if row.method == ONE_GPU else next(one for one in others if one.ranks == row.gpus)
        yield replace(row, predicted=found.percentile(50))


def predicted(sources: Iterable[str] = held_out.SOURCES) -> list[Row]:
    """All rows of these sources, in the order of the file."""
    made: dict[Row, Row] = {}
    rows = [row for row in held_out.rows() if row.source in sources]
    groups: dict[tuple[object, ...], list[Row]] = {}  # what comes from one run
    for row in rows:
        shape = (row.batch, row.seq) if is_resnet(row) else row.gpus
        groups.setdefault((row.source, row.model, shape, row.metric == ALL_REDUCE), []).append(row)
    known = machines() | {"A": Machine((), calibrated(PROGRAM))}
    with tempfile.TemporaryDirectory() as folder:
        for group in groups.values():
            first = group[0]
            predict = all_reduced if first.metric == ALL_REDUCE else suite if is_resnet(first) else trained
            made |= zip(group, predict(known[first.source], group, Path(folder)))
    return [made[row] for row in rows]


def write(rows: list[Row]) -> None:
    """The table anew, below the comments that it has."""
    names = ["source", "gpus", "model", "batch", "seq", "method", "bucket_mb", "metric"]
    cells = [
        [*(getattr(row, name) for name in names), "calibration" if row.fitted else "held",
         f"{row.published:.6g}", f"{row.predicted:.6g}"]
        for row in rows
    ]  # fmt: skip
    comments = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    with FILE.open("w", encoding="utf-8", newline="") as stream:
        stream.write("\n".join(comments) + "\n")
        csv.writer(stream, lineterminator="\n").writerows([[*names, "role", "published", "predicted"], *cells])


def main() -> int:
    rows = [replace(row, predicted=float(f"{row.predicted:.6g}")) for row in predicted()]
    write(rows)
    print(tabulate(held_out.table(rows), held_out.COLUMNS, tablefmt="simple", disable_numparse=True))
    print(f"\nwrote {FILE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(ending_of("held_out", main))
