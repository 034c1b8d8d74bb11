"""What of a submission is taken: each stage's .cpp, by its name and wherever it lies, files of one's own beside it, and
the answers of the writeup.

A submission is a folder, or the zip that `make submit` makes. Zips in a folder are looked into, those in zips are not.
Nothing is unpacked to where it asks to be: content is read, and written under the stage's own name. Links, devices and
what is too large are left alone. What is refused is said in a sentence; other files are passed over in silence, since
whoever hands in the whole lab has done nothing wrong.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import stat
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tools.grading.stages import Stage, all_stages

LARGEST_SOURCE = 256 << 10
MOST_BESIDE = 16
LARGEST_ARCHIVE = 64 << 20
MOST_ENTRIES = 5_000
DEEPEST = 12
LONGEST_NAME = 255  # bytes, of a file; an archive may have any
MOST_NOTES = 20
SHOWN = 5
ARCHIVE = ".zip"
LINK_OR_DEVICE = "it is a link or a device, and files are taken alone"
NOT_A_STUDENTS = {".git", ".venv", "build", "solutions", "__MACOSX"}  # folders
_MEMORY = 2 << 30  # for whoever reads archives: a header may announce any length


@dataclass(frozen=True)
class Found:
    """A file whose name is one that is looked for. `read` gives its content, if it may be read."""

    path: str  # in the submission
    size: int
    read: Callable[[], bytes]

    def rank(self, wanted: PurePosixPath) -> tuple[int, int, str]:
        """The lower, the more it is what was meant: first by its folder, then by its depth."""
        parts = PurePosixPath(self.path).parts
        matching = next((n for n in (3, 2) if parts[-n:] == wanted.parts[-n:]), 1)
        return 3 - matching, len(parts), self.path


@dataclass
class Submission:
    """`sources` and `answers` by the stage's name; `beside` by the stage's, then by their own: headers beside its
    source and, in a folder of the stage's name, more sources. `notes`: what was refused, or taken instead of another.
    """

    sources: dict[str, bytes] = field(default_factory=dict)
    beside: dict[str, dict[str, bytes]] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    entries: int = 0

    def refuse(self, path: str, why: str) -> None:
        self.notes.append(f"{printable_path(path)} was not taken: {why}.")

    def has_room(self) -> bool:
        """For one entry more."""
        self.entries += 1
        if self.entries == MOST_ENTRIES:
            self.notes.append(f"Only the first {MOST_ENTRIES} entries were looked at.")
        return self.entries < MOST_ENTRIES


@functools.cache
def wanted_files() -> dict[str, tuple[Stage, PurePosixPath]]:
    """By name: the file that a student edits in each stage, and the stage's answers."""
    wanted = {}
    for stage in all_stages():
        for source in stage.sources("assignments"):
            wanted[source.name] = stage, PurePosixPath("assignments", stage.name, source.name)
        wanted[f"{stage.name}.typ"] = stage, PurePosixPath("writeup/answers", f"{stage.name}.typ")
    return wanted


def collect(place: Path) -> Submission:
    """`place` may be a folder or a zip; what cannot be read at all is an empty submission with a note."""
    submission, wanted = Submission(), wanted_files()
    candidates: dict[str, list[Found]] = {}
    own: list[Found] = []
    with _little_memory():
        for found in _entries(place, submission):
            name = PurePosixPath(found.path).name
            if name in wanted:
                candidates.setdefault(name, []).append(found)
            elif is_taken(name):
                own.append(found)
    for name, (stage, meant) in wanted.items():
        some = sorted(candidates.get(name, []), key=lambda found: found.rank(meant))
        if some and (content := _content(some, submission)) is not None:
            target = submission.answers if name.endswith(".typ") else submission.sources
            target[stage.name] = content
            if target is submission.sources:
                beside = [other for other in own if _belongs(other, PurePosixPath(some[0].path).parent, stage)]
                files = {
                    PurePosixPath(other.path).name: _content([other], submission) for other in beside[:MOST_BESIDE]
                }
                submission.beside[stage.name] = {file: text for file, text in files.items() if text is not None}
    if len(submission.notes) > MOST_NOTES:
        left_out = len(submission.notes) - MOST_NOTES
        submission.notes[MOST_NOTES:] = [f"{left_out} more notes like these were left out."]
    return submission


