"""release.json, in the top folder of what was handed out: which release it is, and each file's checksum. So a student's
folder needs no git to know what was edited."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePath

from tools.setup.toolchain import RELEASE, ROOT, LabError


@dataclass(frozen=True)
class Release:
    name: str  # of the folder, such as ddp-lab
    version: str  # 2026-10-05.3f2a91c: the commit's day and name
    commit: str
    date: str  # the commit's
    files: dict[str, str]  # path: sha256
    originals: dict[str, str]  # path: text, of what students edit
    updating_to: str = ""  # the version that an update was bringing when it was cut short

    def write(self, root: Path) -> None:
        fresh = root / f"{RELEASE}.new"
        fresh.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        fresh.replace(root / RELEASE)

    def differing(self, root: Path = ROOT) -> Iterator[str]:
        """The files that are not as they were handed out, or gone."""
        return (name for name, wanted in self.files.items() if checksum(root / name) != wanted)


def load(root: Path = ROOT, unfinished: bool = False) -> Release | None:
    """The release that this folder has; None in the repository that releases are made from. `unfinished`: also where
    an update was cut short, so that some files are of another release."""
    try:
        given = json.loads((root / RELEASE).read_text(encoding="utf-8"))
        found = Release(**{each.name: given[each.name] for each in fields(Release)})  # a newer one may have more
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise LabError(f"{RELEASE} cannot be read ({error}). Take it from the course's archive again.") from None
    if found.updating_to and not unfinished:
        raise LabError(
            f"An update to {found.updating_to} was interrupted, and some files are of the release before. "
            "Run it again, it goes on: make update FROM=<the course's archive>"
        )
    return found


def is_here() -> bool:
    return (ROOT / RELEASE).exists()


def is_students(name: str) -> bool:
    """Whether it is for students to edit: a stage's sources, the answers of the writeup."""
    path = PurePath(name)
    return path.match("assignments/*/*.cpp") or path.parts[:2] == ("writeup", "answers")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def checksum(path: Path) -> str:
    """Of a file's content; empty without a file."""
    try:
        return digest(path.read_bytes())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return ""
