"""The hints: two for each graded test, the second of which says more, and neither of which is the answer. They and the
tests' names come from files, without a build, and are those that the built programs have."""

from __future__ import annotations

import json
import unittest
from pathlib import Path

from tests.tools.grading_test import ALL_PASS, NAMES, GraderTest
from tools.grading import declared
from tools.grading.running.test_lists import ask
from tools.grading.stages import Stage, all_stages
from tools.setup.checkout_lock import hold
from tools.setup.toolchain import BUILD_DIR, ROOT

LONGEST = 480  # characters: a paragraph, not a page
SHORTEST_LINE = 25  # characters of a line of code that is somebody's own


def first_hints(stage: Stage) -> dict[str, str]:
    return {spec.name: spec.hint for spec in declared.tests_of(stage)}


def second_hints(stage: Stage) -> dict[str, str]:
    return json.loads((ROOT / "tests" / stage.name / "hints.json").read_text())


def code_of(stage: Stage) -> set[str]:
    """The lines of code of the stage's solution."""
    sources = [path.read_text() for path in (ROOT / "solutions" / stage.name).glob("*.[ch]*")]
    lines = {" ".join(line.split()) for text in sources for line in text.splitlines()}
    return {line for line in lines if len(line) >= SHORTEST_LINE and not line.startswith(("//", "#"))}


def newer(source: Path, program: Path) -> bool:
    code = program.parents[1] / "lib" / f"lib{program.name}_code.so"
    return source.stat().st_mtime > code.stat().st_mtime


class TwoLevels(unittest.TestCase):
    def test_each_graded_test_has_both(self) -> None:
        for stage in all_stages():
            written = "".join(path.read_text() for path in (ROOT / "tests" / stage.name).glob("*.cpp"))
            self.assertEqual(len(first_hints(stage)), written.count(".hint ="), stage.name)
            self.assertEqual(set(second_hints(stage)), set(first_hints(stage)), stage.name)

    def test_what_is_read_from_files_is_what_is_built(self) -> None:
        for stage in all_stages():
            program = BUILD_DIR / "bin" / f"tests_{stage.name}"
            sources = [*(ROOT / "tests" / stage.name).glob("*.cpp")]
            with self.subTest(stage.name):
                if not program.exists() or any(newer(source, program) for source in sources):
                    self.skipTest("not built")
                self.assertEqual(declared.tests_of(stage), ask(program))

    def test_the_second_says_more_and_something_else(self) -> None:
        for stage in all_stages():
            for name, second in second_hints(stage).items():
                first = first_hints(stage)[name]
                with self.subTest(name):
                    self.assertGreater(len(second), 80)
                    self.assertLessEqual(len(second), LONGEST)
                    self.assertNotIn(second, first)
                    self.assertNotIn(first, second)

    @unittest.skipUnless((ROOT / "solutions").is_dir(), "there are no solutions here")
    def test_none_is_a_line_of_the_solution(self) -> None:
        for stage in all_stages():
            code = code_of(stage)
            self.assertGreater(len(code), 20, stage.name)
            for hints in (first_hints(stage), second_hints(stage)):
                for name, text in hints.items():
                    told = [line for line in code if line in " ".join(text.split())]
                    self.assertEqual(told, [], f"{stage.name}: {name}")


class Shown(GraderTest):
    """By `make hint`, in a checkout whose stage 01 has three tests."""

    def setUp(self) -> None:
        super().setUp()
        hints = {"gradients_equal_the_oracle": "How often do you divide?"}
        self.file = self.checkout.write("tests/01_naive_ddp/hints.json", json.dumps(hints))

    def hint(self, *arguments: str) -> str:
        done = self.tool("hint", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_first_names_the_second(self) -> None:
        shown = self.hint("--test=gradients_equal_the_oracle")
        self.assertIn("Divide.", shown)
        self.assertNotIn("How often", shown)
        self.assertIn("make hint STAGE=01 TEST=gradients_equal_the_oracle LEVEL=2", shown)
        self.assertIn("make hint TEST=<name> LEVEL=2", self.hint("--stage=01"))

    def test_the_second_stands_below_the_first(self) -> None:
        shown = self.hint("--test=gradients_equal_the_oracle", "--level=2")
        self.assertLess(shown.index("Divide."), shown.index("How often do you divide?"))
        self.assertNotIn("LEVEL=2", shown)

    def test_a_test_without_a_second_one_names_none(self) -> None:
        self.assertNotIn("LEVEL=2", self.hint("--test=broadcasts_rank_0"))
        self.assertNotIn("more", self.hint("--test=broadcasts_rank_0", "--level=2"))

    def test_nothing_is_built_and_nobody_waited_for(self) -> None:
        self.checkout.write("build_waits", "")  # a build that ends when the file is gone
        (self.checkout.root / "build/toolchain.json").unlink()
        with hold(self.checkout.root / "build/grade/lock", "make test"):
            self.assertEqual(self.hint("--stage=1").count("  hint   "), len(NAMES))
        self.assertFalse((self.checkout.root / "build/targets").exists())

    def test_a_test_of_another_stage_is_said_to_be_one(self) -> None:
        for tool in ("hint", "grade"):
            done = self.tool(tool, "--stage=02", "--test=broadcasts_rank_0")
            said = "TEST=broadcasts_rank_0: that is a test of stage 01. Say STAGE=01, or no STAGE= at all\n"
            self.assertEqual((done.returncode, done.stderr), (2, said))

    def test_a_typo_is_said_with_the_closest_name_and_before_anything_is_built(self) -> None:
        with hold(self.checkout.root / "build/grade/lock", "make test"):
            for tool in ("hint", "grade", "other_ways.debug"):
                done = self.tool(tool, "--test=broadcast rank 0")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("There are:\n  broadcasts_rank_0\nmake hint lists all", done.stderr)
                self.assertIn(NAMES[1], self.tool(tool, "--test=zzz").stderr)
        self.assertFalse((self.checkout.root / "build/targets").exists())

    def test_one_test_builds_its_stage_alone(self) -> None:
        other = self.checkout.write("tests/02_overlapped_ddp/a.cpp", "")
        self.grade(ALL_PASS, "--test=broadcasts_rank_0")
        self.assertNotIn("02", (self.checkout.root / "build/targets").read_text())
        other.write_text("const GradedTest kOther{named(1), [] {}};\n")
        done = self.tool("hint")
        self.assertEqual(done.returncode, 3)
        self.assertIn("tests/02_overlapped_ddp/a.cpp:1: its name, points and hint cannot be read here", done.stderr)

    def test_mistakes(self) -> None:
        done = self.tool("hint", "--level=3")
        self.assertEqual((done.returncode, done.stderr), (2, "LEVEL=3 is not one of: 1, 2\n"))
        self.file.write_text("{broken")
        done = self.tool("hint", "--test=broadcasts_rank_0")
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, r"^tests/01_naive_ddp/hints.json cannot be read \(.*git checkout tests\n$")

    def test_a_failure_names_both_levels_where_the_line_has_room(self) -> None:
        self.checkout.student("def run(name): return {'status': 'failed', 'failures': ['no']}")
        self.assertRegex(self.on_terminal(width=100).read_all(), r"TEST=broadcasts_rank_0\S*   # LEVEL=2 says more")
