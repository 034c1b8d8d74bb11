"""The stub of a stage again: make reset STAGE=02. Your file is kept beside it, as <name>.cpp.before-reset-1, or with
the next number that is free; nothing is ever overwritten. So are further .cpp files of your own in the stage's folder,
which would be compiled with the stub. Headers stay.

The stub is the one of the course's archive (release.json), or the newest in git's history.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from tools.grading import released, stages
from tools.grading.exit_codes import ending_of
from tools.grading.scoring.results import replace_file
from tools.grading.stages import BadChoice, Stage
from tools.setup.checkout_lock import hold
from tools.setup.columns import columns, fold
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError
from tools.student.contents import git

KEPT = "{}.before-reset-{}"


def reset(stage: Stage, root: Path = ROOT) -> int:
    folder = root / "assignments" / stage.name
    stubs = stubs_of(stage, root)
    own = [path for path in sorted(folder.glob("*.cpp")) if stubs.get(path.name) != path.read_bytes()]
    if not own and all((folder / name).exists() for name in stubs):
        print(f"Nothing to do: assignments/{stage.name} has the stub already.")
        return 0
    kept = {path: path.rename(free_name(path)) for path in own}
    lines = [f"{path.relative_to(root)} is kept as {copy.name}, in the same folder." for path, copy in kept.items()]
    for name in sorted(name for name in stubs if not (folder / name).exists()):
        replace_file(folder / name, stubs[name])
        lines.append(f"assignments/{stage.name}/{name} is the stub again. Read on in README.md beside it.")
    lines += [
        f"To take yours back: mv {copy.relative_to(root)} {path.relative_to(root)}" for path, copy in kept.items()
    ]
    print(fold("\n".join(lines), columns()))
    return 0


def free_name(path: Path) -> Path:
    names = (path.with_name(KEPT.format(path.name, number)) for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def stubs_of(stage: Stage, root: Path) -> dict[str, bytes]:
    """What was handed out, by the files' names."""
    prefix = f"assignments/{stage.name}/"
    if release := released.load(root):
        originals = {name: text for name, text in release.originals.items() if name.startswith(prefix)}
        return {name.removeprefix(prefix): text.encode() for name, text in originals.items()}
    for commit in git(root, "log", "--format=%H", "--", f"{prefix}*.cpp").decode().split():
        listed = git(root, "ls-tree", "--name-only", commit, prefix).decode().splitlines()
        found = {Path(name).name: git(root, "show", f"{commit}:./{name}") for name in listed if name.endswith(".cpp")}
        if found and all(stages.is_stub(content.decode(errors="replace")) for content in found.values()):
            return found
    raise LabError(
        f"No commit here has the stub of stage {stage.number}, and there is no release.json. Take "
        f"{prefix} from the course's archive, or clone the course's repository again."
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make reset", description=__doc__, allow_abbrev=False)
    parser.add_argument("--stage", default="", help="01 to 05, or a stage's full name")
    return ending_of("make reset", lambda: reset_as_asked(parser.parse_args().stage))


def reset_as_asked(number: str) -> int:
    if not number:
        raise BadChoice("Say which stage is to be the stub again: make reset STAGE=02")
    (stage,) = stages.find_stages(number)
    with hold(BUILD_DIR / "reset.lock", "make reset"):
        return reset(stage)


if __name__ == "__main__":
    sys.exit(main())
