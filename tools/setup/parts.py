"""Which parts of .venv a run needs. All of CUDA comes where there are GPUs that can use it, or where DEVICE= asks."""

from __future__ import annotations

import os

from tools.setup import gpus
from tools.setup.toolchain import LabError
from tools.setup.virtual_environment import CHECK, CUDA, FIGURES, parts_there

ANY_MACHINE = "all"  # of DEVICE=: nobody asks what GPUs are here


def needed_parts(for_figures: bool, for_check: bool, for_another_tool: bool) -> frozenset[str]:
    """What is needed beside torch, as far as it was asked for."""
    device = os.environ.get("DEVICE", "")
    if not for_another_tool and device not in ("", "cpu", "cuda", ANY_MACHINE):
        raise LabError(f"DEVICE={device} is not one of: cpu, cuda, {ANY_MACHINE} (for GPUs of other machines)")
    wanted = {
        FIGURES: for_figures or for_check,
        CHECK: for_check,
        CUDA: device == "cuda" or (device == ANY_MACHINE and not for_another_tool),
    }
    return frozenset(part for part, is_wanted in wanted.items() if is_wanted)


def with_usable_gpus(parts: frozenset[str]) -> frozenset[str]:
    """Adds CUDA where there are GPUs that can use it. Stops, before the download, where it was asked for in vain."""
    if CUDA in parts_there():
        return parts
    if CUDA not in parts:
        return parts | {CUDA} if gpus.likely() and not gpus.gap(gpus.ask()) else parts
    if os.environ["DEVICE"] != ANY_MACHINE:
        gpus.require()
    return parts
