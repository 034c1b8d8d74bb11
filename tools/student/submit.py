"""Packs what is handed in: handin/<name>.zip, with the edited files of the stages, the answers of the writeup, its PDF
if there is one, and the scores that `make test` has given each stage last. Names what is missing, and what was edited
elsewhere, which stays behind. The same content gives the same bytes.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path

from tools.grading import released
from tools.grading.exit_codes import ending_of
from tools.grading.scoring import kept_scores
from tools.grading.scoring.results import replace_file
from tools.grading.stages import all_stages
from tools.setup.columns import columns, fold, listed
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError
from tools.student import course
from tools.student.answers import unanswered
from tools.student.contents import Folder, look_at
from tools.student.scores import Scores, read_scores

SHOWN = 10
HAND_IN = "Hand in"  # the link of course.json that says where
NO_TIME = (1980, 1, 1, 0, 0, 0)  # in the archive: times differ from copy to copy


def submit(root: Path = ROOT, results: Path = BUILD_DIR / "grade" / kept_scores.FILE) -> int:
    about, folder = course.load(root), look_at(root)
    scores = read_scores(results)
    files = {name: (root / name).read_bytes() for name in folder.handed_in}
    if scores:
        files |= {"scores/results.json": results.read_bytes(), "scores/scorecard.txt": scores.card().encode()}
    if not folder.handed_in:
        raise LabError("There is nothing to hand in: no stage and no answer has been edited")
    files["handin.json"] = manifest(folder, scores, files)
    archive = root / "handin" / f"{about.name}.zip"
    archive.parent.mkdir(exist_ok=True)
    replace_file(archive, packed(files))
    print(fold(told(archive.relative_to(root), about, folder, scores, root), columns()))
    return 0


def manifest(folder: Folder, scores: Scores | None, files: dict[str, bytes]) -> bytes:
    """Which release, when it was graded, and the checksum of each file."""
    release = folder.release
    found = {
        "release": release.version if release else "",
        "commit": release.commit if release else folder.commit,
        "graded": scores.dates() if scores else {},
        "files": {name: released.digest(content) for name, content in sorted(files.items())},
        "edited_elsewhere": folder.edited_elsewhere,
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
        lines.append("Edited or missing, but not handed in; grading uses the course's own:")
        lines += listed(folder.edited_elsewhere, SHOWN)
    if folder.unknown:
        lines += ["Not handed in, since the lab does not know them:", *listed(folder.unknown, SHOWN)]
    if not folder.known:
        lines.append("What else was edited nobody knows: there is neither a release.json nor a git repository here.")
    if link := about.links.get(HAND_IN):
        lines.append(f"Hand it in at {link}")
    return "\n".join(lines)


def missing_stages(folder: Folder, scores: Scores | None) -> list[str]:
    untouched = ", ".join(stage.number for stage in all_stages() if stage.name in folder.stubs)
    lines = [f"stages as they were handed out: {untouched}"] if untouched else []
    if not scores:
        return [*lines, "no scores: make test writes them"]
    # A stub, too, where a run before `make reset` has scores.
    due = [stage for stage in all_stages() if stage.name not in folder.stubs or stage.name in scores.stages]
    return lines + [line for stage in due if (line := scores.gap(stage))]


def missing_answers(root: Path) -> list[str]:
    open_ones = unanswered(root)
    lines = [f"writeup: {', '.join(open_ones)} not answered"] if open_ones else []
    name = root / "writeup" / "answers" / "about.typ"
    nameless = name.exists() and '#let name = ""' in name.read_text(errors="replace")
    return lines + (["your name, in writeup/answers/about.typ"] if nameless else [])


if __name__ == "__main__":
    sys.exit(ending_of("make submit", submit))
