"""make calibrate FROM=measurements.csv: describes your own machine by a few measurements, and predicts the others.

The file has the columns gpus, model (a name, "d_model,d_ff,layers,heads", or the MiB of an all-reduce), batch, seq,
method, bucket_mb, metric, and published, in seconds, or value and unit. Rows whose role is calibration are
used; without a column role, those that tools/report/measurements.py ties to a constant:

    all-reduces, fewest GPUs         the link's speed, by the largest; what each takes besides, by the smallest
    all-reduces between machines     that link's speed, by the largest (--gpus-per-node among FLAGS says where it is)
    or a naive step's all-reduce     the link's speed
    one GPU, small, <= 512 tokens    the host's share of a layer: forward, and forward + backward
    or a naive step of so few        the host's shares together
    one GPU, smallest, long          the part of the memory's speed: forward + backward of sequences of > 512 tokens
    one GPU, largest                 the parts of the GPU's peak that both reach; a step of one GPU does it, too
    the optimizer, largest model     how many elements it moves for each parameter
    or the naive step of most tokens the same; without rows of one GPU, those parts of the peak
    ResNets: a step without DDP      its computing

Each constant follows from one row; the programs run with candidates until all rows are met. Then the rest of the file
is predicted, with its error. FLAGS= describes the machine, as in FLAGS="--gpu H100 --precision fp32 --link nvswitch4".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from tabulate import tabulate

from figures.lib import held_out, suite_data, training_times
from figures.lib.held_out import AB, AFTER, ALL_REDUCE, BOTH, FORWARD, ONE_GPU, OPTIMIZER, STEP, Row
from figures.lib.result_files import load
from figures.lib.training_times import BACKWARD, TRAIN, Way
from tools.grading import stages
from tools.grading.compiling.building import Builder
from tools.grading.exit_codes import ending_of
from tools.report.measurements import BETWEEN, COMPUTING, LINK, is_resnet, read, shape_of, tied
from tools.setup import toolchain
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError

CALIBRATION = ROOT / "figures" / "reference" / "calibration.json"
MADE = ROOT / "figures" / "data" / "calibration.json"
PROGRAM, SUITE = "bucketed_ddp", "ddp_suite"
ONE_MACHINE = 1 << 20  # GPUs
FIRST_BETWEEN = 1e10  # a guess to begin with
STAGES = ("01_naive_ddp", "02_overlapped_ddp", "03_bucketed_ddp")
ROUNDS, CLOSE = 12, 0.02  # at most so many; in percent
LAUNCH_S = 5e-6  # as of every GPU in the lab: a synchronizer's operators in the author's Python took more
SMALLEST_S = 1e-9  # of an overhead
SLOWEST_CHANGE = 0.3  # of a constant in a round, where a time is nearly all something else
ONE_PASS = 7.0  # AdamW: gradient, parameter, two moments, read, and all but the gradient written
Constants = dict[str, float]


@dataclass(frozen=True)
class Machine:
    flags: tuple[str, ...] = ()
    impl: str = "solutions"  # whose stages run

    @property
    def per_node(self) -> int:
        given = dict(zip(self.flags, self.flags[1:])).get("--gpus-per-node", "")
        return int(given) if given.isdigit() else ONE_MACHINE


def fitted_to_machine(experiment: str) -> Constants:
    return json.loads(CALIBRATION.read_text(encoding="utf-8"))["experiments"][experiment]["constants"]


def suites_own(constants: Constants) -> Constants:
    """Those which the suite has, too."""
    return {name: value for name, value in constants.items() if name in fitted_to_machine(SUITE)}


def write_constants(file: Path, by_program: dict[str, Constants]) -> None:
    """As a calibration, which the programs take by --calibration."""
    made = {program: {"constants": constants} for program, constants in by_program.items()}
    document = {"schema_version": 1, "experiments": made}
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def run(program: str, flags: list[str], output: Path) -> None:
    command = [str(BUILD_DIR / "bin" / program), *flags, "--output", str(output)]
    try:
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LabError(f"{command[0]} is not built: make setup && cmake --build build") from None
    if ended.returncode:
        raise LabError(f"{' '.join(command)} ended with code {ended.returncode}: {ended.stderr.strip()}")


def _kind(row: Row) -> tuple[object, ...]:
    """Rows of a kind come from one run."""
    if is_resnet(row):
        return row.model, row.batch, row.seq
    return row.model, row.gpus, *([row] if row.metric == ALL_REDUCE else [])


def _speeds(constants: Constants) -> list[str]:
    """Unless it is what --link says."""
    speeds = (("--link-gb-per-s", "link_bytes_per_second"), ("--between-gb-per-s", BETWEEN))
    return [text for flag, name in speeds if constants.get(name) for text in (flag, f"{constants[name] / 1e9:.6g}")]


def _trained(machine: Machine, rows: list[Row], constants: Constants, folder: Path) -> Iterator[Row]:
    candidate, output = folder / "candidate.json", folder / "result.json"
    write_constants(candidate, {PROGRAM: constants})
    flags = ["--shape", shape_of(rows[0])]
    for flag, values in (
        ("--batch-sizes", {row.batch for row in rows}),
        ("--sequence-lengths", {row.seq for row in rows}),
        ("--bucket-mb", {row.bucket_mb for row in rows} - {""} or {"1000"}),
        ("--gpus", {str(max(rows[0].gpus, 2))}),
    ):
        flags += [flag, ",".join(sorted(values, key=int))]
    base = ["--preset", "published", "--impl", machine.impl, "--calibration", str(candidate), *machine.flags]
    run(PROGRAM, [*base, *_speeds(constants), *flags], output)
    result, trainings = training_times.load_trainings(output)
    for row in rows:
        way = Way(int(row.batch), int(row.seq), row.method, int(row.bucket_mb) if row.bucket_mb else None)
        after = 0.0 if row.method == ONE_GPU else trainings.times(way).all_reduce
        step = trainings.seconds(way, TRAIN)
        besides = result.parameters["besides_s"]
        both = step - besides - after
        times = {
            STEP: step,
            AFTER: after,
            BOTH: both,
            FORWARD: both - trainings.seconds(way, BACKWARD),
            OPTIMIZER: besides,
        }
        yield replace(row, predicted=times[row.metric])


def _all_reduced(machine: Machine, row: Row, constants: Constants, folder: Path) -> float:
    flags = [flag for flag in machine.flags if flag not in ("--precision", "fp32", "tf32", "bf16")]
    flags += [*_speeds(constants), "--link-latency-us", str(1e6 * constants["all_reduce_overhead_s"])]
    for flag, value in (("--link", "pcie4"), ("--gpus-per-node", str(ONE_MACHINE))):
        flags += [] if flag in flags else [flag, value]
    size = str(round(float(row.model) * 2**20))
    run("all_reduce_times", [*flags, "--gpus", str(row.gpus), "--bytes", size], folder / "result.json")
    return load(folder / "result.json", "all_reduce_times").series[0]["values"][0]


def _suite(machine: Machine, rows: list[Row], constants: Constants, folder: Path) -> Iterator[Row]:
    """ResNets; without flags, on the suite's machines, with the constants of calibration.json."""
    model, batch, side = rows[0].model, rows[0].batch, rows[0].seq
    sizes = sorted({size for row in rows for size in row.bucket_mb.split(" against ")} - {""}, key=int) or ["25"]
    gpus = sorted({row.gpus for row in rows})
    output = folder / "result.json"
    flags = ["--model", model, "--batch-size", batch, "--image-size", side, "--gpus", ",".join(map(str, gpus))]
    if machine.flags:
        write_constants(folder / "candidate.json", {SUITE: {**fitted_to_machine(SUITE), **suites_own(constants)}})
        flags += ["--calibration", str(folder / "candidate.json"), *machine.flags, *_speeds(constants)]
    run(SUITE, ["--preset", "published", "--impl", machine.impl, *flags, "--bucket-size", *sizes[::-1]], output)
    suite = suite_data.Suite(output)
    for row in rows:
        if row.metric == AB:
            yield replace(row, predicted=suite_data.own_diffs(suite, model, row.method, 75)[row.gpus])
            continue
        choice = suite_data.Choice("Reducer" if row.method == ONE_GPU else row.method, int(row.bucket_mb or 25))
        alone, *others = suite.rounds(model, choice)
        found = alone if row.method == ONE_GPU else next(one for one in others if one.ranks == row.gpus)
        yield replace(row, predicted=found.percentile(50))


