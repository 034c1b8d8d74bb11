"""The messages that docs/troubleshooting.md explains are those that the tools and programs print."""

from __future__ import annotations

import functools
import re
import unittest

from tests.tools.texts_test import Text
from tools.setup.toolchain import ROOT

PAGE = Text(ROOT / "docs" / "troubleshooting.md")
SECTIONS = {
    "Setting up",
    "Compiling",
    "Grading",
    "Ranks that hang, die or stop",
    "UNTRUSTED=1",
    "Figures and experiments",
    "The writeup",
}
FOLDERS = ("tools", "common", "tests/support", "benchmarks", "assignments")
OF_LIBTORCH = {"Index out of range", "tensor does not have a device"}
VARIES = "…"
SHORTEST = 3  # letters of a piece that is looked for
_MESSAGE = re.compile(r"\*\*`([^`]+)`\*\*")
_GAP = re.compile(r'"\s*(?:\+\s*)?f?"|\\n')  # between the parts of a literal


@functools.cache
def printed() -> str:
    """All sources, with literals in several parts put together."""
    files = [ROOT / "Makefile"]
    for folder in FOLDERS:
        files += sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sh", ".h", ".cpp"))
    return _squeeze(_GAP.sub("", "\n".join(file.read_text(encoding="utf-8") for file in files)))


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def missing_parts(message: str) -> list[str]:
    """The parts of a message that no source has."""
    parts = [part.strip(" .,:;") for part in _squeeze(message).split(VARIES)]
    return [part for part in parts if len(re.findall("[A-Za-z]", part)) >= SHORTEST and part not in printed()]


class Troubleshooting(unittest.TestCase):
    def test_each_message_is_still_printed(self) -> None:
        messages = _MESSAGE.findall(PAGE.content)
        self.assertGreater(len(messages), 40)
        for message in set(messages) - OF_LIBTORCH:
            self.assertEqual(missing_parts(message), [], message)

    def test_one_that_nobody_prints_is_found(self) -> None:
        self.assertEqual(missing_parts("the disk is full at …. Free some cheese"), ["Free some cheese"])

    def test_every_message_is_followed_by_what_to_do(self) -> None:
        for paragraph in re.split(r"\n\n+", PAGE.content):
            if paragraph.startswith("**"):
                self.assertGreater(len(_MESSAGE.sub("", paragraph).split()), 5, paragraph)

    def test_each_kind_of_trouble_has_a_section(self) -> None:
        self.assertLessEqual(SECTIONS, {title[3:] for title in PAGE.headings() if title.startswith("## ")})
