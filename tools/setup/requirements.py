"""Parts of requirements.txt, the lock that uv writes of requirements.in: packages with all that they need, each with
its version and checksums, as `pip install --require-hashes -r` takes them.

    python3 -m tools.setup.requirements zensical >zensical.txt
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

from tools.setup.toolchain import REQUIREMENTS, LabError, how_to_restore

# A package's name, then a version, a marker and checksums, and who needs it. One may have several versions.
_ENTRY = re.compile(r"^([\w-]+)==(?:.*\\\n)+.*\n    # via (.+)$", re.MULTILINE)


def entries() -> dict[str, list[re.Match[str]]]:
    """By the package's name."""
    found: dict[str, list[re.Match[str]]] = {}
    for entry in _ENTRY.finditer(REQUIREMENTS.read_text()):
        found.setdefault(entry[1], []).append(entry)
    return found


def needed(names: Iterable[str], alone: bool = False) -> str:
    """The lines of these packages, and unless `alone` of those that they need."""
    known, wanted, to_do = entries(), {}, list(names)
    while to_do:
        name = to_do.pop()
        if name not in known:
            raise LabError(f"requirements.txt pins no {name}. Restore it: {how_to_restore('requirements.txt')}")
        if name not in wanted:
            wanted[name] = known[name]
            to_do += () if alone else [other for other, some in known.items() if any(name in _via(one) for one in some)]
    return "".join(f"{entry[0]}\n" for name in sorted(wanted) for entry in wanted[name])


def _via(entry: re.Match[str]) -> list[str]:
    return entry[2].split(", ")


if __name__ == "__main__":
    print(needed(sys.argv[1:]), end="")
