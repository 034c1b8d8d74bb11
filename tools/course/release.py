"""Writes what students get: the folder build/release/<name>, the archive <name>-<version>.tar.gz beside it, and a
commit on the branch `release`, which has nothing but releases.

A release is what git has at HEAD, without what .gitattributes marks `export-ignore`. What is in students/, and not for
this repository itself, goes to the top; release.json is added, and beside each stage's tests what their scenarios do at
least (tools/grading/running/minimum_activity.py). The same commit gives the same bytes.

Marks in a Markdown text are filled in. Each is a line of its own:

<!-- extension -->        from here ...
<!-- /extension -->       ... to here is not handed out by a course without the extension;

<!-- repository -->       ... to <!-- /repository --> is not handed out at all;

<!-- course -->           is replaced by the course's name, dates and links;

<!-- rule -->             by the course's own rule for assistants, if it has one.
"""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePath

from tools.grading.released import Release, is_students
from tools.grading.running import minimum_activity
from tools.grading.stages import all_stages
from tools.grading.terminal import ending_of
from tools.setup.columns import listed
from tools.setup.toolchain import BUILD_DIR, RELEASE, ROOT, LabError
from tools.student import course
from tools.student.course import Course

SHOWN = 10
CASES = ("sh", "tools/setup/python3.sh", "-m", "tools.setup.setup", "tools.course.cases")
BRANCH = "release"
STUDENTS = "students/"  # what is in it is at the top of the students' tree


def write_tree(destination: Path, commit: str = "HEAD", root: Path = ROOT, activity: bool = True) -> Release:
    """Writes the students' tree of a commit into `destination`, which must be new or empty. `activity`: with what the
    tests' scenarios do at least."""
    destination.mkdir(parents=True, exist_ok=True)
    if any(destination.iterdir()):
        raise LabError(f"{destination} is not empty. Name a new folder.")
    files = dict(_handed_out(root, commit))
    about = course.parse(files[course.FILE][0].decode()) if course.FILE in files else Course()
    if not about.extension:
        files = without_extension(files)
    files |= least_activity(files) if activity else {}
    for name, (content, mode) in files.items():
        path = destination / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            content = for_students(content.decode(), name, about).encode()
        path.write_bytes(content)
        path.chmod(mode)
    hash_, seconds = _git(root, "log", "-1", "--format=%H %ct", commit).decode().split()
    date = datetime.fromtimestamp(int(seconds), UTC).isoformat()
    originals = {name: (destination / name).read_text() for name in sorted(files) if is_students(name)}
    release = Release(about.name, f"{date[:10]}.{hash_[:7]}", hash_, date, originals)
    release.write(destination)
    return release


def for_students(text: str, name: str, about: Course) -> str:
    """The text as it is handed out; `name` is its file's, for messages."""
    rule = about.assistants.strip()
    rule = f"**This course's own rule, which goes before all below:** {rule}\n\n" if rule else ""
    filled_in = {"course": _course_passage(about), "rule": rule}
    text = re.sub(r"(?ms)^<!-- repository -->\n.*?^<!-- /repository -->\n", "", text)
    text = re.sub(r"(?m)^<!-- (course|rule) -->\n", lambda mark: filled_in[mark[1]], text)
    kept = r"\1" if about.extension else ""
    text = re.sub(r"(?ms)^<!-- extension -->\n(.*?)^<!-- /extension -->\n", kept, text)
    if left := re.search(r"<!-- /?(extension|repository)\b.*", text):
        line = text.count("\n", 0, left.start()) + 1
        raise LabError(f"{name}: the mark {left[0]} (about line {line}) has no other end; tools/course/release.py")
    return re.sub(r"\n{3,}", "\n\n", text)


def _course_passage(about: Course) -> str:
    """Name, dates and links; empty if course.json has none."""
    title = ", ".join(filter(None, (about.course, about.term)))
    dates = [f"| {stage} | {when:%A, %d %B %Y, %H:%M %Z} |" for stage, when in sorted(about.due.items())]
    table = ["| Stage | Due |", "|---|---|", *dates] if dates else []
    links = [f"- [{what}]({where})" for what, where in about.links.items()]
    passage = "\n\n".join(filter(None, (title and f"**{title}**", "\n".join(table), "\n".join(links))))
    return passage and f"{passage}\n"


def without_extension(files: dict[str, tuple[bytes, int]]) -> dict[str, tuple[bytes, int]]:
    """Those that belong to no stage of it: whose path has no part named as one, or as in its manifest's `also`."""
    manifests = {PurePath(name).parent.name: json.loads(content) for name, (content, _) in files.items()
                 if PurePath(name).match("assignments/*/stage.json")}  # fmt: skip
    beyond = {name for stage, fields in manifests.items() if fields.get("extension")
              for name in (stage, *fields.get("also", ()))}  # fmt: skip
    return {name: file for name, file in files.items()
            if beyond.isdisjoint(part.partition(".")[0] for part in PurePath(name).parts)}  # fmt: skip


def least_activity(files: Iterable[str]) -> dict[str, tuple[bytes, int]]:
    """What each scenario of the tests does at least, for the stages among these files whose tests are handed out."""
    folders = {str(PurePath(name).parent) for name in files}
    stages = [stage for stage in all_stages() if f"tests/{stage.name}" in folders]
    minimum_activity.found_out(functools.partial(minimum_activity.require, stages))
    known = {minimum_activity.packed(stage).relative_to(ROOT): minimum_activity.known(stage) for stage in stages}
    return {str(name): (file.read_bytes(), 0o644) for name, file in known.items()}


