"""Parts of requirements.txt, the lock that uv writes of requirements.in: packages with all that they need, each with
its version and checksums, as `pip install --require-hashes -r` takes them.

    python3 -m tools.setup.requirements zensical >zensical.txt
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from tools.setup.toolchain import REQUIREMENTS, pinned

# A package's name, then a version, a marker and checksums, and who needs it. One may have several versions.
_ENTRY = re.compile(r"^([\w-]+)==(?:.*\\\n)+.*\n    # via (.+)$", re.MULTILINE)


def entries() -> list[re.Match[str]]:
    return [*_ENTRY.finditer(REQUIREMENTS.read_text())]


def needed(names: Iterable[str], alone: bool = False) -> str:
    """The lines of these packages, and unless `alone` of those that they need."""
    wanted, more = set(), {pinned(name) and name for name in names}
    while more - wanted:
        wanted |= more
        more = set() if alone else {entry[1] for entry in entries() if wanted.intersection(entry[2].split(", "))}
    return "".join(f"{entry[0]}\n" for entry in entries() if entry[1] in wanted)


if __name__ == "__main__":
    print(needed(sys.argv[1:]), end="")
