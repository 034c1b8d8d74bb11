"""make calibrate FROM=measurements.csv: describes your own machine by a few measurements, and predicts the others.

The file has the columns of figures/reference/held_out.csv, but predicted. Rows whose role is calibration are used:

    all-reduces of two sizes      the link's speed, by the largest; what each takes besides, by the smallest
    or a naive step's all-reduce  the link's speed
    one GPU, small, 128 tokens    the host's share of a layer: forward, and forward + backward
    one GPU, a large model        the parts of the GPU's peak that both reach
    a naive step                  what every iteration takes besides; without rows of one GPU, those parts

Each constant follows from one row; the programs run with candidates until all rows are met. Then the rest of the file
is predicted, with its error. FLAGS= describes the machine, as in FLAGS="--gpu H100 --precision fp32 --link nvswitch4".
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tabulate import tabulate

from figures.lib import held_out, suite_data, training_times
from figures.lib.held_out import AB, AFTER, ALL_REDUCE, BOTH, FORWARD, ONE_GPU, STEP, Row
from figures.lib.result_files import load
from figures.lib.training_times import BACKWARD, TRAIN, Way
from tools.grading import stages
from tools.grading.building import Builder
from tools.grading.exit_codes import ending_of
from tools.setup import toolchain
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError

CALIBRATION = ROOT / "figures" / "reference" / "calibration.json"
MADE = ROOT / "figures" / "data" / "calibration.json"
PROGRAM = "bucketed_ddp"
SHAPES = {"2.7b": "2560,10240,32,32", "10b": "4608,12288,50,36"}  # the handout's that the lab has no names for
STAGES = ("01_naive_ddp", "02_overlapped_ddp", "03_bucketed_ddp")
ROUNDS = 5
LAUNCH_S = 5e-6  # as of every GPU in the lab: a synchronizer's operators in the author's Python took more
SMALLEST_S = 1e-9  # of an overhead
Constants = dict[str, float]


@dataclass(frozen=True)
class Machine:
    flags: tuple[str, ...] = ()
    impl: str = "solutions"  # whose stages run


def fitted_to_machine(experiment: str) -> Constants:
    return json.loads(CALIBRATION.read_text(encoding="utf-8"))["experiments"][experiment]["constants"]


def write_constants(file: Path, program: str, constants: Constants) -> None:
    """As a calibration, which the program takes by --calibration."""
    document = {"schema_version": 1, "experiments": {program: {"constants": constants}}}
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def run(program: str, flags: list[str], output: Path) -> None:
    command = [str(BUILD_DIR / "bin" / program), *flags, "--output", str(output)]
    try:
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LabError(f"{command[0]} is not built: make setup && cmake --build build") from None
    if ended.returncode:
        raise LabError(f"{' '.join(command)} ended with code {ended.returncode}: {ended.stderr.strip()}")


def _trained(machine: Machine, rows: list[Row], constants: Constants, folder: Path) -> Iterator[Row]:
    """Rows of one model on as many GPUs, from one run."""
    candidate, output = folder / "candidate.json", folder / "result.json"
    write_constants(candidate, PROGRAM, constants)
    model = rows[0].model
    flags = ["--shape", SHAPES[model]] if model in SHAPES else ["--model", model]
    for flag, values in (
        ("--batch-sizes", {row.batch for row in rows}),
        ("--sequence-lengths", {row.seq for row in rows}),
        ("--bucket-mb", {row.bucket_mb for row in rows} - {""} or {"1000"}),
        ("--gpus", {str(max(rows[0].gpus, 2))}),
    ):
        flags += [flag, ",".join(sorted(values, key=int))]
    flags += ["--link-gb-per-s", str(constants["link_bytes_per_second"] / 1e9)]
    base = ["--preset", "published", "--impl", machine.impl, "--calibration", str(candidate), *machine.flags]
    run(PROGRAM, [*base, *flags], output)
    result, trainings = training_times.load_trainings(output)
    for row in rows:
        way = Way(int(row.batch), int(row.seq), row.method, int(row.bucket_mb) if row.bucket_mb else None)
        after = 0.0 if row.method == ONE_GPU else trainings.times(way).all_reduce
        step = trainings.seconds(way, TRAIN)
        both = step - result.parameters["besides_s"] - after
        times = {STEP: step, AFTER: after, BOTH: both, FORWARD: both - trainings.seconds(way, BACKWARD)}
        yield replace(row, predicted=times[row.metric])


def _all_reduced(machine: Machine, row: Row, constants: Constants, folder: Path) -> float:
    speed, overhead = constants["link_bytes_per_second"] / 1e9, 1e6 * constants["all_reduce_overhead_s"]
    flags = [flag for flag in machine.flags if flag not in ("--precision", "fp32", "tf32", "bf16")]
    flags += ["--link-gb-per-s", str(speed), "--link-latency-us", str(overhead)]
    if "--link" not in flags:
        flags += ["--link", "pcie4"]
    run("all_reduce_times", [*flags, "--gpus", str(row.gpus), "--mib", row.model], folder / "result.json")
    return load(folder / "result.json", "all_reduce_times").series[0]["values"][0]


def predict(machine: Machine, rows: list[Row], constants: Constants) -> list[Row]:
    """In the order of the rows."""
    made: dict[Row, Row] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for row in rows:
            if row in made:
                continue
            if row.metric == ALL_REDUCE:
                made[row] = replace(row, predicted=_all_reduced(machine, row, constants, folder))
                continue
            alike = [r for r in rows if (r.gpus, r.model) == (row.gpus, row.model) and r.metric != ALL_REDUCE]
            made |= zip(alike, _trained(machine, alike, constants, folder))
    return [made[row] for row in rows]


def _tied(rows: list[Row]) -> Iterator[tuple[str, Row]]:
    """Each constant with the row that it follows from."""
    sizes = sorted((row for row in rows if row.metric == ALL_REDUCE), key=lambda row: int(row.model))
    if sizes:
        yield "link_bytes_per_second", sizes[-1]
        yield "all_reduce_overhead_s", sizes[0]
    alone = [row for row in rows if row.method == ONE_GPU]
    for row in alone:
        small = row.model == "small"
        if small and int(row.seq) > 512:
            yield "memory_efficiency", row
        elif row.metric == FORWARD:
            yield "forward_host_s" if small else "forward_efficiency", row
        elif row.metric == BOTH:
            yield "backward_host_s" if small else "backward_efficiency", row
    for row in rows:
        if row.method == "naive" and row.metric == STEP:
            yield "iteration_s" if alone else "efficiency", row
        elif row.method == "naive" and row.metric == AFTER and not sizes:
            yield "link_bytes_per_second", row


def calibrate(machine: Machine, rows: list[Row], start: Constants) -> Constants:
    """The constants that the rows say something about, and all others as they were; what is not said to be done besides
    is not done."""
    constants = {**start, "iteration_s": 0.0, "launch_s": LAUNCH_S}
    tied = [(name, row) for name, row in _tied(rows)]
    for _ in range(ROUNDS):
        now = predict(machine, [row for _, row in tied], constants)
        for (name, _), row in zip(tied, now):
            ratio, missing = row.predicted / row.published, row.published - row.predicted
            if name == "efficiency":
                for one in ("forward_efficiency", "backward_efficiency"):
                    constants[one] *= ratio
            elif name in ("iteration_s", "all_reduce_overhead_s"):
                constants[name] = max(SMALLEST_S, constants[name] + missing)
            elif name.endswith("host_s"):
                constants[name] /= ratio
            else:
                constants[name] *= ratio
    return {name: float(f"{value:.4g}") for name, value in constants.items()}


def suite_rows(rows: list[Row]) -> list[Row]:
    """Those of PyTorch's suite, with the constants of calibration.json."""
    gpus = sorted({row.gpus for row in rows})
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "ddp_suite.json"
        flags = ["--preset", "published", "--impl", "solutions", "--model", "resnet50", "--bucket-size", "25", "1"]
        run("ddp_suite", [*flags, "--gpus", ",".join(map(str, gpus))], output)
        suite = suite_data.Suite(output)
        times = {one.ranks: one.percentile(50) for one in suite.rounds("resnet50", suite_data.Choice("Reducer", 1))[1:]}
        diffs = suite_data.own_diffs(suite, "resnet50", "Reducer", 75)
    return [replace(row, predicted=(diffs if row.metric == AB else times)[row.gpus]) for row in rows]


