"""The primer's code is what tests/harness/primer_test.cpp compiles and runs, word for word."""

from __future__ import annotations

import re
import unittest

from tests.tools.texts_test import Text
from tools.setup.toolchain import ROOT

PRIMER = Text(ROOT / "docs" / "primer.md")
PROGRAM = ROOT / "tests" / "harness" / "primer_test.cpp"
_BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORDS = 1300  # two pages, the code included


class Primer(unittest.TestCase):
    def test_every_block_is_a_function_that_is_called(self) -> None:
        program = PROGRAM.read_text()
        blocks = _BLOCK.findall(PRIMER.content)
        self.assertGreater(len(blocks), 5)
        for block in blocks:
            (name,) = re.findall(r"^void (\w+)\(", block, re.MULTILINE)
            self.assertIn(f"\n{block}\n", program, "docs/primer.md quotes it differently")
            self.assertRegex(program, rf"\b{name}\((rank\.group\(\))?\);", f"nobody calls {name}()")

    def test_every_function_is_quoted(self) -> None:
        for name in re.findall(r"^void (\w+)\(", PROGRAM.read_text(), re.MULTILINE):
            self.assertIn(f"void {name}(", PRIMER.content)

    def test_length(self) -> None:
        self.assertLessEqual(len(PRIMER.content.split()), WORDS)
