"""Builds one program that measures, or that tries several machines (`make build/bin/step`)."""

from __future__ import annotations

import argparse
import sys

from tools.grading.compiling.building import Builder
from tools.grading.stages import BadChoice
from tools.grading.terminal import ending_of
from tools.setup import toolchain
from tools.setup.toolchain import ROOT


def programs() -> list[str]:
    """Their names, which are those of their folders."""
    folders = ROOT / "benchmarks" / "experiments", ROOT / "tests" / "several_machines"
    return sorted(path.name for folder in folders for path in folder.iterdir())


def main() -> int:
    parser = argparse.ArgumentParser(prog="make build/bin/<program>", description=__doc__)
    parser.add_argument("name")
    name = parser.parse_args().name
    if name not in programs():
        raise BadChoice(f"There is no program {name}. There are: {', '.join(programs())}")
    Builder(toolchain.load()).build_common([name])
    return 0


if __name__ == "__main__":
    sys.exit(ending_of("make build/bin/<program>", main))
