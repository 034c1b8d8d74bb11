"""What every text is held to: links resolve, commands are known to the table; and the form of the handouts."""

from __future__ import annotations

import re
import unittest

from tests.tools.test_hints import first_hints
from tests.tools.text_commands_test import CLASSES, NotRun, class_of, commands
from tests.tools.texts_test import Text, all_texts
from tools.grading.stages import Stage, all_stages
from tools.setup.toolchain import ROOT

SECTIONS = [
    "Goals",
    "Hours",
    "The idea",
    "A worked miniature",
    "Interface",
    "Cost model",
    "What is graded",
    "How to work",
    "Pitfalls",
    "Questions for the writeup",
    "Readings",
]
LONGEST = 1500  # words of a handout
PICTURES = 2


def broken_links(text: Text) -> list[str]:
    broken = []
    for link in text.links():
        path, _, anchor = link.partition("#")
        target = (text.file.parent / path).resolve() if path else text.file
        if re.match(r"https?://|mailto:", link):
            continue
        if not target.exists():
            broken.append(f"{link}: no such file")
        elif anchor and anchor not in (text if target == text.file else Text(target)).anchors():
            broken.append(f"{link}: no such heading")
    return broken


class Links(unittest.TestCase):
    def test_all_resolve(self) -> None:
        self.assertGreater(sum(len(text.links()) for text in all_texts()), 50)
        for text in all_texts():
            self.assertEqual(broken_links(text), [], text.name)

    def test_a_broken_one_is_found(self) -> None:
        self.assertEqual(
            broken_links(_text("[a](no.md) [b](#none) [c](https://x.org)")),
            ["no.md: no such file", "#none: no such heading"],
        )
        self.assertEqual(broken_links(_text("# A name, *here*\n[b](#a-name-here)")), [])


class Commands(unittest.TestCase):
    def test_each_is_in_the_table(self) -> None:
        unknown = [f"{command}   in {files[0]}" for command, files in commands().items() if class_of(command) is None]
        self.assertEqual(unknown, [], "say in tests/tools/text_commands_test.py what becomes of it")

    @unittest.skipUnless((ROOT / "solutions").is_dir(), "not all texts are here")
    def test_each_line_of_the_table_is_needed(self) -> None:
        known = list(commands())
        for pattern, found in CLASSES:
            self.assertTrue(any(re.fullmatch(pattern, command) for command in known), f"no text has {pattern}")
            if isinstance(found, NotRun):
                self.assertGreater(len(found.why), 20, pattern)

    def test_where_commands_are_looked_for(self) -> None:
        prose = "x `make a` y `make`\n\n    make b  what it is\n    S = make c\n"
        fenced = "\n```sh\nls -l\nls \\\n  -a\n```\n```cpp\nmake d\n```\n"
        self.assertEqual(_text(prose + fenced).commands(), ["make a", "make b", "ls -l", "ls -a"])


class Handouts(unittest.TestCase):
    def each(self) -> list[tuple[Stage, Text]]:
        return [(stage, Text(ROOT / "assignments" / stage.name / "README.md")) for stage in all_stages()]

    def test_sections_in_one_order(self) -> None:
        for stage, handout in self.each():
            self.assertEqual(
                [title[3:] for title in handout.headings() if title.startswith("## ")], SECTIONS, stage.name
            )

    def test_length_and_pictures(self) -> None:
        for stage, handout in self.each():
            self.assertLessEqual(len(handout.content.split()), LONGEST, stage.name)
            self.assertEqual(len(handout.images()), PICTURES, stage.name)

    def test_the_timeline_is_in_the_two_that_it_explains(self) -> None:
        for number in ("02", "03"):
            (handout,) = [text for stage, text in self.each() if stage.number == number]
            self.assertIn("../../figures/gallery/timeline.virtual.png", handout.images())

    def test_its_table_has_the_tests_and_their_points(self) -> None:
        for stage, handout in self.each():
            rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", handout.content, re.MULTILINE)
            self.assertEqual({name for _, name in rows}, set(first_hints(stage)), stage.name)
            self.assertEqual(sum(int(points) for points, _ in rows), stage.points, stage.name)

    def test_no_line_of_a_solution(self) -> None:
        for stage, handout in self.each():
            for source in sorted((ROOT / "solutions" / stage.name).glob("*.cpp")):
                lines = {line.strip() for line in source.read_text().splitlines()}
                code = {line for line in lines if len(line) > 30 and not line.startswith(("//", "#", "at::Tensor y"))}
                self.assertEqual([line for line in code if line in handout.content], [], stage.name)


class Scratch(Text):
    """A text that is in no file."""

    said = ""

    @property
    def content(self) -> str:
        return self.said


def _text(content: str) -> Text:
    text = Scratch(ROOT / "README.md")
    object.__setattr__(text, "said", content)
    return text
