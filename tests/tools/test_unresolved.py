"""What programs lack after linking: found, unless a stage is to bring it."""

from __future__ import annotations

import subprocess
import unittest
from pathlib import Path
from unittest import mock

from tools.grading.compiling import building, unresolved
from tools.grading.compiling.building import Builder, Watch
from tools.setup.toolchain import LabError

CODE = """\
namespace at { int data(int); }
namespace ddp { int make_naive_ddp(int); int forgotten(int); }
int use() { return at::data(1) + ddp::make_naive_ddp(2) + ddp::forgotten(3); }
"""


class Unresolved(unittest.TestCase):
    def setUp(self) -> None:
        self.program, self.library = self.folder / "bin" / "program", self.folder / "libcode.so"
        self.program.parent.mkdir()
        self.compile(self.library, "-fPIC", "-shared", code=CODE)
        link = ["-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed", f"-Wl,-rpath,{self.folder}", str(self.library)]
        self.compile(self.program, *link, code="int main() {}")

    def compile(self, output: Path, *flags: str, code: str) -> None:
        source = output.with_suffix(".cpp")
        source.write_text(code)
        subprocess.run(["c++", str(source), "-o", str(output), *flags], check=True)

    def test_all_but_what_a_contract_declares_is_missing(self) -> None:
        self.assertEqual(
            sorted(unresolved.missing(self.program)),
            [f"at::data(int), for {self.library}", f"ddp::forgotten(int), for {self.library}"],
        )

    def test_a_program_that_lacks_nothing(self) -> None:
        self.assertEqual(unresolved.missing(Path("/bin/true")), [])

    def test_a_build_that_is_not_whole_has_failed(self) -> None:
        """It names what is missing, and does not blame the stage."""
        tools = mock.Mock(build_dir=str(self.folder), cmake="/bin/true", generator="Ninja")
        with Watch(visible=False) as watch, mock.patch.object(building, "edited_note", return_value=""):
            with self.assertRaisesRegex(LabError, r"(?s)not your stage's fault:.*at::data\(int\), for .*CXX="):
                Builder(tools)._build("common", ["program"], watch)
