"""Who may include whom, in C++ and in Python (whose table is in pyproject.toml, for import-linter)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from os.path import normpath
from pathlib import Path

import pytest

from tools.checking.context import Context
from tools.grading.stages import Stage, all_stages
from tools.setup.toolchain import ROOT

# The layers of common/ddp from the bottom up: each may include those before it.
LAYERS = (
    "/internal",
    "",
    "/models",
    "/meters",
    "/ranks",
    "/launching",
    "/backends",
    "/referee",
    "/timeline",
    "/virtual_time",
    "/cluster",
)
PUBLIC, COMMON, CONTRACTS, SUPPORT = "common/ddp/*", "common/ddp/**", "assignments/**", "tests/grader/*"
SHARED = ("benchmarks/measuring/*", "benchmarks/models/**", "benchmarks/baselines/*")
# A folder, and the files that its own may include besides one another; the first row that fits counts. {stage} is the
# name of a stage, the same one throughout a row, and {given} what its stage.json says that it is given; a folder
# without a row belongs to the one above it.
MAY_INCLUDE: dict[str, Iterable[str]] = {
    **{f"common/ddp{layer}": [f"common/ddp{below}/*" for below in LAYERS[:height]]
       for height, layer in enumerate(LAYERS)},
    "common/ddp/(plans|baselines)": [PUBLIC],
    "assignments/{stage}": [PUBLIC, "{given}"],
    "solutions/{stage}": [PUBLIC, "{given}", "assignments/{stage}/*"],
    "tests/variants/{stage}": [PUBLIC, "{given}", "assignments/{stage}/*", "tests/variants/*"],
    "tests/variants": [PUBLIC],
    "tests/{stage}": [COMMON, "assignments/{stage}/*", SUPPORT],
    "tests/grader": [COMMON],
    "tests/common": [COMMON, SUPPORT],
    "tests/benchmarks": [COMMON, CONTRACTS, SUPPORT, *SHARED, "tests/common/*"],
    "benchmarks/models": [PUBLIC, "common/ddp/(models|cluster)/*"],
    "benchmarks/baselines": [PUBLIC, "common/ddp/internal/*", CONTRACTS],
    "benchmarks/measuring": [COMMON, CONTRACTS, "benchmarks/models/**"],
    "(benchmarks/experiments|tests/several_machines)/[^/]+": [COMMON, CONTRACTS, *SHARED],
    "cmake": [],
}  # fmt: skip
INCLUDE_FOLDERS = ("common", "tests", "assignments", "benchmarks")  # CMakeLists.txt has them
# What students may use. Every stage can reach what these declare and what libddp.so has, so neither may have a ready
# answer to a stage.
PUBLIC_HEADERS = (
    "balanced_split.h",
    "batch_norm.h",
    "collectives.h",
    "flat_layout.h",
    "gradient_hooks.h",
    "gradient_synchronizer.h",
    "libtorch_versions.h",  # no stage needs it; variants, which build on each release of libtorch, do
    "network_model.h",
    "saved_shards.h",
    "storage.h",
)
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
                names = match.groupdict()
                names["given"] = given_to(names["stage"]) if "stage" in names else ""
                return folder, [pattern.format(**names) for pattern in allowed]
    return "", []


def given_to(stage: str) -> str:
    """The pattern of the headers that this stage is given besides the public ones."""
    found = {each.name: each.given for each in all_stages()}.get(stage, ())
    return f"common/ddp/({'|'.join(found)})/*"


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


def test_public_headers_are_these_and_stages_name_them() -> None:
    public = {path.name: path.read_text() for path in sorted((ROOT / "common" / "ddp").glob("*.h"))}
    assert [*public] == [*PUBLIC_HEADERS]
    texts = [
        path.read_text() for stage in all_stages() for path in sorted((ROOT / "assignments" / stage.name).glob("*"))
    ]
    named = {name for name in public if any(re.search(rf"\b{name}\b", text) for text in texts)}
    while more := {name for name in {*public} - named if any(f'"ddp/{name}"' in public[user] for user in named)}:
        named |= more
    assert named | {"libtorch_versions.h"} == {*public}, "no stage needs the others: they belong into a folder"


@pytest.mark.parametrize(
    "stage",
    [pytest.param(stage, marks=pytest.mark.builds(f"tests_{stage.name}")) for stage in all_stages()],
    ids=lambda stage: stage.name,
)
def test_ranks_load_no_ready_answers_but_those_that_their_stage_is_given(stage: Stage, context: Context) -> None:
    _, text = context.run(["ldd", str(context.build_dir / "bin" / f"tests_{stage.name}")], context.folder() / "ldd.log")
    assert set(re.findall(r"libddp_(\w+)\.so =>", text)) - {"testing"} == {*stage.given}


def test_python_keeps_its_contracts() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
