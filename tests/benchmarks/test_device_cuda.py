"""Tests of what --device cuda says where it cannot run: with a stand-in for the lab's CUDA part, which programs load
from beside libddp.so.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.program_helpers import AVERAGING, BUILD, ProgramTest
from tools.setup import system_packages


def compile_library(folder: Path, name: str, source: str, *options: str) -> Path:
    library = folder / name
    (folder / f"{name}.c").write_text(source)
    command = [system_packages.usable_compiler(), "-x", "c", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", library]
    # The linker's options come after what is compiled.
    subprocess.run([*command, folder / f"{name}.c", "-x", "none", *options], check=True)
    return library


pytestmark = [
    pytest.mark.slow,
    pytest.mark.builds("step", "ddp_cuda", *(f"solutions_{stage}" for stage in AVERAGING)),
]


class TestDeviceCuda(ProgramTest):
    program, subcommand = "step", "step_time"

    @pytest.fixture(autouse=True)
    def library(self, set_up: None) -> None:
        (self.folder / "libddp.so").symlink_to(BUILD / "lib" / "libddp.so")

    def assert_said(self, message: str, *flags: str, code: int = 1) -> str:
        errors = self.assert_refused(message, *(flags or ("--device=cuda",)), code=code, LD_LIBRARY_PATH=self.folder)
        assert errors.count(message) == 1, "each rank says it"
        return errors

    def cuda_part(self, *options: str) -> Path:
        return compile_library(self.folder, "libddp_cuda.so", "void* ddp_cuda_library(void) { return 0; }", *options)

    def test_not_built(self) -> None:
        self.assert_said("the CUDA part is not built here: make test DEVICE=cuda builds it, or says why it cannot")

    def test_no_gpu(self) -> None:
        self.cuda_part()
        self.assert_said("no GPU is visible: make doctor says what the driver shows")


def test_the_cuda_part_loads_and_was_compiled_with_the_right_nccl() -> None:
    library = BUILD / "lib" / "libddp_cuda.so"
    said = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    if lost := re.search(r"(\S+) => not found", said):
        pytest.skip(f"{lost[1]} is missing, as after a set-up for the CPU")
    load = f"import ctypes, os; ctypes.CDLL('{library}', os.RTLD_NOW).ddp_cuda_library()"
    ended = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
