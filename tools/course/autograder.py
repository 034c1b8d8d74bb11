"""Writes what grades submissions, here and elsewhere: make autograder.

build/autograder/autograder.zip    for Gradescope
build/autograder/source            what it holds
build/autograder/public            for a repository from which students' own CI jobs take it
build/autograder/grader            what `make class` grades with: the same as source, built on this machine

The lab in it is what students get (tools/course/release.py), with tools/course and the hidden tests
(tools/course/hidden.py). The solutions lie beside it for setup.sh, which has them graded and removes them: none is left
where submissions are graded. What is public has neither solutions nor hidden tests nor a seed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.course import hidden, release
from tools.grading.stages import all_stages
from tools.grading.terminal import ending_of
from tools.setup import toolchain
from tools.setup.checkout_lock import hold
from tools.setup.columns import columns, fold
from tools.setup.toolchain import BUILD_DIR, RELEASE, ROOT, LabError

FILES = Path(__file__).with_name("files")
READY = "ready"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make autograder", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--hidden", type=Path, default=hidden.FOLDER, help="the folder of hidden tests (hidden)")
    options = parser.parse_args()
    if options.hidden != hidden.FOLDER and not options.hidden.is_dir():
        raise LabError(f"HIDDEN={options.hidden} is not a folder")
    release.check_committed()
    folder = BUILD_DIR / "autograder"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="new-") as fresh:
        added = write_source(Path(fresh) / "source", hidden_tests=options.hidden)
        write_public(Path(fresh) / "public")
        for name in ("source", "public"):
            shutil.rmtree(folder / name, ignore_errors=True)
            (Path(fresh) / name).rename(folder / name)
    write_archive(folder)
    tests = f"{len(added)} files of hidden tests" if added else "no hidden tests"
    seed = "a secret seed" if hidden.seed(options.hidden) is not None else "a seed of its own for each run"
    print(fold(f"Autograder with {tests} and {seed}:", columns()))
    print(f"  Gradescope   {folder}/autograder.zip")
    print(f"  GitHub       {folder}/public, without these tests, seed and solutions: students may read it")
    return 0


def prepared() -> Path:
    """The lab that grades on this machine: made of what is committed, as Gradescope's is, and brought up to date."""
    release.check_committed()
    top = BUILD_DIR / "autograder"
    with hold(top / "lock", "preparing the grader"), tempfile.TemporaryDirectory(dir=top, prefix="new-") as fresh:
        write_source(Path(fresh))
        bring_up_to_date(top / "grader", Path(fresh), toolchain.load())
    return top / "grader" / "lab"


def version(lab: Path) -> str:
    """Changes with whatever can change a verdict; empty for one that was not made here."""
    note = lab.with_name(READY)
    return note.read_text() if note.exists() else ""


def bring_up_to_date(grader: Path, fresh: Path, tools: toolchain.Toolchain) -> None:
    """Only what differs is written, so that only that is built."""
    given = {"PYTHON": tools.python} if tools.python else {"LIBTORCH": tools.libtorch}
    given["CXX"] = tools.cxx
    files, note = release.files_of(fresh), grader / READY
    contents = {name: hashlib.sha256((fresh / name).read_bytes()).hexdigest() for name in files}
    wanted = hashlib.sha256(json.dumps([contents, given]).encode()).hexdigest()
    if version(grader / "lab") == wanted:
        return
    print("Preparing the grader: it builds the tests, and grades stubs and solutions (minutes, the first time) ...",
          flush=True)  # fmt: skip
    note.unlink(missing_ok=True)
    for name in files:
        place = grader / name
        if not (place.exists() and place.read_bytes() == (fresh / name).read_bytes()):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(fresh / name, place)
            os.utime(place)  # built again, whenever it was written
    for place in gone(grader, set(files)):
        place.unlink()
    if subprocess.run(["bash", str(grader / "setup.sh")], env={**os.environ, **given}, check=False).returncode:
        raise LabError("The grader could not be prepared; what is wrong is said above.")
    note.write_text(wanted)


def gone(grader: Path, files: set[str]) -> list[Path]:
    """What an earlier version had; but for what was built or installed."""
    kept = {"build", ".venv", "compile_commands.json", "__pycache__"}
    there = (path.relative_to(grader) for path in grader.rglob("*") if path.is_file())
    return [grader / path for path in there if str(path) not in files and kept.isdisjoint(path.parts)
            and path.name != "minimum_activity.json"]  # fmt: skip


def write_source(source: Path, commit: str = "HEAD", hidden_tests: Path = hidden.FOLDER) -> list[str]:
    """Writes what Gradescope unpacks to /autograder/source. Returns the hidden tests' files."""
    write_public(source, commit, activity=False)  # prepare.py finds it out
    for stage in all_stages():
        shutil.copytree(ROOT / "solutions" / stage.name, source / "solutions" / stage.name,
                        ignore=shutil.ignore_patterns("*.md"))  # fmt: skip
    _copy("run_autograder", source)
    return hidden.add_to(source / "lab", hidden_tests)


def write_public(folder: Path, commit: str = "HEAD", activity: bool = True) -> None:
    """The lab that grades, and what prepares it."""
    lab = folder / "lab"
    release.write_tree(lab, commit, activity=activity)
    (lab / RELEASE).unlink()  # it is nobody's to hand in
    shutil.copytree(ROOT / "tools/course", lab / "tools/course", ignore=shutil.ignore_patterns("__pycache__", "files"))
    _copy("setup.sh", folder)


def _copy(name: str, folder: Path) -> None:
    shutil.copyfile(FILES / name, folder / name)
    (folder / name).chmod(0o755)


def write_archive(folder: Path) -> None:
    shutil.make_archive(str(folder / "autograder"), "zip", folder / "source")


if __name__ == "__main__":
    sys.exit(ending_of("make autograder", main))
