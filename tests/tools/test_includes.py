"""Tests of the include directions: the tree keeps them, and each kind of violation is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.checking import includes, pictures
from tools.setup.toolchain import ROOT, LabError


@pytest.fixture
def found(tmp_path: Path):
    def violations(files: dict[str, str]) -> list[str]:
        """In a tree of these files."""
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return includes.violations(includes.uses_in(tmp_path))

    return violations


def test_everything_here_is_allowed_and_the_table_is_of_this_tree() -> None:
    uses = includes.uses_in(ROOT)
    assert includes.violations(uses) == []
    users = {use.file.split("/")[0] + Path(use.file).suffix for use in uses}
    assert users >= {"common.cpp", "solutions.cpp", "tests.cpp", "tools.py", "figures.py"}
    assert includes.EXCEPTIONS <= {(use.file, use.target) for use in uses}
    for name in [name for room, allowed, _ in includes.ROOMS for name in (room, *allowed)]:
        assert any(path.is_dir() for path in ROOT.glob(name.replace("{stage}", "[0-9][0-9]_*"))), name
    text = "".join((ROOT / name).read_text() for name in ("CMakeLists.txt", "cmake/DdpLab.cmake"))
    for folder in includes.INCLUDE_FOLDERS:
        assert re.search(rf"target_include_directories\(\S+ (PUBLIC|PRIVATE) {folder}\b", text)


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_the_committed_pictures_are_of_this_tree(name: str) -> None:
    drawn = (pictures.FOLDER / f"{name}.svg").read_text()
    assert drawn == pictures.PICTURES[name](), "draw them anew: python3 -m tools.checking.pictures"
    assert all((ROOT / path).is_file() for path in re.findall(r">((?:common|tests|tools)/\S+\.(?:cpp|py))<", drawn))


def test_a_room_has_no_arrow_to_what_it_includes_by_way_of_another() -> None:
    uses = [includes.Use(f"{a}/x.py", 1, f"{b}/x.py") for a, b in ("ab", "bc", "ac", "dc")]
    assert pictures.needed_rooms(uses) == {"a": {"b"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert pictures.rows_of(pictures.needed_rooms(uses)) == [["c"], ["b", "d"], ["a"]]


@pytest.mark.parametrize(
    ("user", "used", "text"),
    [
        ("common/ddp/a.h", "common/ddp/meters/b.h", '#include "ddp/meters/b.h"'),
        ("common/ddp/ranks/a.cpp", "common/ddp/backends/cuda/b.h", '#include "ddp/backends/cuda/b.h"'),
        ("common/ddp/referee/a.cpp", "common/ddp/simulation/b.h", "#  include <ddp/simulation/b.h>"),
        ("common/ddp/models/a.cpp", "common/ddp/ranks/b.h", '#include "../ranks/b.h"'),
        ("common/ddp/a.cpp", "tests/support/b.h", '#include "support/b.h"'),
        ("common/ddp/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
        ("assignments/02_y/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
        ("assignments/01_x/a.cpp", "common/ddp/ranks/b.h", '#include "ddp/ranks/b.h"'),
        ("solutions/02_y/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
        ("solutions/02_y/a.cpp", "solutions/01_x/b.h", '#include "../01_x/b.h"'),
        ("tests/variants/01_x/a.cpp", "common/ddp/referee/b.h", '#include "ddp/referee/b.h"'),
        ("tests/02_y/a.cpp", "tests/01_x/b.h", '#include "01_x/b.h"'),
        ("tests/02_y/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
        ("tests/support/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
        ("benchmarks/peers/a.cpp", "benchmarks/harness/b.h", '#include "harness/b.h"'),
        ("benchmarks/experiments/e/a.cpp", "benchmarks/experiments/f/b.h", '#include "experiments/f/b.h"'),
        ("tools/setup/a.py", "tools/grading/b.py", "from tools.grading import b"),
        ("tools/grading/a.py", "tools/report/b.py", "import tools.report.b"),
        ("tools/report/a.py", "tools/checking/b.py", "from tools.checking.b import c"),
        ("tools/checking/a.py", "tools/report/b.py", "if True: from ..report import b"),
        ("figures/lib/a.py", "figures/plots/b.py", "from figures.plots import b"),
        ("tools/grading/a.py", "tests/tools/b.py", "from tests.tools import b"),
    ],
)
def test_what_is_not_allowed(user: str, used: str, text: str, found) -> None:
    (line,) = found({user: f"\n{text}\n", used: ""})
    assert line.startswith(f"{user}:2 includes {used}, which ")
    assert re.search(" may not: .+", line)


@pytest.mark.parametrize(
    ("user", "used", "text"),
    [
        ("common/ddp/referee/a.h", "common/ddp/ranks/b.h", '#include "ddp/ranks/b.h"'),
        ("common/ddp/backends/a.cpp", "common/ddp/backends/cuda/b.h", '#include "ddp/backends/cuda/b.h"'),
        ("solutions/01_x/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
        ("solutions/01_x/a.cpp", "solutions/01_x/b.h", '#include "b.h"'),
        ("benchmarks/experiments/e/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
        ("common/ddp/a.cpp", "tests/support/b.h", '// #include "support/b.h"'),
        ("tools/report/calibrate.py", "figures/lib/predictions.py", "from figures.lib import predictions"),  # alone
    ],
)
def test_what_is_allowed(user: str, used: str, text: str, found) -> None:
    assert found({user: f"\n{text}\n", used: ""}) == []


def test_a_folder_must_be_a_room(found) -> None:
    (line,) = found({"benchmarks/new/a.cpp": '#include "ddp/b.h"\n', "common/ddp/b.h": ""})
    assert "benchmarks/new/a.cpp:1 includes common/ddp/b.h, but its own folder is no room yet" in line


def test_a_module_that_cannot_be_read_is_named(found) -> None:
    with pytest.raises(LabError, match="tools/setup/a.py:2 cannot be read"):
        found({"tools/setup/a.py": "\ndef (\n"})


def test_each_circle_is_reported_and_header_and_source_are_one_unit(found) -> None:
    first, second = sorted(
        found(
            {
                "common/ddp/a.h": '#pragma once\n#include "ddp/b.h"\n',
                "common/ddp/b.h": "",
                "common/ddp/b.cpp": '#include "ddp/b.h"\n#include "ddp/a.h"\n',
                "tools/setup/a.py": "from tools.setup import b\n",
                "tools/setup/b.py": "from tools.setup.a import x\n",
            }
        )
    )
    assert re.search(r"^common/ddp/(a\.h:2|b\.cpp:2) includes .*closes the circle", first)
    assert re.search(r"circle (common/ddp/[ab]) -> common/ddp/[ab] -> \1: ", first)
    assert second.startswith("tools/setup/")
