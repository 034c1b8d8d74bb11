"""Stages beyond the lab's points: a sum of their own, in all that says points, and a course may leave them out."""

from __future__ import annotations

import csv
import json
import re
import unittest

from tests.tools.release_test import Repository, working_tree
from tools.course import class_table, release
from tools.course.passages import for_students
from tools.grading.scoring.results import NOT_HANDED_IN, Report, StageReport, Status, TestResult, TestSpec, gradescope
from tools.grading.scoring.sums import Sums, of_tests
from tools.grading.stages import Stage
from tools.setup.toolchain import ROOT
from tools.student.course import Course

LAB, BEYOND = Stage("01_sums", "01", "sums", 3), Stage("02_more", "02", "more", 5, extension=True)


def report(lab: Status | None, beyond: Status | None) -> Report:
    stages = [
        StageReport(stage, [TestResult(TestSpec("adds_up", stage.points), status)])
        for stage, status in ((LAB, lab), (BEYOND, beyond))
        if status
    ]
    return Report("assignments", "cpu", 1, stages)


class Points(unittest.TestCase):
    def test_two_sums(self) -> None:
        both = report(Status.FAILED, Status.PASSED)
        self.assertEqual(both.sums, Sums(0, 3, 5, 5))
        self.assertEqual(str(both.sums), "0 of 3 points, extension 5 of 5")
        found = gradescope(both)
        self.assertEqual((found["score"], found["extra_data"]["extension"]), (0, {"score": 5, "max_score": 5}))
        self.assertEqual(of_tests(found["tests"]), both.sums)

    def test_one_sum_where_there_is_one(self) -> None:
        self.assertEqual(str(report(Status.PASSED, None).sums), "3 of 3 points")
        self.assertEqual(str(report(None, Status.PASSED).sums), "extension 5 of 5")

    def test_full_marks_need_no_extension(self) -> None:
        self.assertTrue(report(Status.PASSED, Status.TODO).full_marks())
        self.assertFalse(report(Status.PASSED, Status.FAILED).full_marks())
        self.assertFalse(report(None, Status.TODO).full_marks())
        without = report(Status.PASSED, Status.FAILED)
        without.stages[1].problem = NOT_HANDED_IN
        self.assertTrue(without.full_marks())

    def test_a_class_has_both(self) -> None:
        tests = gradescope(report(Status.PASSED, Status.PASSED))["tests"]
        (self.folder / "results.json").write_text(json.dumps({"tests": tests}))
        rows = [class_table.row_of("ann", self.folder)]
        class_table.write(self.folder, rows, Course())
        (row,) = csv.DictReader((self.folder / "scores.csv").open())
        self.assertEqual((row["points"], row["extension"], row["02_more"]), ("3", "5", "5"))
        self.assertIn("<th>extension</th>", (self.folder / "class.html").read_text())


class LeftOut(Repository):
    def test_nothing_speaks_of_it(self) -> None:
        manifest = json.dumps({"number": "02", "title": "more", "points": 5, "extension": True})
        self.commit(
            {
                "assignments/02_more/stage.json": manifest,
                "assignments/02_more/more.cpp": "// TODO(student)\n",
                "tests/02_more/claims.cpp": "int claims();\n",
                "writeup/answers/02_more.typ": '#answer("2.1")[\n  #todo\n]\n',
                "README.md": "# Lab\n\n<!-- repository -->\nHere.\n<!-- /repository -->\n"
                "<!-- extension -->\nMore.\n<!-- /extension -->\n",
            }
        )
        whole = release.write_tree(self.top / "whole", root=self.root)
        self.assertTrue(any("02_more" in name for name in whole.files))
        self.assertEqual((self.top / "whole/README.md").read_text(), "# Lab\n\nMore.\n")
        self.commit({"course.json": json.dumps({"extension": False})})
        tree = release.write_tree(self.top / "without", root=self.root)
        self.assertFalse([name for name in tree.files if "02_more" in name])
        self.assertIn("assignments/01_sums/sums.cpp", tree.files)
        self.assertEqual((self.top / "without/README.md").read_text(), "# Lab\n\n")

    def test_nor_does_the_lab(self) -> None:
        files = release.without_extension(dict(release._handed_out(ROOT, working_tree())))
        speaking = re.compile(r"\b0[67]_|stages? 0[67]|sharded_|ZeRO|FSDP")
        for name, (content, _) in files.items():
            self.assertNotRegex(name, speaking)
            if name.endswith((".md", ".h", ".cpp", ".typ", ".json", ".txt")):
                text = content.decode()
                text = for_students(text, name, Course(extension=False)) if name.endswith(".md") else text
                self.assertNotRegex(text, speaking, name)

    def test_a_mark_needs_its_other_end(self) -> None:
        with self.assertRaisesRegex(
            Exception, "README.md: the mark <!-- extension --> .about line 1. has no other end"
        ):
            for_students("<!-- extension -->\nMore.\n", "README.md", Course())
