"""Takes the solutions' figures and tables, quick ones and those at published scale, over into figures/gallery, for
README, handouts and the reference writeup; or says which of them are of older code: --changes.

Run it after `make figures IMPL=solutions` on a quiet machine, from a commit without changes. The solutions' files in
figures/out replace those of the same name in the gallery; the rest stays. All tables are in one file, tables.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures.lib.tables import in_lines
from tools.report.deliverables import CALIBRATION, DRAWINGS
from tools.report.writeup_results import KINDS, PUBLISHED, TABLES, Origin, Shown, Unusable, find, tables_of
from tools.setup.toolchain import ROOT

OUT, GALLERY = ROOT / "figures" / "out", ROOT / "figures" / "gallery"
PRESET = "quick"


def shown(folder: Path, in_gallery: bool) -> Iterator[tuple[str, Shown]]:
    """The solutions' figures and tables in a folder, with their names in the gallery. Raises Unusable for one that does
    not say where its numbers come from, or has them from files that no commit has."""
    origin = Origin(folder, "solutions", PRESET, in_gallery)
    for kind, ending in KINDS.items():
        for name in origin.names(ending):
            found = find(kind, name, origin)
            for commit in found.commits:
                if commit == "unknown" or commit.endswith("-dirty"):
                    raise Unusable(f"{found.file.name} was made from commit {commit}: commit first, and draw it again")
            yield name, found


def refresh(out: Path, gallery: Path) -> list[Path]:
    """Copies figures as PNG, tables into one file; returns the gallery's new files."""
    found = list(shown(out, in_gallery=False))
    tables = {name: json.loads(one.file.read_text(encoding="utf-8")) for name, one in found if one.table}
    files = [Path(shutil.copyfile(one.file, gallery / f"{name}.png")) for name, one in found if not one.table]
    return [*files, keep_tables(gallery, {**tables_of(gallery), **tables})] if tables else files


def keep_tables(gallery: Path, tables: dict[str, Any]) -> Path:
    file = gallery / TABLES
    each = (f"{json.dumps(name)}: {in_lines(table).rstrip()}" for name, table in sorted(tables.items()))
    file.write_text("{\n" + ",\n".join(each) + "\n}\n", encoding="utf-8")
    return file


def sources(program: str) -> list[str]:
    """What decides the numbers of a program's figures: its own code, models and peers, the stages that it runs. How
    they are drawn, and what all programs share, are left out: no figure would ever be up to date."""
    drawings = [drawing for drawing in DRAWINGS if program in {run.program for run in drawing.runs}]
    stages = {str(file.relative_to(ROOT)) for drawing in drawings for stage in drawing.stages
              for file in stage.sources("solutions")}  # fmt: skip
    return [f"benchmarks/experiments/{program}", "benchmarks/models", "benchmarks/peers", *sorted(stages)]


def changes(gallery: Path = GALLERY) -> list[str]:
    """A line for each program and commit from which there are figures, if code that they depend on differs now."""
    names: defaultdict[tuple[str, str, bool], list[str]] = defaultdict(list)
    for name, one in shown(gallery, in_gallery=True):
        for program in one.programs:
            for commit in one.commits:
                names[program, commit, name.endswith(f".{PUBLISHED}")].append(f"{name}{one.file.suffix}")
    lines = []
    for (program, commit, published), files in names.items():
        simulated = ["common/ddp/cluster", str(CALIBRATION.relative_to(ROOT))] if published else []
        differing = _differing(commit, [*sources(program), *simulated])
        if differing:
            lines.append(f"{', '.join(sorted(files))}: made from {commit}, since then changed: {', '.join(differing)}")
    return lines


def _differing(commit: str, paths: list[str]) -> list[str]:
    """Those of these files and folders in which something differs."""
    command = ["git", "diff", "--name-only", commit, "--", *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return ["whatever it was: git does not know that commit"]
    files = [Path(line) for line in done.stdout.splitlines()]
    return [path for path in paths if any(file.is_relative_to(path) for file in files)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.report.gallery", description=__doc__.splitlines()[0])
    parser.add_argument("--changes", action="store_true", help="copy nothing, say what is of older code")
    options = parser.parse_args()
    try:
        if options.changes:
            print("\n".join(changes()))
            return 0
        files = refresh(OUT, GALLERY)
    except Unusable as error:
        print(error, file=sys.stderr)
        return 1
    for file in files:
        print(f"wrote {file.relative_to(ROOT)}")
    if not files:
        print("There is nothing to take over. First: make figures IMPL=solutions", file=sys.stderr)
    return 0 if files else 1


if __name__ == "__main__":
    sys.exit(main())
