"""A graded submission as Gradescope and Autolab read it."""

from __future__ import annotations

import json
import unittest

from tools.course.gradescope import SECRET, Shown, autolab, results
from tools.course.submission import Submission
from tools.grading.grade import mark_build_error
from tools.grading.scoring.results import Report, StageReport, Status, TestResult, TestSpec
from tools.grading.stages import all_stages
from tools.student.course import Course, parse

SEED = 123456789
KINDS = {"visible", "hidden", "after_due_date", "after_published"}


def a_report() -> Report:
    stage = all_stages()[0]
    tests = [
        TestResult(TestSpec("a_claim", 2, file=f"tests/{stage.name}/claims.cpp"), Status.PASSED,
                   measured=["leaderboard: ring, speed: 1.5"]),
        TestResult(TestSpec("a_secret_claim", 3, file=f"tests/{stage.name}/hidden.more.cpp"), Status.FAILED,
                   failures=[f"with seed {SEED}, not 1{SEED}"]),
        TestResult(TestSpec("never_begun", 1)),
    ]  # fmt: skip
    return Report("assignments", "cpu", SEED, [StageReport(stage, tests)])


def shown(secret: bool = True, **fields: object) -> Shown:
    submission = Submission(answers={"01_naive_ddp": b""}, notes=["x.zip was not taken: why."])
    return Shown(parse(json.dumps(fields)) if fields else Course(), submission, secret)


class Results(unittest.TestCase):
    def test_the_schema(self) -> None:
        found = json.loads(json.dumps(results(a_report(), shown())))
        self.assertEqual((found["score"], len(found["tests"])), (2, 3))
        self.assertLessEqual({found["visibility"], found["stdout_visibility"]}, KINDS)
        self.assertEqual(found["leaderboard"], [{"name": "01 ring, speed", "value": 1.5}])
        for number, test in enumerate(found["tests"], start=1):
            self.assertLessEqual({"name", "score", "max_score", "status", "number", "output", "tags", "visibility"},
                                 test.keys())  # fmt: skip
            self.assertEqual(test["number"], f"1.{number}")
            self.assertIn(test["status"], ("passed", "failed"))
            self.assertIn(test["visibility"], KINDS)

    def test_what_a_student_reads_first(self) -> None:
        output = results(a_report(), shown(secret=False))["output"]
        for text in (f"2 of 6 points, seed {SEED}", "01 naive DDP: 2 / 6", "Answers for the writeup",
                     "Note: x.zip was not taken: why."):  # fmt: skip
            self.assertIn(text, output)

    def test_a_secret_seed_is_nowhere(self) -> None:
        text = json.dumps(results(a_report(), shown()))
        self.assertIn(f"with seed {SECRET}, not 1{SEED}", text)
        self.assertEqual(text.count(str(SEED)), 1, "the other number that ends like it")

    def test_visibility(self) -> None:
        tests = results(a_report(), shown())["tests"]
        self.assertEqual([test["visibility"] for test in tests], ["visible", "after_published", "visible"])
        chosen = shown(visibility={"tests": "after_due_date", "hidden": "hidden", "stdout": "visible"})
        found = results(a_report(), chosen)
        self.assertEqual(found["stdout_visibility"], "visible")
        self.assertEqual(
            [test["visibility"] for test in found["tests"]], ["after_due_date", "hidden", "after_due_date"]
        )

    def test_a_stage_that_was_not_built_says_so(self) -> None:
        report = a_report()
        self.assertEqual(results(report, shown())["tests"][0]["extra_data"]["problem"], "")
        mark_build_error(report.stages[0], "error", "was not handed in")
        self.assertEqual(results(report, shown())["tests"][0]["extra_data"]["problem"], "was not handed in")

    def test_a_long_output_is_cut(self) -> None:
        report = a_report()
        report.results[1].failures = ["x" * 100_000]
        self.assertLess(len(results(report, shown())["tests"][1]["output"]), 25_000)

    def test_autolabs_last_line(self) -> None:
        self.assertEqual(json.loads(autolab(a_report())), {"scores": {"01_naive_ddp": 2}})
