"""Who may include whom, in C++ and in Python (whose table is in pyproject.toml, for import-linter)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from os.path import normpath
from pathlib import Path

import pytest

from tools.setup.toolchain import ROOT

# The layers of common/ddp from the bottom up: each may include those before it.
LAYERS = (
    "",
    "/meters",
    "/ranks",
    "/launching",
    "/backends",
    "/shm",
    "/referee",
    "/timeline",
    "/virtual_time",
    "/cluster",
)
PUBLIC, COMMON, CONTRACTS, SUPPORT = "common/ddp/*", "common/ddp/**", "assignments/**", "tests/grader/*"
SHARED = ("benchmarks/measuring/*", "benchmarks/models/**", "benchmarks/baselines/*")
# A folder, and the files that its own may include besides one another; the first row that fits counts. {stage} is the
# name of a stage, the same one throughout a row; a folder without a row belongs to the one above it.
MAY_INCLUDE: dict[str, Iterable[str]] = {
    **{f"common/ddp{layer}": [f"common/ddp{below}/*" for below in LAYERS[:height]]
       for height, layer in enumerate(LAYERS)},
    "common/ddp/(models|baselines)": [PUBLIC],
    "assignments/{stage}": [PUBLIC],
    "solutions/{stage}": [PUBLIC, "assignments/{stage}/*"],
    "tests/variants/{stage}": [PUBLIC, "assignments/{stage}/*", "tests/variants/*"],
    "tests/variants": [PUBLIC],
    "tests/{stage}": [COMMON, "assignments/{stage}/*", SUPPORT],
    "tests/grader": [COMMON],
    "tests/common": [COMMON, SUPPORT],
    "tests/benchmarks": [COMMON, CONTRACTS, SUPPORT, *SHARED, "tests/common/*"],
    "benchmarks/models": [PUBLIC, "common/ddp/cluster/*"],
    "benchmarks/baselines": [PUBLIC, CONTRACTS],
    "benchmarks/measuring": [COMMON, CONTRACTS, "benchmarks/models/**"],
    "(benchmarks/experiments|tests/several_machines)/[^/]+": [COMMON, CONTRACTS, *SHARED],
    "cmake": [],
}  # fmt: skip
INCLUDE_FOLDERS = ("common", "tests", "assignments", "benchmarks")  # CMakeLists.txt has them
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')


def violations(tree: Path) -> Iterator[str]:
    for top in sorted({row.partition("/")[0] for row in MAY_INCLUDE}):
        for path in sorted(path for path in (tree / top).rglob("*") if path.suffix in (".h", ".cpp")):
            file = path.relative_to(tree).as_posix()
            row, allowed = row_of(file)
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                used = target(tree, file, match[1]) if (match := INCLUDE.match(line)) else ""
                if used and row_of(used)[0] != row and not any(fits(used, pattern) for pattern in allowed):
                    yield f"{file}:{number} includes {used}, which {row or 'a folder without a row'} may not"


def row_of(file: str) -> tuple[str, list[str]]:
    """The innermost folder of the file that has a row, and what the row allows."""
    for folder in [parent.as_posix() for parent in Path(file).parents]:
        for row, allowed in MAY_INCLUDE.items():
            if match := re.fullmatch(row.replace("{stage}", r"(?P<stage>\d\d_\w+)"), folder):
                return folder, [pattern.format(**match.groupdict()) for pattern in allowed]
    return "", []


def target(tree: Path, file: str, name: str) -> str:
    """The file of the tree that this name means; empty: it means another one."""
    folders = (Path(file).parent.as_posix(), *INCLUDE_FOLDERS)
    return next((path for path in (normpath(f"{folder}/{name}") for folder in folders) if (tree / path).is_file()), "")


def fits(file: str, pattern: str) -> bool:
    return bool(re.fullmatch(pattern.replace("**", ".+").replace("*", "[^/]+"), file))


def test_cpp_keeps_the_table() -> None:
    assert [*violations(ROOT)] == []


@pytest.mark.parametrize(
    ("user", "used"),
    [
        ("common/ddp/a.h", "common/ddp/meters/b.h"),
        ("common/ddp/referee/a.cpp", "common/ddp/virtual_time/b.h"),
        ("common/ddp/a.cpp", "assignments/01_x/b.h"),
        ("assignments/02_y/a.cpp", "assignments/01_x/b.h"),
        ("solutions/02_y/a.cpp", "assignments/01_x/b.h"),
        ("tests/02_y/a.cpp", "tests/01_x/b.h"),
        ("tests/grader/a.cpp", "assignments/01_x/b.h"),
        ("benchmarks/experiments/e/a.cpp", "benchmarks/experiments/f/b.h"),
    ],
)
def test_what_is_not_allowed_in_cpp_is_found(user: str, used: str, tmp_path: Path) -> None:
    for name in (used, user):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f'#include "{used.partition("/")[2]}"\n')
    (found,) = violations(tmp_path)
    assert found.startswith(f"{user}:1 includes {used}, which ")


def test_python_keeps_its_contracts() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
