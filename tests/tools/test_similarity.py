"""compare50 on a class of 20 that was made up from the variants: it finds those who copied, and from whom."""

from __future__ import annotations

import re
import tempfile
import unittest
from itertools import cycle, islice
from pathlib import Path

import pytest

from tools.course.similarity import compare, environment, submissions_in
from tools.grading.stages import named
from tools.setup.toolchain import ROOT, LabError

STUDENTS = 20
STAGES = named("02_overlapped_ddp"), named("03_bucketed_ddp")  # those with the most variants in files of their own
KEYWORDS = set("auto const for if return int void class struct public private override namespace using".split())


def disguised(code: str) -> str:
    """The same with other names, other comments and other spaces."""
    code = re.sub(r"//.*", "// mine", code)
    names = set(re.findall(r"\b[a-z]+_[a-z_]*[a-z]\b", code))  # not those of libraries, which it could not rename
    for name in names - KEYWORDS:
        code = re.sub(rf"\b{name}\b", f"{name}_of_mine", code)
    return code.replace("\n  ", "\n      ")


@pytest.mark.slow
class Similarity(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        try:
            cls.python = environment()
        except LabError as error:
            raise unittest.SkipTest(str(error)) from None
        cls.top = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        for student in range(STUDENTS - 4):
            for stage in STAGES:
                variants = sorted((ROOT / "tests/variants" / stage.name).glob("*.cpp"))
                cls.write("class", f"s{student:02}", stage, next(islice(cycle(variants), student, None)).read_text())
        cls.copied("class/s00", "class/copied", disguised)
        cls.copied("class/s01", "earlier/somebody", str)
        cls.copied("class/s01", "class/again", disguised)
        for stage in STAGES:
            solution = next(
                path for path in stage.sources("solutions") if path.name == stage.sources("assignments")[0].name
            )
            cls.write("class", "from_the_solutions", stage, disguised(solution.read_text()))
            cls.write("class", "handed_in_stubs", stage, stage.sources("assignments")[0].read_text())

    @classmethod
    def write(cls, year: str, name: str, stage, code: str) -> None:
        place = cls.top / year / name / "taken/assignments" / stage.name / stage.sources("assignments")[0].name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(code)

    @classmethod
    def copied(cls, source: str, target: str, by) -> None:
        for path in (cls.top / source).rglob("*.cpp"):
            place = cls.top / target / path.relative_to(cls.top / source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(by(path.read_text()))

    def test_who_copied_and_from_whom(self) -> None:
        students = submissions_in(self.top / "class")
        self.assertEqual(len(students), STUDENTS)
        archive = [*submissions_in(self.top / "earlier"), ROOT / "solutions"]
        pairs = compare(self.python, students, archive, self.top / "out", 190)
        best = {name: self.best(pairs, name) for name in ("copied", "again", "from_the_solutions", "handed_in_stubs")}
        self.assertTrue({"class/s00"} & best["copied"], best)
        self.assertTrue({"class/s01", "earlier/somebody"} & best["again"], best)
        self.assertTrue(any("solutions" in name for name in best["from_the_solutions"]), best)
        self.assertEqual(best["handed_in_stubs"], set(), "the stubs' text counts")
        self.assertTrue((self.top / "out/index.html").exists())

    def best(self, pairs, name: str) -> set[str]:
        """Those with the highest score beside this student."""
        own = f"class/{name}"
        scores = {
            pair.other if pair.one == own else pair.one: pair.score for pair in pairs if own in (pair.one, pair.other)
        }
        return {other for other, score in scores.items() if score == max(scores.values())}
