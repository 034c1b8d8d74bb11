"""Prints a test's claim and its hint: make hint TEST=name. Without a name, those of all tests: make hint STAGE=05."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.grading import stages
from tools.grading.building import Builder
from tools.grading.exit_codes import ending_of
from tools.grading.results import TestSpec
from tools.grading.stages import Stage, make_command, short_paths
from tools.grading.terminal import Terminal
from tools.grading.test_lists import ask
from tools.setup import toolchain
from tools.setup.checkout_lock import hold
from tools.setup.columns import fold, fold_command


def main() -> int:
    return ending_of("make hint", _hint_as_asked)


def _hint_as_asked() -> int:
    parser = argparse.ArgumentParser(prog="make hint", description=__doc__, allow_abbrev=False)
    parser.add_argument("--stage", default="", help="01 to 05, or a stage's full name; all of them by default")
    parser.add_argument("--test", default="", help="a test's name, or a pattern; all tests by default")
    options = parser.parse_args()
    tests = tests_of([stage for stage in stages.find_stages(options.stage) if stage.has_tests()])
    names = [spec.name for _, spec in tests]
    wanted = stages.match_tests(options.test, names)
    if not wanted:
        raise stages.no_such_test(options.test, names)
    terminal = Terminal()
    terminal.print("\n\n".join(describe(stage, spec, terminal.width) for stage, spec in tests if spec.name in wanted))
    return 0


def tests_of(graded: list[Stage]) -> list[tuple[Stage, TestSpec]]:
    tools = toolchain.load()
    builder = Builder(tools)
    with hold(Path(tools.build_dir) / "grade" / "lock", "make hint"):
        builder.build_programs(graded)
        return [(stage, spec) for stage in graded for spec in ask(builder.program(stage))]


def describe(stage: Stage, spec: TestSpec, width: int) -> str:
    points = f"{spec.points:g} points" if spec.points else "a report, no points"
    title = f"{spec.claim}  ({stage.title}, {points})"
    hint, place = f"  hint   {spec.hint}", f"  test   {short_paths(spec.file)}:{spec.line}"
    run = fold_command(make_command("test", stage, test=spec.name), width, 9)
    return "\n".join([fold(title, width), fold(hint, width, 7), place, f"  run    {run}"])


if __name__ == "__main__":
    sys.exit(main())
