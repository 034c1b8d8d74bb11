"""release.json, in the top folder of what was handed out: which release it is, and what students edit as it was then.
What else was edited since, git knows."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePath

from tools.setup.toolchain import RELEASE, ROOT, LabError


@dataclass(frozen=True)
class Release:
    name: str  # of the folder, such as ddp-lab
    version: str  # 2026-10-05.3f2a91c: the commit's day and name
    commit: str  # of the course's own repository
    date: str  # the commit's
    originals: dict[str, str]  # path: text, of what students edit

    def write(self, root: Path) -> None:
        (root / RELEASE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def load(root: Path = ROOT) -> Release | None:
    """The release that this folder has; None in the repository that releases are made from."""
    try:
        given = json.loads((root / RELEASE).read_text(encoding="utf-8"))
        return Release(**{each.name: given[each.name] for each in fields(Release)})  # a newer one may have more
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise LabError(f"{RELEASE} cannot be read ({error}). Restore it: git checkout -- {RELEASE}") from None


def is_students(name: str) -> bool:
    """Whether it is for students to edit: a stage's sources, headers of their own beside them, the answers of the
    writeup. The header that is called as its stage is the contract, and the lab's."""
    path = PurePath(name)
    if path.match("assignments/*/*.h"):
        return path.stem != path.parent.name.partition("_")[2]
    return path.match("assignments/*/*.cpp") or path.parts[:2] == ("writeup", "answers")


def handed_out(root: Path = ROOT) -> str:
    """The commit with which the course brought these files, which is the last one that has changed release.json; HEAD
    in the repository that releases are made from. Empty if git does not know."""
    if not (root / RELEASE).exists():
        return git(root, "rev-parse", "--verify", "--quiet", "HEAD").strip()
    return git(root, "log", "-1", "--format=%H", "--", RELEASE).strip()


def edited(root: Path = ROOT, with_new: bool = True) -> list[str] | None:
    """The files that are not as they were handed out, or are gone, or not yet known to git; None where git is not
    there."""
    commit = handed_out(root)
    if not commit:
        return None
    changed = git(root, "diff", "-z", "--name-only", "--no-renames", "--relative", commit)
    new = git(root, "ls-files", "-z", "--others", "--exclude-standard") if with_new else ""
    return sorted({*filter(None, (changed + new).split("\0"))})


def git(root: Path, *arguments: str) -> str:
    """What git prints; nothing where it fails, or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
