"""`make test` as one of several ranks that torchrun, mpirun or srun has started, on any machines.

The graded tests need all their ranks on one machine, under their referee. So all ranks first run one step of each stage
together (build/bin/all_stages), by Gloo, and compare its values with those of one process; then rank 0 grades, as
without a launcher, and the others have done their part.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from tools.grading.compiling.building import Builder, StageBuilds
from tools.grading.stages import Stage, named

# How a rank is told its number, and how many there are: common/ddp/ranks/environment.cpp reads the same, and the rest.
LAUNCHERS = {
    "RANK": "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "SLURM_PROCID": "SLURM_NTASKS",
    "PMI_RANK": "PMI_SIZE",
}
PATIENCE_S = "120"  # for other ranks, unless DDP_LAB_TIMEOUT_S says otherwise


def rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """This process's number among those that a launcher has started; none if it is alone, as in the shell of a job."""
    job_shell = "SLURM_JOB_ID" in environment and not environment.get("SLURM_STEP_ID")
    for rank, ranks in LAUNCHERS.items():
        number, count = environment.get(rank, ""), environment.get(ranks, "")
        if number.isdigit() and count.isdigit() and int(count) > 1 and not (rank == "SLURM_PROCID" and job_shell):
            return int(number)
    return None


def build(stages: Sequence[Stage], impl: str, builder: Builder) -> dict[str, str]:
    """Builds what compare_values() needs. By stage, why it does not compile; empty: it does."""
    with StageBuilds(builder, list(stages), impl) as builds:
        errors = {stage.name: builds.wait_for(stage) for stage in stages}
    builder.build_common(["all_stages"])
    return errors


def compare_values(errors: Mapping[str, str], impl: str, device: str, builder: Builder, rank: int) -> int:
    """One step of the stages that compile, by all ranks; 0 if all values are as one process computes them."""
    compiled = [name for name, error in errors.items() if not error]
    if rank == 0:
        print("A step of each stage by all ranks, beside one process:", flush=True)
        print("".join(f"{name} does not compile\n" for name in errors if name not in compiled), end="", flush=True)
    if not compiled:
        return 1
    numbers = ",".join(named(name).number for name in compiled)
    command = [str(builder.all_stages()), f"--impl={impl}", f"--stages={numbers}", f"--device={device}"]
    code = subprocess.run(command, env={"DDP_LAB_TIMEOUT_S": PATIENCE_S, **os.environ}, check=False).returncode
    return 1 if code or len(compiled) < len(errors) else 0