@functools.cache
def _labs_headers() -> frozenset[str]:
    return frozenset(header.name for stage in all_stages() for header in stage.headers())


def is_taken(name: str) -> bool:
    """One that is looked for, or that may be one's own."""
    own = name.endswith((".h", ".cpp")) and name.isprintable() and len(name.encode()) <= LONGEST_NAME
    return name in wanted_files() or (own and name not in _labs_headers())


def _belongs(found: Found, folder: PurePosixPath, stage: Stage) -> bool:
    path = PurePosixPath(found.path)
    return path.parent == folder and (path.suffix == ".h" or folder.name == stage.name)


@contextlib.contextmanager
def _little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    hard = before[1]
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _content(some: list[Found], submission: Submission) -> bytes | None:
    first = some[0]
    if len(some) > 1:
        others = ", ".join(printable_path(found.path) for found in some[1 : SHOWN + 1])
        submission.notes.append(f"{printable_path(first.path)} was taken, and not {others}.")
    if first.size > LARGEST_SOURCE:
        return submission.refuse(first.path, f"it is larger than {LARGEST_SOURCE >> 10} KiB")
    try:
        content = first.read()
    except Exception as error:  # there is no list of what archives make zipfile raise
        submission.notes.append(printable_path(f"{first.path} cannot be read: {error}."))
        return None
    if len(content) > LARGEST_SOURCE:  # an archive may say another size than it has
        return submission.refuse(first.path, "it is larger than it says")
    return content


def printable_path(path: str) -> str:
    """A name that somebody else chose, as ASCII and of a bearable length."""
    text = path.encode("ascii", "backslashreplace").decode()
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= 120 else f"{text[:60]}...{text[-50:]}"


def _entries(place: Path, submission: Submission) -> Iterator[Found]:
    if place.is_dir():
        yield from _in_folder(place, "", submission)
    elif place.is_file():
        yield from _in_archive(place, place.name, submission)
    else:
        submission.notes.append(f"There is no {printable_path(place.name)}.")


def _in_folder(folder: Path, inside: str, submission: Submission) -> Iterator[Found]:
    if inside.count("/") > DEEPEST:
        return
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        for entry in sorted(listing, key=lambda each: each.name):
            path = f"{inside}{entry.name}"
            if not submission.has_room():
                return
            kind = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(kind.st_mode):
                if entry.name not in NOT_A_STUDENTS:
                    yield from _in_folder(Path(entry.path), f"{path}/", submission)
            elif not stat.S_ISREG(kind.st_mode):
                submission.refuse(path, LINK_OR_DEVICE)
            elif entry.name.lower().endswith(ARCHIVE):
                yield from _in_archive(Path(entry.path), path, submission)
            else:
                yield Found(path, kind.st_size, lambda file=Path(entry.path): _read_file(file))


def _read_file(path: Path) -> bytes:
    """Never through a link that has taken the file's place meanwhile."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(LARGEST_SOURCE + 1)


def _in_archive(archive: Path, inside: str, submission: Submission) -> Iterator[Found]:
    """Entries are read while the archive is open, and no more of each than may be taken."""
    if archive.stat().st_size > LARGEST_ARCHIVE:
        return submission.refuse(inside, f"archives may have {LARGEST_ARCHIVE >> 20} MiB")
    try:
        with zipfile.ZipFile(archive) as opened:
            for entry in opened.infolist():
                path, parts = f"{inside}/{entry.filename}", PurePosixPath(entry.filename).parts
                if entry.is_dir():
                    continue
                if not submission.has_room():
                    return
                if entry.filename.startswith(("/", "\\")) or ".." in parts:
                    submission.refuse(path, "its name leads out of the archive")
                elif stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
                    submission.refuse(path, LINK_OR_DEVICE)
                elif not NOT_A_STUDENTS.intersection(parts) and parts[-1:] and is_taken(parts[-1]):
                    content = _beginning(opened, entry) if entry.file_size <= LARGEST_SOURCE else b""
                    yield Found(path, entry.file_size, lambda content=content: content)
    except Exception as error:
        submission.refuse(inside, f"it is not a zip archive that can be read ({printable_path(str(error))})")


def _beginning(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    with archive.open(entry) as file:
        return file.read(LARGEST_SOURCE + 1)
