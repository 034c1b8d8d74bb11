"""Moves the lab to another PyTorch release: python3 -m tools.checking.move_torch 2.16.0

Downloads it, builds everything, grades solutions and stubs, compares plans and bits with c10d::Reducer's, commits the
pin, and draws the gallery anew from that commit. It ends by saying what is different: warnings of the build, the
headers that the lab stands on, figures. Where a step fails, the pin stays where it is, for mending.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.grading.exit_codes import ending_of
from tools.setup import toolchain
from tools.setup.toolchain import BUILD_DIR, OLDEST_TORCH, REQUIREMENTS, ROOT, LabError, pinned

FOLDER = BUILD_DIR / "move_torch"
HEADERS = ("torch/csrc/distributed/c10d", "torch/csrc/autograd", "c10/core")
PYTHON = [sys.executable, "-m"]
CHECK = [*PYTHON, "tools.checking.check"]
BACK = "To go back: git checkout -- requirements.txt && make setup"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tools.checking.move_torch", description=__doc__.splitlines()[0])
    parser.add_argument("release", help="such as 2.16.0")
    release = parser.parse_args().release
    if not re.fullmatch(r"\d+\.\d+\.\d+", release):
        raise LabError(f"{release} is no release of PyTorch, such as {pinned('torch')}")
    if dirty := _output(["git", "status", "--porcelain"]):
        raise LabError(f"Commit or stash first, since figures name the commit that made them:\n{dirty}")
    before = pinned("torch")
    keep_headers("before")
    REQUIREMENTS.write_text(re.sub(r"^torch==\S+", f"torch=={release}", REQUIREMENTS.read_text(), flags=re.MULTILINE))
    step("It is installed", [*PYTHON, "tools.setup.setup", "--for-check"])
    step("Everything is built and graded", [*CHECK, "--only=build", "--only=solutions", "--only=stubs"])
    step("Plans and bits are Reducer's", [str(BUILD_DIR / "bin/tests_harness"), "--gtest_filter=*Reducer*"])
    step("The pin is committed", ["git", "commit", "--quiet", "-m", f"PyTorch {release}", str(REQUIREMENTS)])
    step("Figures are drawn", ["make", "figures", "IMPL=solutions"])
    step("The gallery has them", [*PYTHON, "tools.report.gallery"])
    keep_headers("after")
    print("\n".join(differences(before, release)))
    return 0


def keep_headers(name: str) -> None:
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    for part in HEADERS:
        shutil.copytree(Path(toolchain.load().libtorch, "include", part), FOLDER / name / part)


def step(what: str, command: list[str]) -> None:
    print(f"\n== {what}: {' '.join(command)}", flush=True)
    if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise LabError(f"This ended with {code}. What may be new: README.md of PyTorch's release, and the log. {BACK}")


def differences(before: str, after: str) -> list[str]:
    """What somebody should look at who moves the pin."""
    log = (BUILD_DIR / "check" / "build.log").read_text(errors="replace")
    warnings = sorted({match[0] for match in re.finditer(r"warning: .*", log)})
    compare = ["git", "diff", "--no-index", "--stat=120", str(FOLDER / "before"), str(FOLDER / "after")]
    headers = _output(compare).splitlines()
    figures = _output(["git", "diff", "--stat=120", "--", "figures/gallery"]).splitlines()
    return [
        f"\nFrom torch {before} to {after} (the oldest that the lab builds on: {OLDEST_TORCH}).",
        f"Warnings of the build: {len(warnings)}",
        *(f"  {line}" for line in warnings),
        f"Headers ({' '.join(compare[:3])} {' '.join(compare[4:])}):",
        *(f" {line}" for line in headers[-1:] or [" none differs"]),
        "The gallery, not committed yet:",
        *(f" {line}" for line in figures or [" as it was"]),
        "Next: make check ALL=1; then common/ddp/libtorch_versions.h, README.md (Requirements), CHANGELOG.md.",
    ]


def _output(command: list[str]) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    sys.exit(ending_of("move_torch", main))
