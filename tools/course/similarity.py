"""Whose code is like whose: compare50 (CS50's) on what grade_class took, or on any folder of folders.

Everybody is compared with everybody, with the solutions, and with earlier years (--earlier); the stubs' text does not
count. Names, spaces and comments do not count either ("structure"). compare50 gets an environment of its own,
build/compare50. A score is relative to the highest, which is 10: read the pairs that stand out before you say anything.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.grading.exit_codes import ending_of
from tools.grading.stages import BadChoice, all_stages
from tools.setup import progress
from tools.setup.columns import columns, fold
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError

COMPARE50 = "compare50==1.2.15"
SHOWN = 20
_GRAPH = re.compile(r"var GRAPH = (\{.*\});?\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Pair:
    one: str
    other: str
    score: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tools.course.similarity", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("folder", type=Path, help="what grade_class made, or a folder with a folder for each student")
    parser.add_argument("--earlier", type=Path, nargs="*", default=[], help="the same of earlier years")
    parser.add_argument("--out", type=Path, default=BUILD_DIR / "similarity", help="for compare50's pages")
    parser.add_argument("--pairs", type=int, default=50, help="how many pairs to show in full (%(default)s)")
    options = parser.parse_args()
    submissions = submissions_in(options.folder)
    if len(submissions) < 2:
        raise BadChoice(f"{options.folder} has no two folders with .cpp files in them")
    archive = [*solutions(), *(path for year in options.earlier for path in submissions_in(year))]
    pairs = compare(environment(), submissions, archive, options.out, options.pairs)
    for pair in pairs[:SHOWN]:
        print(f"  {pair.score:4.1f}  {pair.one}  {pair.other}")
    print(fold(f"All {len(pairs)} pairs, side by side: {options.out}/index.html", columns()))
    return 0


def submissions_in(folder: Path) -> list[Path]:
    """Folders of students; of what grade_class made, those with what it took."""
    if not folder.is_dir():
        raise BadChoice(f"{folder} is not a folder")
    places = [path / "taken" if (path / "taken").is_dir() else path for path in sorted(folder.iterdir())]
    return [path for path in places if path.is_dir() and any(path.rglob("*.cpp"))]


def solutions() -> list[Path]:
    return [path for path in sorted((ROOT / "solutions").glob("*_*")) if path.is_dir()]


def environment() -> Path:
    """compare50's Python."""
    python, marker = BUILD_DIR / "compare50/bin/python", BUILD_DIR / "compare50/installed"
    if marker.exists() and marker.read_text() == COMPARE50:
        return python
    log = BUILD_DIR / "compare50.log"
    BUILD_DIR.mkdir(exist_ok=True)
    failed, _ = progress.run([sys.executable, "-m", "venv", "--clear", str(python.parents[1])], "An environment", log)
    install = [str(python), "-m", "pip", "install", "--disable-pip-version-check", COMPARE50]
    if failed or progress.run(install, "Installing compare50", log)[0]:
        raise LabError(f"compare50 could not be installed: {log} says why. It needs a network, once.")
    marker.write_text(COMPARE50)
    return python


def compare(python: Path, submissions: list[Path], archive: list[Path], out: Path, pairs: int) -> list[Pair]:
    """The pairs, the most alike first."""
    shutil.rmtree(out, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    stubs = [str(path) for stage in all_stages() for path in stage.sources("assignments")]
    command = [str(python), "-m", "compare50", *map(str, submissions), "--distro", *stubs, "--archive",
               *map(str, archive), "--output", str(out), "-n", str(pairs), "--include", "*.cpp"]  # fmt: skip
    environment = {**os.environ, "PYTHONHASHSEED": "50"}  # as its own start script does
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    page = out / "index.html"
    found = _GRAPH.search(page.read_text()) if page.exists() else None
    if done.returncode or not found:
        raise LabError(f"compare50 failed; the last that it said:\n{done.stderr.strip()[-1000:]}")
    links = json.loads(found[1])["links"]
    ordered = sorted(links, key=lambda link: -link["value"])
    return [Pair(short_name(link["source"]), short_name(link["target"]), link["value"]) for link in ordered]


def short_name(path: str) -> str:
    """Two folders of the path tell students, years and solutions apart."""
    place = Path(path)
    place = place.parent if place.name == "taken" else place
    return "/".join(place.absolute().parts[-2:])


if __name__ == "__main__":
    sys.exit(ending_of("similarity", main))