def predict(machine: Machine, rows: list[Row], constants: Constants) -> list[Row]:
    """In the order of the rows."""
    made: dict[Row, Row] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for row in rows:
            if row in made:
                continue
            alike = [other for other in rows if _kind(other) == _kind(row)]
            if row.metric == ALL_REDUCE:
                made[row] = replace(row, predicted=_all_reduced(machine, row, constants, folder))
            else:
                how = _suite if is_resnet(row) else _trained
                made |= zip(alike, how(machine, alike, constants, folder))
    return [made[row] for row in rows]


# What a constant makes up of a row's time, where that is not all of it; and what changes together.
PARTS = {"update_elements": OPTIMIZER, "efficiency": BOTH, "host_s": BOTH}
TOGETHER = {"efficiency": COMPUTING[:2], "host_s": ("forward_host_s", "backward_host_s")}


def calibrate(machine: Machine, rows: list[Row], start: Constants) -> Constants:
    """The constants that the rows say something about, and all others as they were; without a word of it, the optimizer
    is one pass."""
    found = tied(rows, machine.per_node)
    constants = {**start, "update_elements": ONE_PASS, "launch_s": LAUNCH_S, "measures_by_host": 0.0}
    if "--link" in machine.flags and LINK not in found:
        constants[LINK] = 0.0
    for name, row in found.items():
        if name not in TOGETHER:  # the lab's own machine may not have it
            constants.setdefault(name, row.published if name.startswith("compute_s.") else FIRST_BETWEEN)
    for _ in range(ROUNDS):
        parts = [replace(row, metric=PARTS.get(name, row.metric)) for name, row in found.items()]
        now = predict(machine, [*found.values(), *parts], constants)
        if all(abs(row.error) < CLOSE for row in now[: len(parts)]):
            break
        for name, row, part in zip(found, now, now[len(parts) :]):
            missing = row.published - row.predicted
            longer = max(SLOWEST_CHANGE, 1 + missing / part.predicted)
            for one in TOGETHER.get(name, (name,)):
                if one == "all_reduce_overhead_s":
                    constants[one] = max(SMALLEST_S, constants[one] + missing)
                elif one == "update_elements" or one.endswith("host_s") or one.startswith("compute_s."):
                    constants[one] *= longer
                else:
                    constants[one] /= longer
    return {name: float(f"{value:.4g}") for name, value in constants.items()}


