"""Questions about a student's own run: which are drawn, who reads the answers, and whether they are true of a run."""

from __future__ import annotations

import json
import re
import unittest
from pathlib import Path

from tools.course import questions
from tools.grading.compiling.building import Builder
from tools.grading.running.runner import RunOptions, run_stage
from tools.grading.running.test_lists import ask
from tools.grading.scoring.results import StageReport, TestResult
from tools.grading.stages import all_stages
from tools.setup import toolchain
from tools.setup.toolchain import LabError

KINDS = {
    "01": {"one message or many", "the moment of the first all-reduce", "a gradient that is missing"},
    "02": {"an all-reduce that leaves early", "micro-batches"},
    "03": {"a bucket that leaves early", "a bucket that waits for its turn", "a bucket that finish() launches"},
    "05": {"what a ring sends", "chunks of two sizes"},
}


def candidate(about: str, number: int = 0) -> dict[str, object]:
    return {"about": about, "body": "b", "asked": f"why <{number}>?", "answer": "since 42", "evidence": ["launched"]}


class Pages(unittest.TestCase):
    def student(self, name: str, found: dict[str, list[dict[str, object]]]) -> Path:
        folder = self.folder / name
        folder.mkdir()
        (folder / questions.CANDIDATES).write_text(json.dumps(found))
        return folder

    def test_answers_are_for_whoever_teaches(self) -> None:
        ann = self.student("ann", {"01_a": [candidate("x")], "02_b": [candidate("y")]})
        questions.write(self.folder, {"ann": ann}, 1)
        theirs, whole = (ann / "questions.html").read_text(), (self.folder / "questions.html").read_text()
        self.assertIn("why &lt;0&gt;?", theirs)
        self.assertIn("<li>launched</li>", theirs)
        self.assertNotIn("since 42", theirs)
        self.assertEqual((theirs.count("<h3>"), whole.count("since 42")), (2, 2))

    def test_who_has_nothing_to_be_asked_has_no_page(self) -> None:
        (self.folder / "bob").mkdir()
        questions.write(self.folder, {"bob": self.folder / "bob"}, 1)
        self.assertFalse((self.folder / "bob" / "questions.html").exists())
        self.assertIn("Nothing can be asked", (self.folder / "questions.html").read_text())

    def test_the_draw(self) -> None:
        found = [{**candidate("x", i), "stage": f"0{1 + i % 3}"} for i in range(30)]
        drawn = [questions.drawn(found, f"7 {name}") for name in range(20)]
        self.assertEqual(drawn, [questions.drawn(found, f"7 {name}") for name in range(20)])
        self.assertTrue(all(len({each["stage"] for each in two}) == 2 for two in drawn))
        self.assertGreater(len({json.dumps(two) for two in drawn}), 5)
        self.assertEqual(len(questions.drawn(found[:1], "1")), 1)
        alone = [{**each, "stage": "01"} for each in found]
        self.assertEqual(len(questions.drawn(alone, "1")), 1)  # never two of a kind


class TrueOfARun(unittest.TestCase):
    """Of the solutions: each kind is asked, and what it says is in the events that stand below it."""

    def test_each_kind_is_asked_and_true(self) -> None:
        for stage in all_stages():
            for asked in self.asked_of(stage) if stage.number in KINDS else []:
                with self.subTest(stage.name, asked=asked["asked"]):
                    self.assert_true(asked)

    def asked_of(self, stage) -> list[dict[str, object]]:
        try:
            builder = Builder(toolchain.load())
            tests = ask(builder.program(stage))
        except (LabError, OSError) as error:
            self.skipTest(str(error))
        report = StageReport(stage, [TestResult(spec) for spec in tests if spec.points])
        run_stage(builder.program(stage), builder.library(stage, "solutions"), report, RunOptions(5), lambda _: None)
        self.assertEqual({asked["about"] for asked in report.questions}, KINDS[stage.number])
        return report.questions

    def assert_true(self, asked: dict[str, object]) -> None:
        text, events = asked["asked"], asked["evidence"]
        self.assertTrue(events)
        ready = [int(found[1]) for line in events if (found := re.match(r"the gradient of layer (\d+) is ready", line))]
        if found := re.search(r"left before the gradient of layer (\d+) was ready", text):
            later = events.index(f"the gradient of layer {found[1]} is ready")
            self.assertTrue(any("launched" in line for line in events[:later]))
        if found := re.search(r"bucket \d+ \(layers? ([\d, and]+)\)", text):
            members = {int(number) for number in re.findall(r"\d+", found[1])}
            missing = members - set(ready)
            self.assertEqual(bool(missing), asked["about"] == "a bucket that finish() launches")
        if found := re.search(r"computed the gradient of layer (\d+) (\d+) times", text):
            computed = sum(f"gradient of layer {found[1]} is ready" in line for line in events)
            self.assertEqual(computed, int(found[2]))
        if found := re.search(r"finish\(\) launched (\d+) all-reduces", text):
            self.assertEqual(sum("launched" in line for line in events), int(found[1]))
        if found := re.search(r"computed no gradient of layer (\d+)", text):
            self.assertNotIn(int(found[1]), ready)
        if found := re.search(r"sent (\d+) messages of (\d+) bytes", text):
            sends = [line for line in events if re.search(r"launched: send\b", line)]
            self.assertEqual(len(sends), int(found[1]))
            self.assertEqual(sum(int(re.search(r"(\d+) bytes", line)[1]) for line in sends), int(found[2]))
