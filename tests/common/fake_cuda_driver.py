"""A stand-in for NVIDIA's driver: a libcuda.so.1 that answers as a test tells it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.setup import gpus, system_packages

SOURCE = """\
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static const int capability[][2] = {%(capabilities)s};
int cuInit(unsigned flags) {
  if (%(crashes)d) abort();
  while (%(hangs)d) pause();
  return %(init)d;
}
int cuDriverGetVersion(int* version) { *version = %(cuda)d; return 0; }
int cuDeviceGetCount(int* count) { *count = %(count)d; return 0; }
int cuDeviceGet(int* device, int index) { *device = index; return 0; }
int cuDeviceGetName(char* name, int size, int device) { return snprintf(name, size, "Stand-in %%d", device) < 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = capability[device][attribute - 75];
  return 0;
}
"""


def compile_library(folder: Path, name: str, source: str, *options: str) -> Path:
    library = folder / name
    (folder / f"{name}.c").write_text(source)
    command = [system_packages.usable_compiler(), "-x", "c", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", library]
    # The linker's options come after what is compiled.
    subprocess.run([*command, folder / f"{name}.c", "-x", "none", *options], check=True)
    return library


def driver(
    folder: Path,
    gpus_there: Sequence[tuple[int, int]] = (),
    cuda: int = 1000 * gpus.CUDA,
    init: int = 0,
    crashes: bool = False,
    hangs: bool = False,
) -> str:
    """Puts it into the folder, which LD_LIBRARY_PATH must name. The GPUs are given by their compute capabilities."""
    capabilities = ", ".join(f"{{{major}, {minor}}}" for major, minor in gpus_there) or "{0, 0}"
    answers = {"cuda": cuda, "init": init, "crashes": crashes, "hangs": hangs, "count": len(gpus_there)}
    compile_library(folder, gpus.LIBRARY, SOURCE % {**answers, "capabilities": capabilities})
    return str(folder)
