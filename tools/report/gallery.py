"""Copies the solutions' figures and tables, quick ones and those at published scale, to figures/gallery, for README,
handouts and the reference writeup.

Run it after `make figures IMPL=solutions` on a quiet machine. The solutions' files in figures/out replace those of the
same name in the gallery; the rest stays.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tools.setup.toolchain import ROOT

OUT, GALLERY = ROOT / "figures" / "out", ROOT / "figures" / "gallery"
ORIGINS = {".solutions.quick": "", ".solutions.published": ".published"}  # what the gallery's names have in their place


def refresh(out: Path, gallery: Path) -> list[Path]:
    """Copies figures as PNG, tables as JSON; returns the gallery's new files."""
    return [
        Path(shutil.copyfile(file, gallery / file.name.replace(origin, kept)))
        for origin, kept in ORIGINS.items()
        for file in sorted(file for ending in ("png", "json") for file in out.glob(f"*{origin}.{ending}"))
    ]


def main() -> int:
    files = refresh(OUT, GALLERY)
    for file in files:
        print(f"wrote {file.relative_to(ROOT)}")
    if not files:
        print("There is nothing to take over. First: make figures IMPL=solutions", file=sys.stderr)
    return 0 if files else 1


if __name__ == "__main__":
    sys.exit(main())
