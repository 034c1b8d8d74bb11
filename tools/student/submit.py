"""Packs what is handed in: handin/<name>.zip, with the edited files of the stages, the answers of the writeup, its PDF
if there is one, and the scores that `make test` has given each stage last. Names what is missing, and, where git knows,
what was edited elsewhere, which stays behind. The same content gives the same bytes.
"""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tools.grading import released
from tools.grading.compiling import building
from tools.grading.scoring import kept_scores
from tools.grading.scoring.results import replace_file, sums_of_tests
from tools.grading.stages import Stage, all_stages, is_stub
from tools.grading.terminal import ending_of
from tools.setup.columns import columns, fold, listed
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError
from tools.student import course

SHOWN = 10
PDF = "writeup/out/writeup.assignments.*.pdf"
HAND_IN = "Hand in"  # the link of course.json that says where
NO_TIME = (1980, 1, 1, 0, 0, 0)  # in the archive: times differ from copy to copy
ANSWER = re.compile(r'^#answer\("([^"]+)"\)\[(.*?)^\]', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Folder:
    """A student's folder, compared with what was handed out."""

    version: str  # of the release; empty in the repository that releases are made from
    commit: str
    handed_in: list[str]
    stubs: list[str]  # stages nobody has edited
    edited_elsewhere: list[str] | None  # the lab's files that differ or are gone, and new ones; None: nobody knows


def look_at(root: Path) -> Folder:
    release = released.load(root)
    originals = release.originals if release else {}
    files = {path.relative_to(root).as_posix(): path for pattern in ("assignments/*/*.*", "writeup/answers/**/*")
             for path in root.glob(pattern) if path.is_file()}  # fmt: skip
    own = {name for name, path in files.items() if released.is_students(name) and is_edited(path, originals.get(name))}
    begun = {PurePosixPath(name).parent.name for name in own if name.startswith("assignments/")}
    elsewhere = released.edited(root)
    return Folder(
        release.version if release else "",
        release.commit if release else released.handed_out(root),
        sorted(own | {path.relative_to(root).as_posix() for path in root.glob(PDF)}),
        [stage.name for stage in all_stages() if stage.name not in begun],
        elsewhere and [name for name in elsewhere if not released.is_students(name)],
    )


def is_edited(path: Path, original: str | None) -> bool:
    text = path.read_text(errors="replace")
    return text != original and not (path.suffix == ".cpp" and is_stub(text))


@dataclass(frozen=True)
class Scores:
    """What `make test` has kept: of each stage the scores of the last run that graded it as a whole."""

    tests: list[dict[str, Any]]
    stages: dict[str, dict[str, Any]]

    def gap(self, stage: Stage) -> str:
        """What these scores lack for a stage that was begun; empty: nothing."""
        found = self.stages.get(stage.name)
        if not found:
            return f"stage {stage.number}: never graded as a whole; make test grades all"
        if found["sources"] != building.digest(stage, "assignments"):
            return f"stage {stage.number}: edited since it was graded; make test grades it again"
        return "" if found["compiles"] else f"stage {stage.number} does not compile: make test STAGE={stage.number}"

    def dates(self) -> dict[str, str]:
        """When each stage was graded, by its name."""
        return {name: about["date"] for name, about in self.stages.items()}

    def line(self) -> str:
        graded = [stage for stage in all_stages() if stage.name in self.stages]
        some = "" if len(graded) == len(all_stages()) else f", of stage {numbers_of(graded)} alone"
        at = {date: [stage for stage in graded if self.stages[stage.name]["date"] == date]
              for date in sorted(self.dates().values())}  # fmt: skip
        when = " and ".join(date if len(at) == 1 else f"{date} ({numbers_of(own)})" for date, own in at.items())
        return f"{sums_of_tests(self.tests)}{some}, graded {when}"


def numbers_of(stages: list[Stage]) -> str:
    return ", ".join(stage.number for stage in stages)


def submit(root: Path = ROOT, results: Path = BUILD_DIR / "grade" / kept_scores.FILE) -> int:
    about, folder = course.load(root), look_at(root)
    tests, graded = kept_scores.load(results)
    scores = Scores(tests, graded) if tests else None
    files = {name: (root / name).read_bytes() for name in folder.handed_in}
    if scores:
        files["scores/results.json"] = results.read_bytes()
    if not folder.handed_in:
        raise LabError("There is nothing to hand in: no stage and no answer has been edited")
    files["handin.json"] = manifest(folder, scores)
    archive = root / "handin" / f"{about.name}.zip"
    archive.parent.mkdir(exist_ok=True)
    replace_file(archive, packed(files))
    print(fold(told(archive.relative_to(root), about, folder, scores, root), columns()))
    return 0


def manifest(folder: Folder, scores: Scores | None) -> bytes:
    """Which release, and when it was graded."""
    found = {
        "release": folder.version,
        "commit": folder.commit,
        "graded": scores.dates() if scores else {},
        "edited_elsewhere": folder.edited_elsewhere,  # null where git does not know
    }
    return json.dumps(found, indent=1).encode() + b"\n"


def packed(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, NO_TIME)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return content.getvalue()


def told(archive: Path, about: course.Course, folder: Folder, scores: Scores | None, root: Path) -> str:
    lines = [f"{archive}:", *(f"  {name}" for name in folder.handed_in)]
    lines.append(f"  scores: {scores.line()}" if scores else "  no scores")
    if missing := [*missing_stages(folder, scores), *missing_answers(root)]:
        lines += ["Still missing, or not as it could be:", *(f"  {line}" for line in missing)]
    if folder.edited_elsewhere:
        lines.append("Edited, missing or new, but not handed in; grading uses the course's own:")
        lines += listed(folder.edited_elsewhere, SHOWN)
    if link := about.links.get(HAND_IN):
        lines.append(f"Hand it in at {link}")
    return "\n".join(lines)


def missing_stages(folder: Folder, scores: Scores | None) -> list[str]:
    untouched = numbers_of([stage for stage in all_stages() if stage.name in folder.stubs])
    lines = [f"stages as they were handed out: {untouched}"] if untouched else []
    if not scores:
        return [*lines, "no scores: make test writes them"]
    # A stub, too, where a run before `make reset` has scores.
    due = [stage for stage in all_stages() if stage.name not in folder.stubs or stage.name in scores.stages]
    return lines + [line for stage in due if (line := scores.gap(stage))]


def missing_answers(root: Path) -> list[str]:
    """Those that are missing, empty, or have #todo in them; `make writeup` looks more closely, with Typst."""
    found = []
    for questions in sorted((root / "writeup" / "questions").glob("*.typ")):
        asked = re.findall(r'\bquestion\(\s*"([^"]+)"', questions.read_text(errors="replace"))
        answers = root / "writeup" / "answers" / questions.name
        texts = dict(ANSWER.findall(answers.read_text(errors="replace"))) if answers.exists() else {}
        found += [name for name in asked if not texts.get(name, "").strip() or "#todo" in texts[name]]
    lines = [f"writeup: {', '.join(found)} not answered"] if found else []
    name = root / "writeup" / "answers" / "about.typ"
    nameless = name.exists() and '#let name = ""' in name.read_text(errors="replace")
    return lines + (["your name, in writeup/answers/about.typ"] if nameless else [])


if __name__ == "__main__":
    sys.exit(ending_of("make submit", submit))
