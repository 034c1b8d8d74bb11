"""Predicts figures/reference/held_out.csv anew with the programs, writes its column `predicted`, and prints all errors.

    .venv/bin/python -m tools.report.held_out

figures/reference/machines.json says what each source's machine is: flags of the programs, and constants that follow
from the source's own calibration rows. calibration.json has the suite's, and those of A that were fitted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from figures.lib import held_out, suite_data, training_times
from figures.lib.held_out import AB, AFTER, ALL_REDUCE, BOTH, FORWARD, ONE_GPU, OPTIMIZER, STEP
from figures.lib.result_files import FOLDER, load
from figures.lib.training_times import BACKWARD, TRAIN
from tools.grading.terminal import ending_of
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError

FILE, MACHINES, CALIBRATION = (FOLDER / name for name in ("held_out.csv", "machines.json", "calibration.json"))
PROGRAM, SUITE, CLUSTER = "bucketed_ddp", "ddp_suite", "cluster"
ALL_REDUCES = "all_reduce_times"  # of CLUSTER
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
    """A program, or one of its experiments: "step ddp_suite"."""
    name, *experiment = program.split()
    command = [str(BUILD_DIR / "bin" / name), *experiment, *flags, "--output", str(output)]
    try:
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LabError(f"{command[0]} is not built: make setup && cmake --build build") from None
    if ended.returncode:
        raise LabError(f"{' '.join(command)} ended with code {ended.returncode}: {ended.stderr.strip()}")


def in_order(values: Iterable[str]) -> str:
    return ",".join(sorted(set(values), key=int))


def trained(machine: Machine, rows: pd.DataFrame, folder: Path) -> list[float]:
    """Transformers of one shape, on so many GPUs."""
    candidate, output = folder / "candidate.json", folder / "result.json"
    write_constants(candidate, PROGRAM, machine.constants)
    shape, gpus = rows["model"].iloc[0], max(rows["gpus"].iloc[0], 2)
    flags = ["published", "--impl", "solutions", "--calibration", str(candidate), *machine.flags,
             *machine.speeds(), "--shape", SHAPES.get(shape, shape), "--gpus", str(gpus), "--batch-sizes",
             in_order(rows["batch"]), "--sequence-lengths", in_order(rows["seq"]), "--bucket-mb",
             in_order(filter(None, rows["bucket_mb"])) or "1000"]  # fmt: skip
    run(f"step {PROGRAM}", flags, output)
    result = load(output, PROGRAM)
    times = training_times.times(result).set_index(training_times.WAY)
    besides, predicted = result.attrs["parameters"]["besides_s"], []
    for row in rows.itertuples():
        found = times.loc[int(row.batch), int(row.seq), row.method, int(row.bucket_mb or 0)].squeeze()
        after = 0.0 if row.method == ONE_GPU else found[training_times.ALL_REDUCE]
        both = found[TRAIN] - besides - after
        of_metric = {STEP: found[TRAIN], AFTER: after, BOTH: both, FORWARD: both - found[BACKWARD], OPTIMIZER: besides}
        predicted.append(of_metric[row.metric])
    return predicted


def all_reduced(machine: Machine, rows: pd.DataFrame, folder: Path) -> list[float]:
    flags = [flag for flag in machine.flags if flag not in ("--precision", "fp32", "tf32", "bf16")]
    flags += [*machine.speeds(), "--link-latency-us", str(1e6 * machine.constants["all_reduce_overhead_s"])]
    for flag, value in (("--link", "pcie4"), ("--gpus-per-node", str(ONE_MACHINE))):
        flags += [] if flag in flags else [flag, value]
    predicted = []
    for row in rows.itertuples():
        size = str(round(float(row.model) * 2**20))
        run(CLUSTER, [ALL_REDUCES, *flags, "--gpus", str(row.gpus), "--bytes", size], folder / "result.json")
        predicted.append(load(folder / "result.json", ALL_REDUCES)["value"].iloc[0])
    return predicted


def suite(machine: Machine, rows: pd.DataFrame, folder: Path) -> list[float]:
    """ResNets of one kind; without flags, on the suite's machines, with the constants of calibration.json."""
    model, batch, side = rows[["model", "batch", "seq"]].iloc[0]
    sizes = in_order(size for sizes in rows["bucket_mb"] for size in sizes.split(" against ") if size) or "25"
    candidate, output = folder / "candidate.json", folder / "result.json"
    flags = ["published", "--impl", "solutions", "--model", model, "--batch-size", batch, "--image-size",
             side, "--gpus", in_order(map(str, rows["gpus"])), "--bucket-size", *sizes.split(",")[::-1]]  # fmt: skip
    if machine.flags:
        own = calibrated(SUITE)
        write_constants(candidate, SUITE, own | {name: machine.constants.get(name, own[name]) for name in own})
        flags += ["--calibration", str(candidate), *machine.flags, *machine.speeds()]
    run(f"step {SUITE}", flags, output)
    result, predicted = load(output, SUITE), []
    for row in rows.itertuples():
        if row.metric == AB:
            predicted.append(suite_data.diffs(result, row.method, 75)[model, row.gpus])
            continue
        variant = "Reducer" if row.method == ONE_GPU else row.method
        rounds = suite_data.rounds(result, variant, int(row.bucket_mb or 25), 50)
        alone = rounds["round"] == suite_data.NO_DDP_ROUND
        wanted = alone if row.method == ONE_GPU else ~alone & (rounds["gpus"] == row.gpus)
        predicted.append(rounds[50][wanted].iloc[0])
    return predicted


def predicted(sources: Iterable[str] = tuple(held_out.SOURCES)) -> pd.DataFrame:
    """All rows of these sources, in the order of the file."""
    rows = held_out.rows()
    rows = rows[rows["source"].isin(list(sources))].reset_index(drop=True)
    known = machines() | {"A": Machine((), calibrated(PROGRAM))}
    resnet = rows["model"].str.startswith("resn")
    size = (rows["batch"] + " " + rows["seq"]).where(resnet, rows["gpus"].astype(str))  # with the model: one run
    with tempfile.TemporaryDirectory() as folder:
        for (source, _, _, reduces), group in rows.groupby(["source", "model", size, rows["metric"] == ALL_REDUCE]):
            predict = all_reduced if reduces else suite if resnet[group.index[0]] else trained
            rows.loc[group.index, "predicted"] = predict(known[source], group, Path(folder))
    return rows


def write(rows: pd.DataFrame) -> None:
    """The table anew, below the comments that it has."""
    comments = [line for line in FILE.read_text(encoding="utf-8").splitlines(keepends=True) if line.startswith("#")]
    FILE.write_text("".join(comments) + rows.to_csv(index=False, float_format="%.6g"), encoding="utf-8")


def main() -> int:
    write(predicted())
    print(tabulate(held_out.lines(held_out.rows()), held_out.COLUMNS, tablefmt="simple", disable_numparse=True))
    print(f"\nwrote {FILE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(ending_of("held_out", main))