def main() -> int:
    if not os.environ.get("FROM"):
        raise LabError("make calibrate needs FROM=measurements.csv; figures/reference/held_out.csv shows its form")
    machine = Machine(tuple(os.environ.get("FLAGS", "").split()), os.environ.get("IMPL") or "assignments")
    rows = read(Path(os.environ["FROM"]), machine.per_node)
    builder = Builder(toolchain.load())
    builder.build_common([PROGRAM, "all_reduce_times", SUITE])
    builder.build([stages.named(name) for name in STAGES], machine.impl)
    constants = calibrate(machine, [row for row in rows if row.fitted], fitted_to_machine(PROGRAM))
    made = predict(machine, rows, constants)
    MADE.parent.mkdir(parents=True, exist_ok=True)
    write_constants(MADE, {PROGRAM: constants, SUITE: {**fitted_to_machine(SUITE), **suites_own(constants)}})
    names = ["GPUs", "model", "batch", "tokens", "method", "MB", "metric", "role", "measured [s]", "predicted [s]",
             "error"]  # fmt: skip
    cells = [[row.gpus, row.model, row.batch, row.seq, row.method, row.bucket_mb, row.metric,
              "calibration" if row.fitted else "", f"{row.published:.4g}", f"{row.predicted:.4g}",
              f"{row.error:+.1f} %"] for row in made]  # fmt: skip
    print(tabulate(cells, names, disable_numparse=True))
    for _, quantity, held in held_out.quantities([replace(row, source="") for row in made]):
        errors = [abs(row.error) for row in held]
        print(
            f"{quantity}: mean error {fmean(errors):.1f} %, largest {max(errors):.1f} %, over {len(errors)} predictions"
        )
    ready = " ".join([*machine.flags, *_speeds(constants)])
    print(f"\nwrote {MADE.relative_to(ROOT)}: give --preset published --calibration {MADE.relative_to(ROOT)} {ready}")
    return 0


if __name__ == "__main__":
    sys.exit(ending_of("calibrate", main))
