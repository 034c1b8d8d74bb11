"""Takes an update of the lab: make update FROM=<the new archive, or the folder that it was unpacked into>.

The lab's files become the new release's. The student's stay: stages, answers, and what the lab never had. What the
student has edited of the lab's is saved first, as are all stages and answers, in backup/. Where an update changes a
stub that somebody has begun with, or a header, that is said. Run with the same release it repairs the lab's files.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath

from tools.grading import released
from tools.grading.exit_codes import ending_of
from tools.grading.released import Release, checksum, is_students
from tools.grading.scoring.results import replace_file
from tools.grading.stages import BadChoice
from tools.setup.checkout_lock import hold
from tools.setup.columns import columns, fold
from tools.setup.progress import undisturbed
from tools.setup.toolchain import BUILD_DIR, RELEASE, ROOT, LabError


@dataclass
class Plan:
    """What an update does to each file, by the content that is there, so that it can be begun again at any point."""

    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)  # the student's edits of the lab's files, which are replaced
    stubs: list[str] = field(default_factory=list)  # changed, and the student's own stays
    looked_at: list[str] = field(default_factory=list)  # headers and questions that have changed


def plan(old: Release, new: Release, root: Path) -> Plan:
    found = Plan()
    found.looked_at = [
        name for name in new.files if is_read(name) and old.files.get(name, "") not in ("", new.files[name])
    ]
    for name in new.files | old.files:
        wanted, before = new.files.get(name, ""), old.files.get(name, "")
        there = checksum(root / name)
        if there == wanted:
            continue
        edited = there not in ("", before)
        if edited and is_students(name):
            found.stubs += [name] if wanted not in ("", before) else []
            continue
        found.saved += [name] if edited else []
        (found.written if wanted else found.removed).append(name)
    return found


def is_read(name: str) -> bool:
    """Whether a student should hear of a change: a contract, a stage's questions."""
    path = PurePosixPath(name)
    return path.match("assignments/*/*.h") or path.match("writeup/questions/*.typ")


def update(source: Path, root: Path = ROOT) -> int:
    old = released.load(root, unfinished=True)
    if not old:
        raise LabError("This is a clone of the repository that releases are made from: git pull brings its updates")
    with opened(source, root) as (folder, new):
        check_fits(old, new, source)
        doing = plan(old, new, root)
        if (old.version, old.updating_to) == (new.version, "") and not (doing.written or doing.removed):
            print(f"Release {new.version} is here already, and all of the lab's files are as it has them.")
            return 0
        backup = backup_folder(root, new.version, go_on=bool(old.updating_to))
        save(old, doing, root, backup)
        with undisturbed():  # until the files are in place
            replace(old, updating_to=new.version).write(root)
            for name in doing.written:
                copy_atomically(folder / name, root / name)
            for name in doing.removed:
                remove(root, name)
            new.write(root)
        print(fold(told(old, new, doing, folder, root, backup), columns()))
    return 0


def copy_atomically(source: Path, target: Path) -> None:
    """With a new time: a build looks at times alone, and a release's files may be older than what was built."""
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, source.read_bytes())
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def backup_folder(root: Path, version: str, go_on: bool) -> Path:
    """A new folder for what an update replaces; the last one if that update goes on."""
    top = root / "backup"
    names = [f"{version}.{number}" if number > 1 else version for number in range(1, 10_000)]
    free = next(number for number, name in enumerate(names) if not (top / name).exists())
    return top / names[free - 1 if go_on and free else free]


@contextmanager
def opened(source: Path, root: Path) -> Iterator[tuple[Path, Release]]:
    """The folder of a new release, unpacked beside the lab if it is an archive, and proved to be whole."""
    if source.is_dir():
        yield source, whole(source, source)
        return
    with tempfile.TemporaryDirectory(dir=root, prefix=".update-") as folder:
        try:
            with tarfile.open(source) as tar:
                unpack(tar, Path(folder))
        except FileNotFoundError:
            raise BadChoice(f"FROM={source}: there is no such file") from None
        except (tarfile.TarError, EOFError, OSError) as error:
            raise LabError(f"FROM={source} is no whole archive ({error}). Download it again.") from None
        tops = [path for path in Path(folder).iterdir() if path.is_dir()]
        if len(tops) != 1:
            raise LabError(f"FROM={source} is not an archive of this course: it should have one folder")
        yield tops[0], whole(tops[0], source)