def add_cases(tree: Path) -> None:
    """Packs the page of `make cases`, for the stages that the tree has. Recording it needs what is built."""
    if not any((tree / "tests" / stage.name).is_dir() for stage in all_stages()):
        return
    if subprocess.run([*CASES, f"--into={tree}"], cwd=ROOT, check=False).returncode:
        raise LabError("The failures of make cases could not be recorded, so nothing was handed out; see above.")


def write_archive(tree: Path, release: Release, archive: Path) -> None:
    """`tree` as a .tar.gz with one folder: sorted, of the commit's time and of nobody, so that bytes repeat."""
    seconds = int(datetime.fromisoformat(release.date).timestamp())
    fresh = archive.with_name(f"{archive.name}.new")
    with (
        fresh.open("wb") as file,
        gzip.GzipFile("", "wb", mtime=seconds, fileobj=file) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in files_of(tree):
            entry = tarfile.TarInfo(f"{tree.name}/{name}")
            entry.size, entry.mtime = (tree / name).stat().st_size, seconds
            entry.mode = 0o755 if (tree / name).stat().st_mode & 0o100 else 0o644
            with (tree / name).open("rb") as content:
                tar.addfile(entry, content)
    fresh.replace(archive)


def files_of(tree: Path) -> list[str]:
    return sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_file())


def commit_tree(tree: Path, release: Release, root: Path) -> bool:
    """Puts `tree` on top of the last release on BRANCH. False if that one has the same files. It has an index of its
    own, so whatever is checked out or staged in `root` stays, and its author is the course."""
    folder, ref = _git(root, "rev-parse", "--absolute-git-dir").decode().strip(), f"refs/heads/{BRANCH}"
    author = {"NAME": release.name, "EMAIL": "release@localhost", "DATE": release.date}
    who = {f"GIT_{role}_{field}": text for role in ("AUTHOR", "COMMITTER") for field, text in author.items()}
    with tempfile.TemporaryDirectory() as place:
        environment = {**who, "GIT_DIR": folder, "GIT_WORK_TREE": str(tree), "GIT_INDEX_FILE": f"{place}/index"}

        def git(*arguments: str) -> str:
            return _git(tree, *arguments, environment=environment).decode().strip()

        git("-c", "core.autocrlf=false", "add", "--all", "--force", ".")
        files = git("write-tree")
        last = git("for-each-ref", "--format=%(objectname)", ref)
        if last and not git("diff", "--name-only", last, files, "--", ".", f":(exclude){RELEASE}"):
            return False
        commit = git("commit-tree", files, *(("-p", last) if last else ()), "-m", f"Release {release.version}")
        git("update-ref", "-m", "make release", ref, commit, last)
    return True


def _handed_out(root: Path, commit: str) -> Iterator[tuple[str, tuple[bytes, int]]]:
    """Each file's name, content and mode, as git archives them."""
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", "--format=tar", commit))) as tar:
        for entry in tar:
            if entry.isfile():
                name = entry.name.removeprefix(STUDENTS)
                yield name, (tar.extractfile(entry).read(), 0o755 if entry.mode & 0o100 else 0o644)


def _git(root: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
    try:
        env = {**os.environ, **(environment or {})}
        done = subprocess.run(["git", *arguments], cwd=root, env=env, capture_output=True, check=False)
    except FileNotFoundError:
        raise LabError("There is no git, which knows what belongs to the lab: install git") from None
    if done.returncode:
        raise LabError(f"git {arguments[0]} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def check_committed(root: Path = ROOT) -> list[str]:
    """Refuses if files differ from HEAD, which is what would be handed out. Returns those that git does not know."""
    lines = _git(root, "status", "--porcelain", "--untracked-files=all", ".").decode().splitlines()
    changed = [line[3:] for line in lines if not line.startswith("??")]
    if changed:
        names = "\n".join(listed(changed, SHOWN))
        raise LabError(f"A release is made of what is committed, and these files differ from it:\n{names}\n"
                       "Commit them, or put them aside: git stash")  # fmt: skip
    return [line[3:] for line in lines]


def release(root: Path = ROOT, folder: Path = BUILD_DIR / "release") -> int:
    unknown = check_committed(root)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="new-") as fresh:
        made = write_tree(Path(fresh) / "tree", root=root)
        add_cases(Path(fresh) / "tree")
        tree = folder / made.name
        shutil.rmtree(tree, ignore_errors=True)
        (Path(fresh) / "tree").rename(tree)
    archive = folder / f"{made.name}-{made.version}.tar.gz"
    write_archive(tree, made, archive)
    is_new = commit_tree(tree, made, root)
    if unknown:
        print("\n".join(["Not handed out, since git does not know them:", *listed(unknown, SHOWN)]))
    print(f"Release {made.version}, {len(files_of(tree))} files:\n  {tree}\n  {archive}")
    print(f"  the branch {BRANCH}, {'with a new commit' if is_new else 'as it was: no file has changed'}")
    return 0


if __name__ == "__main__":
    sys.exit(ending_of("make release", release))
