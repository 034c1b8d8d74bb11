"""What GPUs are here, and whether PyTorch can use them: asked of NVIDIA's driver, before 2.4 GB come for them. All of
CUDA comes into .venv where there are GPUs that can use it, or where DEVICE= asks.

`python3 -m tools.setup.gpus` prints what the driver answers, as JSON.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.setup.configuring import cache
from tools.setup.toolchain import ROOT, LabError, Toolchain
from tools.setup.virtual_environment import CHECK, FIGURES, parts_there
from tools.setup.virtual_environment import CUDA as CUDA_PART

# Of the pinned torch of PyPI; moves with the pin. Before the download nothing says it; afterwards
# tests/tools/test_setup.py holds it to the installed torch.
CUDA = 13  # a driver for 13.0 or a newer one runs all that is made for 13.x
OLDEST = {13: (7, 5)}  # the compute capability that a CUDA's programs need at least: Turing, of 2018

LIBRARY = "libcuda.so.1"  # comes with the driver, not with the CUDA Toolkit
PATIENCE_S = 120  # many GPUs without nvidia-persistenced take long to wake
NO_GPU = 100
ANY_MACHINE = "all"  # of DEVICE=: nobody asks what GPUs are here
_HIDDEN = "CUDA_VISIBLE_DEVICES may hide all of them; a container needs docker run --gpus=all"
_ADVICE = {  # by cuInit's codes, which cuda.h explains
    0: _HIDDEN,
    NO_GPU: _HIDDEN,
    34: "LD_LIBRARY_PATH names the CUDA Toolkit's stubs: take them out",
    802: "The GPUs are still starting, or need a service: systemctl start nvidia-fabricmanager",
    803: "The driver was updated since the machine started: restart it",
}
_ELSEWHERE = """
Without a GPU `make test` grades on the CPU. To set up here what runs on another machine: make setup DEVICE=all"""


@dataclass(frozen=True)
class Gpu:
    name: str
    capability: tuple[int, int]


@dataclass(frozen=True)
class Driver:
    missing: str = ""  # why its library can't be loaded
    cuda: tuple[int, int] = (0, 0)  # the newest CUDA that it runs
    init: int = 0  # what cuInit returned
    gpus: tuple[Gpu, ...] = field(default=())


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
    """Adds CUDA where there are GPUs that can use it. Stops, before the download, where it was asked for in vain."""
    if CUDA_PART in parts_there():
        return parts
    if CUDA_PART not in parts:
        return parts | {CUDA_PART} if likely() and not gap(ask()) else parts
    if os.environ["DEVICE"] != ANY_MACHINE:
        require()
    return parts


def likely() -> bool:
    """Whether there is a GPU to ask about, by a look at files; WSL's have no files of their own."""
    return bool(glob.glob("/dev/nvidia[0-9]*")) or os.path.exists("/dev/dxg")


def ask() -> Driver:
    """Asks in a child: a driver's library starts threads, may hang, and lets no process fork that has used it."""
    try:
        command = [sys.executable, "-m", "tools.setup.gpus"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Driver(missing=f"{LIBRARY} did not answer within {PATIENCE_S} s")
    except ValueError:
        return Driver(missing=f"{LIBRARY} ended the program that asked it, with status {done.returncode}")
    gpus = tuple(Gpu(gpu["name"], tuple(gpu["capability"])) for gpu in found["gpus"])
    return Driver(found["missing"], tuple(found["cuda"]), found["init"], gpus)


def gap(driver: Driver, cuda: int = CUDA) -> str:
    """Why a PyTorch for this CUDA can use no GPU here, or not all of them, and what to do; empty if it can."""
    if driver.missing:
        return f"there is no NVIDIA driver ({driver.missing}). Install it; in a container: docker run --gpus=all"
    if (0, 0) < driver.cuda < (cuda, 0):
        return f"the NVIDIA driver runs CUDA {_dotted(driver.cuda)} at most, PyTorch needs {cuda}.0. Update the driver"
    if driver.init or not driver.gpus:
        what = "shows no GPU" if driver.init in (0, NO_GPU) else "does not start"
        how = _ADVICE.get(driver.init, "nvidia-smi may say more; a container needs docker run --gpus=all")
        return f"the NVIDIA driver {what} (cuInit returned {driver.init}). {how}"
    oldest = OLDEST.get(cuda, (0, 0))
    old = [gpu for gpu in driver.gpus if gpu.capability < oldest]
    if not old:
        return ""
    named = ", ".join(f"{gpu.name} ({_dotted(gpu.capability)})" for gpu in old)
    fitting = ",".join(str(index) for index, gpu in enumerate(driver.gpus) if gpu not in old)
    older = "Take a newer one, or a PyTorch for an older CUDA: make test PYTHON=/path/to/python"
    how = f"Leave only the others: export CUDA_VISIBLE_DEVICES={fitting}" if fitting else older
    return f"PyTorch needs a GPU of compute capability {_dotted(oldest)} or newer. Too old: {named}. {how}"


def described(driver: Driver) -> str:
    named = ", ".join(f"{gpu.name} ({_dotted(gpu.capability)})" for gpu in driver.gpus)
    return f"{named}, with a driver for CUDA {_dotted(driver.cuda)}"


def require(toolchain: Toolchain | None = None) -> None:
    """Stops where CMake left out the CUDA part, or PyTorch, by default the pinned one, can't use all GPUs."""
    if toolchain and (why := why_not_built(toolchain.build_dir)):
        raise LabError(f"DEVICE=cuda: the lab's CUDA part cannot be built here: {why}")
    made_for = re.search(r"\+cu(\d+)\d$", toolchain.torch_version) if toolchain else None
    if why := gap(ask(), int(made_for[1]) if made_for else CUDA):
        raise LabError(f"DEVICE=cuda: {why}.{_ELSEWHERE}")


def why_not_built(build_dir: str) -> str:
    """Why CMake has left out the target ddp_cuda, as cmake/Cuda.cmake says it; empty if it is there."""
    said = cache(Path(build_dir)).get("DDP_LAB_CUDA", "off: CMake has not said why. Configure anew: make setup")
    return said.removeprefix("off: ") if said.startswith("off") else ""


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _ask_here() -> Driver:
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError as error:
        return Driver(missing=str(error))
    version = _number(driver.cuDriverGetVersion)
    cuda = (version // 1000, version % 1000 // 10)
    if code := driver.cuInit(0):
        return Driver(cuda=cuda, init=code)
    return Driver(cuda=cuda, gpus=tuple(_gpu(driver, index) for index in range(_number(driver.cuDeviceGetCount))))


def _gpu(driver: ctypes.CDLL, index: int) -> Gpu:
    device = _number(driver.cuDeviceGet, index)
    name = ctypes.create_string_buffer(128)
    driver.cuDeviceGetName(name, len(name), device)
    # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
    major, minor = (_number(driver.cuDeviceGetAttribute, attribute, device) for attribute in (75, 76))
    return Gpu(name.value.decode(errors="replace"), (major, minor))


def _number(function: ctypes._CFuncPtr, *arguments: int) -> int:
    """What a function of the driver stores at its first argument; 0 if it fails."""
    number = ctypes.c_int()
    return 0 if function(ctypes.byref(number), *arguments) else number.value


if __name__ == "__main__":
    print(json.dumps(asdict(_ask_here())))
