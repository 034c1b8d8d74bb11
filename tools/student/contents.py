"""What a student's folder holds beside the lab."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from tools.grading import released
from tools.grading.released import Release, is_students
from tools.setup.toolchain import RELEASE

PDF = "writeup/out/writeup.assignments.*.pdf"


@dataclass(frozen=True)
class Folder:
    """A student's folder, compared with what was handed out."""

    release: Release | None
    commit: str  # of a clone without a release.json
    handed_in: list[str]
    stubs: list[str]  # stages nobody has edited
    edited_elsewhere: list[str]  # the lab's files that differ, or are gone
    unknown: list[str]  # neither the lab's nor handed in
    known: bool = True  # whether it can be told what was edited


def look_at(root: Path) -> Folder:
    release = released.load(root)
    there = not_ignored(root)
    if release:
        lab, commit, changed = set(release.files), "", set(release.differing(root))
    else:
        lab, commit, changed = _from_git(root)
    own = [name for name in there if _is_handed_in(name, lab)]
    edited = [name for name in own if not release or name not in lab or name in changed]
    stages = {path.parent.name for path in (root / "assignments").glob("*/stage.json")}
    papers = [path.relative_to(root).as_posix() for path in root.glob(PDF)]
    return Folder(
        release,
        commit,
        sorted([*edited, *papers]),
        sorted(stages - {PurePosixPath(name).parent.name for name in edited if name.startswith("assignments/")}),
        sorted(name for name in changed if not is_students(name)),
        [name for name in there if name not in lab and name not in own] if lab else [],
        bool(lab),
    )


def _is_handed_in(name: str, lab: set[str]) -> bool:
    """Sources of a stage, headers of one's own among them, and all that the answers consist of."""
    path = PurePosixPath(name)
    return is_students(name) or (path.match("assignments/*/*.h") and name not in lab)


def _from_git(root: Path) -> tuple[set[str], str, set[str]]:
    """The files, the commit and the changed files of a clone; nothing without git."""
    asked = (["ls-files"], ["rev-parse", "HEAD"], ["diff", "--name-only", "--relative", "HEAD"])
    files, commit, changed = (git(root, *words).decode().splitlines() for words in asked)
    return set(files), "".join(commit), set(changed)


def git(root: Path, *arguments: str) -> bytes:
    """What git prints; nothing where it fails, or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        return b""
    return done.stdout if done.returncode == 0 else b""


def not_ignored(root: Path) -> list[str]:
    """All files but those that .gitignore names. It knows of git's rules what this lab's file uses: /from/the/top/, and
    name/ anywhere."""
    rules = root / ".gitignore"
    patterns = [line.rstrip("/") for line in rules.read_text().split()] if rules.exists() else []
    patterns += [".git", f"/{RELEASE}"]
    found, folders = [], [root]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            name = path.relative_to(root).as_posix()
            if any(_ignores(pattern, name) for pattern in patterns):
                continue
            if path.is_dir() and not path.is_symlink():
                folders.append(path)
            else:
                found.append(name)
    return sorted(found)


def _ignores(pattern: str, name: str) -> bool:
    return fnmatchcase(f"/{name}" if pattern.startswith("/") else PurePosixPath(name).name, pattern)
