"""Tests of the include directions: the tree keeps them, and each kind of violation is found."""

from __future__ import annotations

import re
import tempfile
import unittest
from pathlib import Path

import pytest

from tools.checking import includes, pictures
from tools.setup.toolchain import ROOT, LabError


def found(files: dict[str, str]) -> list[str]:
    """The violations in a tree of these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return includes.violations(includes.uses_in(Path(folder)))


class ThisRepository(unittest.TestCase):
    def test_everything_here_is_allowed(self) -> None:
        self.assertEqual(includes.violations(includes.uses_in(ROOT)), [])

    def test_both_languages_are_looked_at(self) -> None:
        users = {use.file.split("/")[0] + Path(use.file).suffix for use in includes.uses_in(ROOT)}
        self.assertLessEqual({"common.cpp", "solutions.cpp", "tests.cpp", "tools.py", "figures.py"}, users)

    def test_every_room_and_exception_of_the_table_exists(self) -> None:
        for room, allowed, _ in includes.ROOMS:
            for name in (room, *allowed):
                pattern = name.replace("{stage}", "[0-9][0-9]_*")
                self.assertTrue(any(path.is_dir() for path in ROOT.glob(pattern)), name)
        uses = {(use.file, use.target) for use in includes.uses_in(ROOT)}
        self.assertLessEqual(includes.EXCEPTIONS, uses)

    def test_the_include_folders_are_those_of_the_build(self) -> None:
        text = "".join((ROOT / name).read_text() for name in ("CMakeLists.txt", "cmake/DdpLab.cmake"))
        for folder in includes.INCLUDE_FOLDERS:
            self.assertRegex(text, rf"target_include_directories\(\S+ (PUBLIC|PRIVATE) {folder}\b")


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_the_committed_pictures_are_of_this_tree(name: str) -> None:
    drawn = (pictures.FOLDER / f"{name}.svg").read_text()
    assert drawn == pictures.PICTURES[name](), "draw them anew: python3 -m tools.checking.pictures"
    assert not [
        path for path in re.findall(r">((?:common|tests|tools)/\S+\.(?:cpp|py))<", drawn) if not (ROOT / path).is_file()
    ]


def test_a_room_has_no_arrow_to_what_it_includes_by_way_of_another() -> None:
    uses = [includes.Use(f"{a}/x.py", 1, f"{b}/x.py") for a, b in ("ab", "bc", "ac", "dc")]
    assert pictures.needed_rooms(uses) == {"a": {"b"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert pictures.rows_of(pictures.needed_rooms(uses)) == [["c"], ["b", "d"], ["a"]]


class Directions(unittest.TestCase):
    def expect(self, user: str, used: str, text: str, allowed: bool = False) -> None:
        """`user` has `text` in its second line, which means `used`."""
        lines = found({user: f"\n{text}\n", used: ""})
        if allowed:
            self.assertEqual(lines, [])
            return
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith(f"{user}:2 includes {used}, which "), lines[0])
        self.assertRegex(lines[0], " may not: .+")

    def test_what_cpp_may_not_include(self) -> None:
        for user, used, text in (
            ("common/ddp/a.h", "common/ddp/meters/b.h", '#include "ddp/meters/b.h"'),
            ("common/ddp/ranks/a.h", "common/ddp/backends/b.h", '#include "ddp/backends/b.h"'),
            ("common/ddp/ranks/a.cpp", "common/ddp/backends/cuda/b.h", '#include "ddp/backends/cuda/b.h"'),
            ("common/ddp/referee/a.cpp", "common/ddp/simulation/b.h", "#  include <ddp/simulation/b.h>"),
            ("common/ddp/models/a.cpp", "common/ddp/ranks/b.h", '#include "../ranks/b.h"'),
            ("common/ddp/peers/a.cpp", "common/ddp/simulation/b.h", '#include "ddp/simulation/b.h"'),
            ("common/ddp/a.cpp", "tests/support/b.h", '#include "support/b.h"'),
            ("common/ddp/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
            ("common/ddp/referee/a.cpp", "benchmarks/harness/b.h", '#include "harness/b.h"'),
            ("assignments/02_y/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
            ("assignments/01_x/a.cpp", "common/ddp/ranks/b.h", '#include "ddp/ranks/b.h"'),
            ("solutions/02_y/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
            ("solutions/02_y/a.cpp", "solutions/01_x/b.h", '#include "../01_x/b.h"'),
            ("solutions/01_x/a.cpp", "tests/support/b.h", '#include "support/b.h"'),
            ("tests/variants/01_x/a.cpp", "common/ddp/referee/b.h", '#include "ddp/referee/b.h"'),
            ("tests/02_y/a.cpp", "tests/01_x/b.h", '#include "01_x/b.h"'),
            ("tests/02_y/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
            ("tests/02_y/a.cpp", "benchmarks/peers/b.h", '#include "peers/b.h"'),
            ("tests/support/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
            ("tests/harness/a.cpp", "benchmarks/models/b.h", '#include "models/b.h"'),
            ("tests/benchmarks/a.cpp", "benchmarks/experiments/e/b.h", '#include "experiments/e/b.h"'),
            ("benchmarks/harness/a.cpp", "benchmarks/experiments/e/b.h", '#include "experiments/e/b.h"'),
            ("benchmarks/harness/a.cpp", "benchmarks/peers/b.h", '#include "peers/b.h"'),
            ("benchmarks/peers/a.cpp", "benchmarks/harness/b.h", '#include "harness/b.h"'),
            ("benchmarks/experiments/e/a.cpp", "benchmarks/experiments/f/b.h", '#include "experiments/f/b.h"'),
            ("benchmarks/experiments/e/a.cpp", "tests/support/b.h", '#include "support/b.h"'),
        ):
            with self.subTest(user, used=used):
                self.expect(user, used, text)

    def test_what_cpp_may_include(self) -> None:
        for user, used, text in (
            ("common/ddp/referee/a.h", "common/ddp/ranks/b.h", '#include "ddp/ranks/b.h"'),
            ("common/ddp/backends/a.cpp", "common/ddp/backends/cuda/b.h", '#include "ddp/backends/cuda/b.h"'),
            ("solutions/01_x/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
            ("solutions/01_x/a.cpp", "solutions/01_x/b.h", '#include "b.h"'),
            ("tests/01_x/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
            ("benchmarks/experiments/e/a.cpp", "assignments/01_x/b.h", '#include "01_x/b.h"'),
            ("benchmarks/experiments/e/a.cpp", "benchmarks/experiments/e/b.h", '#include "experiments/e/b.h"'),
            ("common/ddp/a.cpp", "tests/support/b.h", '// #include "support/b.h"'),
        ):
            with self.subTest(user, used=used):
                self.expect(user, used, text, allowed=True)

    def test_what_python_may_not_import(self) -> None:
        for user, used, text in (
            ("tools/setup/a.py", "tools/grading/b.py", "from tools.grading import b"),
            ("tools/grading/a.py", "tools/report/b.py", "import tools.report.b"),
            ("tools/report/a.py", "tools/checking/b.py", "from tools.checking.b import c"),
            ("tools/checking/a.py", "tools/report/b.py", "if True: from ..report import b"),
            ("tools/report/a.py", "figures/lib/b.py", "from figures.lib import b"),
            ("figures/plots/a.py", "figures/tables/b.py", "from figures.tables import b"),
            ("figures/lib/a.py", "figures/plots/b.py", "from figures.plots import b"),
            ("figures/tables/a.py", "tools/report/ddp_diff.py", "from tools.report import ddp_diff"),
            ("tools/grading/a.py", "tests/tools/b.py", "from tests.tools import b"),
        ):
            with self.subTest(user, used=used):
                self.expect(user, used, text)

    def test_the_exceptions_are_for_single_files(self) -> None:
        self.assertEqual(len(includes.EXCEPTIONS), 13)
        for user, used in includes.EXCEPTIONS:
            module = used.removesuffix(".py").replace("/", ".")
            self.expect(user, used, f"import {module}", allowed=True)

    def test_a_folder_must_be_a_room(self) -> None:
        (line,) = found({"benchmarks/new/a.cpp": '#include "ddp/b.h"\n', "common/ddp/b.h": ""})
        self.assertIn("benchmarks/new/a.cpp:1 includes common/ddp/b.h, but its own folder is no room yet", line)

    def test_a_module_that_cannot_be_read_is_named(self) -> None:
        with self.assertRaisesRegex(LabError, "tools/setup/a.py:2 cannot be read"):
            found({"tools/setup/a.py": "\ndef (\n"})


class Circles(unittest.TestCase):
    def test_header_and_source_are_one_unit(self) -> None:
        files = {
            "common/ddp/a.h": '#pragma once\n#include "ddp/b.h"\n',
            "common/ddp/b.h": "",
            "common/ddp/b.cpp": '#include "ddp/b.h"\n#include "ddp/a.h"\n',
        }
        (line,) = found(files)
        self.assertRegex(line, r"^common/ddp/(a\.h:2|b\.cpp:2) includes .*closes the circle")
        self.assertRegex(line, r"circle (common/ddp/[ab]) -> common/ddp/[ab] -> \1: ")

    def test_each_circle_is_reported(self) -> None:
        files = {}
        for room, a, b in (("setup", "a", "b"), ("grading", "c", "d")):
            files[f"tools/{room}/{a}.py"] = f"from tools.{room} import {b}\n"
            files[f"tools/{room}/{b}.py"] = f"from tools.{room}.{a} import x\n"
        self.assertEqual(len(found(files)), 2)