def unpack(tar: tarfile.TarFile, folder: Path) -> None:
    """Plain files alone, and none outside of `folder`."""
    for entry in tar:
        path = PurePosixPath(entry.name)
        if entry.isfile() and not path.is_absolute() and ".." not in path.parts:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(tar.extractfile(entry).read())
            (folder / path).chmod(0o755 if entry.mode & 0o100 else 0o644)


def whole(folder: Path, source: Path) -> Release:
    new = released.load(folder)
    if not new:
        raise LabError(f"FROM={source} has no {RELEASE}, so it is not what the course hands out")
    if broken := list(new.differing(folder)):
        raise LabError(f"FROM={source} is not as it was handed out: {broken[0]} differs or is missing. Get it again.")
    return new


def check_fits(old: Release, new: Release, source: Path) -> None:
    if old.name != new.name:
        raise LabError(f"FROM={source} is a release of {new.name}, and this is {old.name}")
    if datetime.fromisoformat(new.date) < datetime.fromisoformat(old.date):
        raise LabError(f"FROM={source} is {new.version}, which is older than what is here, {old.version}")
    if old.updating_to not in ("", new.version):
        raise LabError(f"An update to {old.updating_to} was interrupted. Finish that one first, with its archive.")


def save(old: Release, doing: Plan, root: Path, backup: Path) -> None:
    """Copies what is the student's, and headers as they were, into `backup`; what an interrupted update has saved
    stays."""
    own = [path.relative_to(root).as_posix() for pattern in ("assignments/*/*", "writeup/answers/**/*")
           for path in sorted(root.glob(pattern)) if path.is_file()]  # fmt: skip
    own = [name for name in own if is_students(name) or name not in old.files]
    for name in dict.fromkeys([*own, *doing.saved, *doing.looked_at]):
        if (root / name).is_file() and not (backup / name).exists():
            copy_atomically(root / name, backup / name)


def remove(root: Path, name: str) -> None:
    """The file, and the folders that it leaves empty."""
    path = root / name
    path.unlink(missing_ok=True)
    for folder in path.parents:
        if folder == root or any(folder.iterdir()):
            return
        folder.rmdir()


def told(old: Release, new: Release, doing: Plan, folder: Path, root: Path, backup: Path) -> str:
    where = backup.relative_to(root)
    lines = [f"Release {new.version} is here: {len(doing.written)} files written, {len(doing.removed)} removed."]
    if old.version != new.version:
        lines[0] = f"From {old.version} to {new.version}: {lines[0].partition(': ')[2]}"
    lines.append(f"Your stages and answers are as they were; copies of them are in {where}.")
    if doing.saved:
        lines.append(f"What you had edited of the lab's own files was replaced, and is kept in {where}:")
        lines += [f"  {name}" for name in doing.saved]
    for name in doing.stubs:
        lines += stub_changed(name, old, folder, where, root)
    for name in doing.looked_at:
        lines.append(f"{name} has changed. What is new in it:\n  diff -u {where / name} {name}")
    return "\n".join(lines)


def stub_changed(name: str, old: Release, folder: Path, where: Path, root: Path) -> list[str]:
    """Puts the old and the new stub beside the copy of the student's file, and says how to see the difference."""
    before, now = (where / f"{name}.{word}" for word in ("stub-before", "stub-now"))
    (root / before).write_text(old.originals.get(name, ""), encoding="utf-8")
    copy_atomically(folder / name, root / now)
    lines = [f"{name} is yours and stays, but what it began from has changed. Take over what you need:"]
    return [*lines, f"  diff -u {before} {now}"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make update", description=__doc__, allow_abbrev=False)
    parser.add_argument("--from", dest="source", default="", help="the course's new archive, or its folder")
    return ending_of("make update", lambda: update_as_asked(parser.parse_args()))


def update_as_asked(options: argparse.Namespace) -> int:
    if not options.source:
        raise BadChoice("Say what to take: make update FROM=<the course's new archive>")
    with hold(BUILD_DIR / "grade" / "lock", "make update"):
        return update(Path(options.source).expanduser())


if __name__ == "__main__":
    sys.exit(main())
