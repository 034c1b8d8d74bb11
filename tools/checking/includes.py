"""Step of `make check`: who may use whom, by #include in C++ and by import in Python. A room is a folder."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from os.path import normpath
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tools.checking.context import Context, Outcome
from tools.setup.toolchain import ROOT, LabError

PUBLIC, SIMULATION, CLUSTER = "common/ddp", "common/ddp/simulation", "common/ddp/cluster"
# From the bottom up: each may use those before it.
LAYERS = (PUBLIC, "common/ddp/meters", "common/ddp/ranks", "common/ddp/backends", "common/ddp/shm",
          "common/ddp/referee", SIMULATION, CLUSTER)  # fmt: skip
GRADING = tuple(f"tools/grading/{room}" for room in ("scoring", "strangers", "running", "compiling", "other_ways"))
COMMON = (PUBLIC, "common/ddp/*")
CONTRACTS = "assignments/*"
SHARED = ("benchmarks/harness", "benchmarks/models", "benchmarks/peers")
STAGE_ALONE = "a stage uses its own contract and common/ddp/*.h; put what two stages share into common/ddp"
GIVEN_ALONE = "given code knows little of the lab; move what needs more to its users"

# A room, what it may use beside itself, and why, or what to do. The first row that fits counts; a folder without a row
# belongs to the one above it. {stage} is the name of a stage, the same one throughout a row.
ROOMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    *((room, LAYERS[:height], "move what both need down, or the user up") for height, room in enumerate(LAYERS)),
    ("common/ddp/models", (PUBLIC,), GIVEN_ALONE),
    ("common/ddp/peers", (PUBLIC,), GIVEN_ALONE),
    ("assignments/{stage}", (PUBLIC,), STAGE_ALONE),
    ("solutions/{stage}", (PUBLIC, "assignments/{stage}"), STAGE_ALONE),
    ("tests/variants/{stage}", (PUBLIC, "tests/variants", "assignments/{stage}"), STAGE_ALONE),
    ("tests/variants", (PUBLIC,), STAGE_ALONE),
    ("tests/{stage}", (*COMMON, "tests/support", "assignments/{stage}"), "move what two stages' tests need to support"),
    ("tests/support", COMMON, "it serves the tests of every stage, and knows none"),
    ("tests/harness", (*COMMON, "tests/support", "tools/setup"), "it tests common/, without stages or benchmarks"),
    ("tests/benchmarks", (*COMMON, CONTRACTS, "tests/support", "tests/harness", *SHARED, "figures/lib",
                          "tools/setup", "tools/report"), "it tests what experiments share, and their results"),
    ("tests/figures", ("figures/*", "tools/setup", "tools/grading", "tools/report"), "it tests figures and writeup"),
    ("tests/tools", ("tools/*", "tests/harness"), "it tests the tools alone, some of them on several machines"),
    ("benchmarks/models", (PUBLIC, SIMULATION, CLUSTER), GIVEN_ALONE),
    ("benchmarks/peers", (PUBLIC, CONTRACTS), GIVEN_ALONE),
    ("benchmarks/harness", (*COMMON, CONTRACTS, "benchmarks/models"), "it serves every experiment, and knows none"),
    ("benchmarks/experiments/*", (*COMMON, CONTRACTS, *SHARED), "move what two experiments need to harness"),
    ("figures/lib", (), "it serves every figure and table, and knows none"),
    ("figures/plots", ("figures/lib",), "a figure knows result files alone; move what others need to figures/lib"),
    ("figures/schemes", ("figures/lib",), "a scheme shows an example or a formula, and no result"),
    ("figures/tables", ("figures/lib", "figures/plots"), "a table knows result files alone"),
    ("tools/setup", (), "it runs first, where nothing is set up yet"),
    *((room, ("tools/setup", "tools/grading", *GRADING[:height]), "move what both need down, or the user up")
      for height, room in enumerate(GRADING)),
    ("tools/grading", ("tools/setup", *GRADING), "it must work without the other tools"),
    *((f"tools/{room}", ("tools/setup", "tools/grading", *GRADING), "move what both need to tools/grading")
      for room in ("checking", "report", "student")),
    ("tools/course", ("tools/setup", "tools/grading", *GRADING, "tools/student"), "students get none of it"),
)  # fmt: skip
# The table of the A/B is what `tools/report/ddp_diff.py` prints, and that has to work without the rest.
# Constants are fitted to the errors that figures and tables show.
EXCEPTIONS = {
    ("figures/tables/ddp_suite_ab.py", "tools/report/ddp_diff.py"),
    ("tools/report/calibrate.py", "figures/lib/predictions.py"),
    ("tools/report/calibrate.py", "figures/lib/suite_data.py"),
    ("tools/report/calibrate.py", "figures/lib/held_out.py"),
    *(
        ("tools/report/calibrate_machine.py", f"figures/lib/{name}.py")
        for name in ("held_out", "result_files", "suite_data", "training_times")
    ),
    ("tools/report/gallery.py", "figures/lib/tables.py"),
    *(("tools/report/measurements.py", f"figures/lib/{name}.py") for name in ("held_out", "training_times")),
    *(("tools/report/held_out.py", f"figures/lib/{name}.py") for name in ("held_out", "reference_data")),
}

FOLDERS = ("assignments", "benchmarks", "cmake", "common", "figures", "solutions", "tests", "tools")
INCLUDE_FOLDERS = ("common", "tests", "assignments", "benchmarks")  # CMakeLists.txt has them
_INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')


class Use(NamedTuple):
    file: str
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} includes {self.target}"


def check_includes(_: Context) -> Outcome:
    uses = uses_in(ROOT)
    failures = violations(uses)
    return Outcome(len(uses) - len(failures), failures)


def violations(uses: list[Use]) -> list[str]:
    """A line for each use that no row allows, and for each circle."""
    return [*filter(None, map(_complaint, uses)), *_circles(uses)]


def _complaint(use: Use) -> str:
    (room, allowed, reason), (target, _, _) = _row_of(use.file), _row_of(use.target)
    if not room:
        return f"{use}, but its own folder is no room yet: give it a row in tools/checking/includes.py"
    if target == room or any(fnmatchcase(target, name) for name in allowed) or (use.file, use.target) in EXCEPTIONS:
        return ""
    return f"{use}, which {room} may not: {reason}"


def _row_of(file: str) -> tuple[str, list[str], str]:
    """The row of the file's room, with its stage filled in; empty without one."""
    for folder in map(str, PurePosixPath(file).parents):
        for room, allowed, reason in ROOMS:
            pattern = room.replace("*", "[^/]+").replace("{stage}", r"(?P<stage>\d\d_\w+)")
            if match := re.fullmatch(pattern, folder):
                return folder, [name.format(**match.groupdict()) for name in allowed], reason
    return "", [], ""


