"""Takes the solutions' figures and tables, quick ones and those at published scale, over into figures/gallery, for
README, handouts and the reference writeup.

Run it after `make figures IMPL=solutions` on a quiet machine, from a commit without changes. The solutions' files in
figures/out replace those of the same name in the gallery; the rest stays. All tables are in one file, tables.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from figures.lib.tables import in_lines
from tools.report.writeup_results import KINDS, TABLES, Origin, Shown, Unusable, find, tables_of
from tools.setup.toolchain import ROOT

OUT, GALLERY = ROOT / "figures" / "out", ROOT / "figures" / "gallery"
PRESET = "quick"


def shown() -> Iterator[tuple[str, Shown]]:
    """The solutions' figures and tables in OUT, with their names in the gallery. Raises Unusable for one that does not
    say where its numbers come from, or has them from files that no commit has."""
    origin = Origin(OUT, "solutions", PRESET, in_gallery=False)
    for kind, ending in KINDS.items():
        for name in origin.names(ending):
            found = find(kind, name, origin)
            for commit in found.commits:
                if commit == "unknown" or commit.endswith("-dirty"):
                    raise Unusable(f"{found.file.name} was made from commit {commit}: commit first, and draw it again")
            yield name, found


def refresh() -> list[Path]:
    """Copies figures as PNG, tables into one file; returns the gallery's new files."""
    found = list(shown())
    tables = {name: json.loads(one.file.read_text(encoding="utf-8")) for name, one in found if one.table}
    files = [Path(shutil.copyfile(one.file, GALLERY / f"{name}.png")) for name, one in found if not one.table]
    if tables:
        each = (f"{json.dumps(name)}: {in_lines(table).rstrip()}" for name, table
                in sorted({**tables_of(GALLERY), **tables}.items()))  # fmt: skip
        files.append(GALLERY / TABLES)
        files[-1].write_text("{\n" + ",\n".join(each) + "\n}\n", encoding="utf-8")
    return files


def main() -> int:
    argparse.ArgumentParser(prog="python -m tools.report.gallery", description=__doc__.splitlines()[0]).parse_args()
    try:
        files = refresh()
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
