"""What students must not know: the folder `hidden/` at the top, which no release has.

hidden/0N_name/*.cpp    further graded tests, of the same form as those in tests/0N_name. In an autograder's tree they
                        lie beside them, as tests/0N_name/hidden.<name>.cpp, so that the build and the grader find them
hidden/seed             a number of nine digits or more: the inputs of every submission's tests. Without it each run
                        draws its own, and says it
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.grading.scoring.results import TestSpec
from tools.grading.stages import all_stages, parse_seed
from tools.setup.toolchain import ROOT, LabError

FOLDER = ROOT / "hidden"
PREFIX = "hidden."
LEAST_SEED = 10**8


def is_hidden(spec: TestSpec) -> bool:
    return Path(spec.file).name.startswith(PREFIX)


def seed(folder: Path = FOLDER) -> int | None:
    """The secret seed; None if there is none."""
    try:
        found = parse_seed((folder / "seed").read_text(encoding="ascii").strip())
    except FileNotFoundError:
        return None
    except (ValueError, LabError):
        raise LabError(f"{folder}/seed should hold one whole number, and nothing else") from None
    if found < LEAST_SEED:  # a shorter one is guessed, and hides in other numbers
        raise LabError(f"{folder}/seed should have nine digits or more")
    return found


def add_to(tree: Path, folder: Path = FOLDER) -> list[str]:
    """Puts the hidden tests beside the others of `tree`, and the seed where seed() finds it. Returns what it added."""
    names = {stage.name for stage in all_stages()}
    added = []
    for source in sorted(folder.glob("*/*")):
        stage = source.parent.name
        if stage not in names:
            raise LabError(f"{source}: there is no stage {stage}. There are: {', '.join(sorted(names))}")
        place = tree / "tests" / stage / f"{PREFIX}{source.name}"
        shutil.copyfile(source, place)
        added.append(str(place.relative_to(tree)))
    if seed(folder) is not None:
        (tree / "hidden").mkdir()
        shutil.copyfile(folder / "seed", tree / "hidden/seed")
    return added