def _circles(uses: list[Use]) -> Iterator[str]:
    """Units that need each other. x.h and x.cpp are one unit."""
    graph: dict[str, dict[str, Use]] = {}
    for use in uses:
        unit, needed = (str(PurePosixPath(path).with_suffix("")) for path in (use.file, use.target))
        if unit != needed:
            graph.setdefault(unit, {}).setdefault(needed, use)
    while True:
        try:
            return TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = error.args[1][::-1]
            use = graph[circle[0]].pop(circle[1])
            yield f"{use}, which closes the circle {' -> '.join(circle)}: move what both need into a third file"


def uses_in(tree: Path) -> list[Use]:
    """Every include or import of a file of the tree in another."""
    uses = []
    for path in sorted(path for folder in FOLDERS for path in (tree / folder).rglob("*.*")):
        read = {".h": _includes, ".cpp": _includes, ".py": _imports}.get(path.suffix)
        file = path.relative_to(tree).as_posix()
        for line, candidates in read(file, path.read_text(errors="replace")) if read else ():
            uses += [Use(file, line, name) for name in candidates if (tree / name).is_file()][:1]
    return list(dict.fromkeys(uses))


def _includes(file: str, text: str) -> Iterator[tuple[int, Iterable[str]]]:
    """Lines, each with the files that it may mean."""
    folders = (str(PurePosixPath(file).parent), *INCLUDE_FOLDERS)
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _INCLUDE.match(line):
            yield number, [normpath(f"{folder}/{match[1]}") for folder in folders]


def _imports(file: str, text: str) -> Iterator[tuple[int, Iterable[str]]]:
    try:
        nodes = ast.walk(ast.parse(text))
    except SyntaxError as error:
        raise LabError(f"{file}:{error.lineno} cannot be read: {error.msg}") from None
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            above = PurePosixPath(file).parents[node.level - 1] if node.level else PurePosixPath()
            module = above / (node.module or "").replace(".", "/")
            for alias in node.names:
                yield node.lineno, (f"{module / alias.name}.py", f"{module}.py")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, (f"{alias.name.replace('.', '/')}.py",)
