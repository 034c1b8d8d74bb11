"""Prints a test's claim and its hint: make hint TEST=name."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.grading import stages
from tools.grading.building import Builder
from tools.grading.results import TestSpec
from tools.grading.stages import Stage, all_stages, make_command, short_paths
from tools.grading.test_lists import ask
from tools.setup import toolchain
from tools.setup.checkout_lock import hold
from tools.setup.toolchain import LabError


def main() -> int:
    parser = argparse.ArgumentParser(prog="make hint", description=__doc__, allow_abbrev=False)
    parser.add_argument("--test", default="", help="a test's name, or a pattern; all tests by default")
    options = parser.parse_args()
    try:
        tests = all_tests()
        names = [spec.name for _, spec in tests]
        wanted = stages.match_tests(options.test, names)
        if not wanted:
            raise stages.no_such_test(options.test, names)
    except KeyboardInterrupt:
        return 130
    except LabError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, stages.BadChoice) else 3
    for stage, spec in tests:
        if spec.name in wanted:
            print(describe(stage, spec))
    return 0


def all_tests() -> list[tuple[Stage, TestSpec]]:
    tools = toolchain.load()
    builder = Builder(tools)
    graded = [stage for stage in all_stages() if stage.has_tests()]
    with hold(Path(tools.build_dir) / "grade" / "lock", "make hint"):
        builder.build_programs(graded)
        return [(stage, spec) for stage in graded for spec in ask(builder.program(stage))]


def describe(stage: Stage, spec: TestSpec) -> str:
    place = f"{short_paths(spec.file)}:{spec.line}"
    points = f"{spec.points:g} points" if spec.points else "a report, no points"
    return (
        f"{spec.claim}  ({stage.title}, {points})\n"
        f"  hint   {spec.hint}\n"
        f"  test   {place}\n"
        f"  run    {make_command('test', stage, test=spec.name)}"
    )


if __name__ == "__main__":
    sys.exit(main())
