"""Prints a test's claim and its hint: make hint TEST=name. Without a name, those of all tests: make hint STAGE=05.

There are two hints for each test. The first is one sentence; the second, shown by LEVEL=2 below the first, says where
to look and what to ask oneself. Both are read from the test's source: nothing is built, and a `make test` that runs is
not waited for.
"""

from __future__ import annotations

import argparse
import sys

from tools.grading import stages
from tools.grading.running import test_lists
from tools.grading.scoring.results import TestSpec
from tools.grading.stages import Stage, make_command, short_paths
from tools.grading.terminal import Terminal, ending_of
from tools.setup.columns import fold, fold_command


def main() -> int:
    return ending_of("make hint", _hint_as_asked)


def _hint_as_asked() -> int:
    parser = argparse.ArgumentParser(prog="make hint", description=__doc__, allow_abbrev=False)
    parser.add_argument("--stage", default="", help="01 to 07, or a stage's full name; all of them by default")
    parser.add_argument("--test", default="", help="a test's name, or a pattern; all tests by default")
    parser.add_argument("--level", default="1", help="2: also the second hint, which says more")
    options = parser.parse_args()
    stages.choose("LEVEL", options.level, ("1", "2"))
    shown = test_lists.chosen(options.test, stages.find_stages(options.stage))
    terminal = Terminal()
    for stage, spec in shown:
        terminal.print(describe(stage, spec, int(options.level), terminal.width))
        if len(shown) == 1 and options.level == "1" and spec.more:
            again = make_command("hint", stage, test=spec.name, level=2)
            terminal.print(f"  still stuck?\n         {fold_command(again, terminal.width, 9)}")
        elif len(shown) > 1:
            terminal.print()
    if len(shown) > 1 and options.level == "1":
        terminal.print("Tests have a second hint, which says more: make hint TEST=<name> LEVEL=2")
    return 0


def describe(stage: Stage, spec: TestSpec, level: int, width: int) -> str:
    points = f"{spec.points:g} point{'s' * (spec.points != 1)}"
    title = f"{spec.title}  ({stage.title}, {points})"
    hints = [f"  hint   {spec.hint}"] + ([f"  more   {spec.more}"] if level == 2 and spec.more else [])
    run = fold_command(make_command("test", stage, test=spec.name), width, 9)
    folded = [fold(title, width), *(fold(hint, width, 7) for hint in hints)]
    return "\n".join([*folded, f"  test   {short_paths(spec.file)}:{spec.line}", f"  run    {run}"])


if __name__ == "__main__":
    sys.exit(main())
