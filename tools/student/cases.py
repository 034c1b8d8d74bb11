"""make cases, in a release: opens the page of failures that came with it."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path

from tools.grading import stages
from tools.grading.terminal import ending_of
from tools.setup.toolchain import ROOT, LabError, how_to_restore

PACKED = Path("docs/cases.html")  # where a release has it


def show(page: Path, stage: str) -> int:
    print(page)
    webbrowser.open(page.absolute().as_uri() + (f"#{stages.find_stages(stage)[0].number}" if stage else ""))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cases", description=__doc__, allow_abbrev=False)
    parser.add_argument("--stage", default="", help="where the page opens: 01 to 07")
    parser.add_argument("--exam", default="", help="for instructors")
    options = parser.parse_args()
    if options.exam:
        raise stages.BadChoice("EXAM= is made of wrong solutions, which only the instructor's repository has")
    if not (ROOT / PACKED).exists():
        raise LabError(f"{PACKED} is missing. Restore it: {how_to_restore(str(PACKED))}")
    return show(ROOT / PACKED, options.stage)


if __name__ == "__main__":
    sys.exit(ending_of("make cases", main))
