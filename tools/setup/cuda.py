"""What GPUs are here, as nvidia-smi says it. All of CUDA comes into .venv where there are any, or DEVICE= asks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tools.setup.configuring import cache
from tools.setup.toolchain import LabError, Toolchain
from tools.setup.virtual_environment import CHECK, FIGURES, parts_there
from tools.setup.virtual_environment import CUDA as CUDA_PART

QUERY = ("nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader")
PATIENCE_S = 120  # many GPUs without nvidia-persistenced take long to wake
ANY_MACHINE = "all"  # of DEVICE=: nobody asks what GPUs are here
NONE = """\
DEVICE=cuda: {}.
Without a GPU `make test` grades on the CPU. To set up here what runs on another machine: make setup DEVICE=all"""


def gpus() -> tuple[list[str], str]:
    """Of each GPU its name, compute capability and driver; or, where there is none, why."""
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except OSError:
        return [], "there is no NVIDIA driver (no nvidia-smi). Install it; in a container: docker run --gpus=all"
    except subprocess.TimeoutExpired:
        return [], f"nvidia-smi did not answer within {PATIENCE_S} s"
    lines = done.stdout.strip().splitlines()
    return ([], " ".join(lines) or "nvidia-smi shows no GPU") if done.returncode or not lines else (lines, "")


def needed_parts(for_figures: bool, for_check: bool, for_another_tool: bool) -> frozenset[str]:
    """What is needed beside torch, as far as it was asked for."""
    device = os.environ.get("DEVICE", "")
    if not for_another_tool and device not in ("", "cpu", "cuda", ANY_MACHINE):
        raise LabError(f"DEVICE={device} is not one of: cpu, cuda, {ANY_MACHINE} (for GPUs of other machines)")
    wanted = {
        FIGURES: for_figures or for_check,
        CHECK: for_check,
        CUDA_PART: device == "cuda" or (device == ANY_MACHINE and not for_another_tool),
    }
    return frozenset(part for part, is_wanted in wanted.items() if is_wanted)


def with_usable_gpus(parts: frozenset[str]) -> frozenset[str]:
    """Adds CUDA where there are GPUs. Stops, before the download, where it was asked for in vain."""
    if CUDA_PART in parts_there():
        return parts
    if CUDA_PART not in parts:
        return parts | {CUDA_PART} if gpus()[0] else parts
    if os.environ["DEVICE"] != ANY_MACHINE:
        require()
    return parts


def require(toolchain: Toolchain | None = None) -> None:
    """Stops where CMake left out the CUDA part, or there is no GPU."""
    if toolchain and (why := why_not_built(toolchain.build_dir)):
        raise LabError(f"DEVICE=cuda: the lab's CUDA part cannot be built here: {why}")
    if why := gpus()[1]:
        raise LabError(NONE.format(why))


def why_not_built(build_dir: str) -> str:
    """Why CMake has left out the target ddp_cuda, as cmake/Cuda.cmake says it; empty if it is there."""
    said = cache(Path(build_dir)).get("DDP_LAB_CUDA", "off: CMake has not said why. Configure anew: make setup")
    return said.removeprefix("off: ") if said.startswith("off") else ""