def _read(file: Path) -> list[Row]:
    form = f"figures/reference/{held_out.NAME}.csv"
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    except OSError as error:
        raise LabError(f"{file}: cannot be read ({error.strerror}); give FROM= a file like {form}") from None
    try:
        return [held_out.row_of({**cells, "predicted": "0"}) for cells in csv.DictReader(lines)]
    except (KeyError, TypeError, ValueError) as error:
        raise LabError(f"{file}: a row does not fit ({error}); its columns are those of {form}") from None


def main() -> int:
    if not os.environ.get("FROM"):
        raise LabError("make calibrate needs FROM=measurements.csv; figures/reference/held_out.csv shows its form")
    rows = _read(Path(os.environ["FROM"]))
    machine = Machine(tuple(os.environ.get("FLAGS", "").split()), os.environ.get("IMPL") or "assignments")
    builder = Builder(toolchain.load())
    builder.build_common([PROGRAM, "all_reduce_times"])
    builder.build([stages.named(name) for name in STAGES], machine.impl)
    constants = calibrate(machine, [row for row in rows if row.fitted], fitted_to_machine(PROGRAM))
    MADE.parent.mkdir(parents=True, exist_ok=True)
    write_constants(MADE, PROGRAM, constants)
    made = predict(machine, rows, constants)
    cells = [[row.model, row.seq, row.method, row.metric, "calibration" if row.fitted else "", f"{row.published:.4g}",
              f"{row.predicted:.4g}", f"{row.error:+.1f} %"] for row in made]  # fmt: skip
    print(tabulate(cells, ["model", "tokens", "method", "metric", "role", "measured [s]", "predicted [s]", "error"]))
    speed = f"--link-gb-per-s {constants['link_bytes_per_second'] / 1e9:.4g}"
    print(f"\nwrote {MADE.relative_to(ROOT)}: give --preset published --calibration {MADE.relative_to(ROOT)} {speed}")
    return 0


if __name__ == "__main__":
    sys.exit(ending_of("calibrate", main))
