"""`make test` as one of several ranks that torchrun, mpirun or srun has started, on any machines.

The graded tests need all their ranks on one machine, under their referee. So all ranks first run one step of each stage
together (build/bin/all_stages), by Gloo, and compare its values with those of one process; then rank 0 grades, as
without a launcher, and the others have done their part.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

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


def compare_values(options: argparse.Namespace, broken: Collection[str], program: Path, rank: int) -> int:
    """One step of the stages that compile, by all ranks; 0 if all values are as one process computes them."""
    if rank == 0:
        print("A step of each stage by all ranks, beside one process:")
        print("".join(f"{name} does not compile\n" for name in broken), end="", flush=True)
    compiled = [stage.number for stage in options.stages if stage.name not in broken]
    if not compiled:
        return 1
    command = [str(program), f"--impl={options.impl}", f"--stages={','.join(compiled)}", f"--device={options.device}"]
    code = subprocess.run(command, env={"DDP_LAB_TIMEOUT_S": PATIENCE_S, **os.environ}, check=False).returncode
    return 1 if code or len(compiled) < len(options.stages) else 0
