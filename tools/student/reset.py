"""The stub of a stage again: make reset STAGE=02. Your file is kept beside it, as <name>.cpp.before-reset-1, or with
the next number that is free; nothing is ever overwritten. Other files of your own stay.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from tools.grading import released, stages
from tools.grading.scoring.results import replace_file
from tools.grading.stages import BadChoice, Stage
from tools.grading.terminal import ending_of
from tools.setup.checkout_lock import hold
from tools.setup.columns import columns, fold
from tools.setup.toolchain import BUILD_DIR, ROOT, LabError


def reset(stage: Stage, root: Path = ROOT) -> int:
    said = ""
    for name, stub in stubs_of(stage, root).items():
        path = root / "assignments" / stage.name / name
        there = path.read_text(errors="replace") if path.exists() else None
        if there == stub:
            continue
        said += f"{path.relative_to(root)} is the stub again; its README.md says what to do.\n"
        if there is not None:
            kept = path.rename(free_name(path)).relative_to(root)
            said += f"Yours is kept. To take it back: mv {kept} {path.relative_to(root)}\n"
        replace_file(path, stub.encode())
    print(fold(said.rstrip() or f"Nothing to do: assignments/{stage.name} has the stub already.", columns()))
    return 0


def free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.before-reset-{number}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def stubs_of(stage: Stage, root: Path) -> dict[str, str]:
    """By the files' names: what the release has, or, in the repository that it is made from, the newest stub."""
    prefix = f"assignments/{stage.name}/"
    if release := released.load(root):
        return {name.removeprefix(prefix): text for name, text in release.originals.items() if name.startswith(prefix)}
    source = f"{stage.name.partition('_')[2]}.cpp"
    for commit in released.git(root, "log", "--format=%H", "--", prefix + source).split():
        text = released.git(root, "show", f"{commit}:./{prefix}{source}")
        if text and stages.is_stub(text):
            return {source: text}
    raise LabError(f"No commit here has the stub {prefix}{source}. Clone the course's repository again.")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make reset", description=__doc__, allow_abbrev=False)
    parser.add_argument("--stage", default="", help="01 to 07, or a stage's full name")
    return ending_of("make reset", lambda: reset_as_asked(parser.parse_args().stage))


def reset_as_asked(number: str) -> int:
    if not number:
        raise BadChoice("Say which stage is to be the stub again: make reset STAGE=02")
    (stage,) = stages.find_stages(number)
    with hold(BUILD_DIR / "reset.lock", "make reset"):
        return reset(stage)


if __name__ == "__main__":
    sys.exit(main())
