"""release.json, in the top folder of what was handed out: which release it is, and each file's checksum. A student's
folder needs no git to know what was edited."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.setup.toolchain import ROOT, LabError

FILE = "release.json"


@dataclass(frozen=True)
class Release:
    name: str  # of the folder, such as ddp-lab
    version: str  # 2026-10-05.3f2a91c: the commit's day and name
    commit: str
    date: str  # the commit's
    files: dict[str, str]  # path: sha256

    def write(self, root: Path) -> None:
        (root / FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def load(root: Path = ROOT) -> Release | None:
    """The release that this folder was made from; None in a clone of the instructor's repository."""
    try:
        return Release(**json.loads((root / FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise LabError(f"{FILE} cannot be read ({error}). Take it from the course's archive again.") from None


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
