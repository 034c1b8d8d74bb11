"""Tests of `make release`: what students get, and what they don't."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

from tests.tools.release_test import Repository, git, working_tree
from tools.course import release
from tools.grading import released, stages
from tools.setup.toolchain import ROOT, LabError
from tools.student import course

# Whoever is told of these looks for what is not there.
INSTRUCTORS = re.compile(
    r"solutions/|IMPL=solutions|--impl solutions|tests/(mutants|variants|harness|benchmarks|figures|tools)"
    r"|(contract\.json|NOTES\.md|CLAIMS\.md|INSTRUCTOR\.md|instructor\.mk)|make (check|release|format)\b"
    r"|tools[/.](checking|course)"
)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
CODE = re.compile(r"^```.*?^```|^ {4}[^\n]*|`[^`\n]*`", re.MULTILINE | re.DOTALL)
ANSWERS = ("solutions", "tests/mutants", "tests/variants")  # all that has a solution's text in it
DISTINCT = 20  # characters: a shorter line says nothing
WORDS = 28  # in a row: about five lines of code, or two of text; peers and solutions share up to 26


def lines_of(text: str) -> set[str]:
    """Lines that say something, without a patch's marks."""
    lines = (" ".join(line.lstrip("+-").split()) for line in text.splitlines())
    return {line for line in lines if len(line) >= DISTINCT}


def passages_of(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", re.sub(r"^#.*", "", text, flags=re.MULTILINE))
    return {tuple(words[i : i + WORDS]) for i in range(len(words) - WORDS + 1)}


def texts(paths: Iterable[Path]) -> dict[Path, str]:
    return {path: path.read_text(errors="replace") for path in paths if path.is_file() and path.suffix != ".png"}


def links_of(path: Path) -> list[str]:
    """Files that a text leads to."""
    return LINK.findall(CODE.sub("", path.read_text()))


class Leaks:
    """What only the instructor has: lines, and passages of some length, which need not begin with a line."""

    def __init__(self) -> None:
        tracked = [Path(name) for name in git(ROOT, "ls-files").splitlines()]
        known = texts(ROOT / name for name in tracked)
        secret = {path: text for path, text in known.items()
                  if any(path.is_relative_to(ROOT / folder) for folder in ANSWERS)}  # fmt: skip
        public = [text for path, text in known.items() if path not in secret]
        self.lines = set().union(*map(lines_of, secret.values())) - set().union(*map(lines_of, public))
        solutions = [text for path, text in secret.items() if path.is_relative_to(ROOT / "solutions")]
        given = [path for path in known if path.is_relative_to(ROOT / "assignments") and path.suffix in (".h", ".cpp")]
        self.passages = set().union(*map(passages_of, solutions))
        self.passages -= set().union(*(passages_of(known[path]) for path in given))

    def found(self, tree: Path) -> list[str]:
        leaks = []
        for path, text in texts(tree.rglob("*")).items():
            leaks += [f"{path.relative_to(tree)}: {line}" for line in lines_of(text) & self.lines]
            leaks += [f"{path.relative_to(tree)}: {' '.join(words)}" for words in passages_of(text) & self.passages]
        return leaks


class ReleasedTree(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.tree = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="ddp-lab-release-"))) / "ddp-lab"
        cls.release = release.write_tree(cls.tree, working_tree())
        cls.texts = sorted(cls.tree.rglob("*.md"))

    def test_has_what_a_student_needs(self) -> None:
        for stage in stages.all_stages():
            for name in ("README.md", "stage.json", *(path.name for path in stage.sources("assignments"))):
                self.assertIn(f"assignments/{stage.name}/{name}", self.release.files)
            self.assertIn(f"tests/{stage.name}/signs_of_life.json", self.release.files)
            self.assertIn(f"writeup/answers/{stage.name}.typ", self.release.files)
        self.assertLessEqual(
            {".github/workflows/classroom.yml", ".gitlab-ci.yml", "AGENTS.md"}, self.release.files.keys()
        )
        self.assertEqual(sorted(path.name for path in (self.tree / ".github/workflows").iterdir()), ["classroom.yml"])
        there = sorted(path.name for path in (self.tree / "tests").iterdir())
        self.assertEqual(there, sorted([*(stage.name for stage in stages.all_stages()), "README.md", "support"]))

    def test_no_line_of_a_solution_mutant_or_reference_answer_is_in_it(self) -> None:
        leaks = Leaks()
        self.assertGreater(len(leaks.lines), 1000)
        self.assertEqual(leaks.found(self.tree), [])

    def test_a_leak_would_be_found(self) -> None:
        leaks = Leaks()
        solution = stages.all_stages()[0].sources("solutions")[0].read_text()
        answers = (ROOT / "solutions" / "writeup" / "03_bucketed_ddp.typ").read_text()
        mutants = ROOT / "tests" / "mutants" / f"{stages.all_stages()[1].name}.diff"
        reflowed = " ".join(answers[len(answers) // 2 :].split())
        for leak in (solution, reflowed, mutants.read_text()):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "page.md").write_text(leak)
                self.assertNotEqual(leaks.found(Path(folder)), [])

    def test_the_gallery_has_pictures_that_a_text_shows_and_no_tables(self) -> None:
        shown = {(path.parent / link).resolve() for path in self.texts for link in links_of(path)}
        gallery = sorted((self.tree / "figures" / "gallery").iterdir())
        needless = [path.name for path in gallery if path.suffix != ".png" or path.resolve() not in shown]
        self.assertEqual(needless, [], "no text of the release shows it, so .gitattributes should not hand it out")

    def test_no_text_speaks_of_what_is_not_there(self) -> None:
        paths = [*self.texts, self.tree / "Makefile", *self.tree.rglob("*.typ"), *self.tree.rglob("*.json")]
        lines = [(path, line) for path in paths for line in path.read_text().splitlines()]
        found = [f"{path.relative_to(self.tree)}: {line}" for path, line in lines if INSTRUCTORS.search(line)]
        self.assertEqual(found, [], "it belongs into CONTRIBUTING.md or INSTRUCTOR.md")

    def test_no_link_is_dead(self) -> None:
        links = [(path, link) for path in self.texts for link in links_of(path)]
        self.assertGreater(len(links), 10)
        dead = [f"{path.relative_to(self.tree)}: {link}" for path, link in links if not (path.parent / link).exists()]
        self.assertEqual(dead, [], "not handed out, by .gitattributes")

    def test_its_tools_need_nothing_that_is_not_there(self) -> None:
        modules = [path.relative_to(self.tree).with_suffix("") for path in sorted((self.tree / "tools").rglob("*.py"))]
        names = [".".join(path.parts) for path in modules if path.parent.name != "tools"]
        programs = (".guard", ".jail", ".writeup_typst", ".gdb_frames")  # the last is gdb's
        names = [name for name in names if not name.endswith(programs)]
        self.assertGreater(len(names), 20)
        code = f"import importlib; [importlib.import_module(name) for name in {names}]"
        done = subprocess.run([sys.executable, "-c", code], cwd=self.tree, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_make_lists_no_target_of_the_instructor(self) -> None:
        done = subprocess.run(["make"], cwd=self.tree, capture_output=True, text=True, check=True)
        self.assertIn("make submit", done.stdout)
        self.assertNotRegex(done.stdout, "make (check|format|release)|IMPL=")

    def test_the_solutions_are_said_to_be_the_instructors(self) -> None:
        command = [sys.executable, "-m", "tools.grading.watch", "--impl=solutions"]
        done = subprocess.run(command, cwd=self.tree, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (2, False))
        self.assertIn("the solutions are the instructor's", done.stderr)


class Release(Repository):
    def test_takes_the_commit_without_what_is_marked(self) -> None:
        made = self.released("out")
        found = sorted(path.relative_to(self.top / "out").as_posix() for path in (self.top / "out").rglob("*.*"))
        self.assertNotIn("solutions/01_sums/sums.cpp", found)
        self.assertEqual(sorted({*found} - {"release.json"}), sorted(name for name in made.files if "." in name))
        self.assertEqual((made.name, made.version[:11]), ("little-lab", "2026-10-05."))

    def test_works_from_a_worktree(self) -> None:
        git(self.root, "worktree", "add", "-q", str(self.top / "beside"))
        made = release.write_tree(self.top / "out", root=self.top / "beside")
        self.assertEqual(made, self.released("out2"))

    def test_the_same_commit_gives_the_same_bytes(self) -> None:
        archives = []
        for name in ("a/lab", "b/lab"):
            made = self.released(name)
            archives.append(self.top / f"{name}.tar.gz")
            release.write_archive(self.top / name, made, archives[-1])
        self.assertEqual(archives[0].read_bytes(), archives[1].read_bytes())
        with tarfile.open(archives[0]) as tar:
            names = tar.getnames()
            self.assertEqual(names, sorted(names))
            self.assertEqual({entry.uname + str(entry.uid) for entry in tar}, {"0"})

    def test_refuses_what_is_not_committed(self) -> None:
        (self.root / "README.md").write_text("# Not committed\n")
        (self.root / "notes.txt").write_text("mine\n")
        with self.assertRaisesRegex(LabError, "(?s)differ from it:\n  README.md\nCommit them"):
            release.check_committed(self.root)
        git(self.root, "checkout", "README.md")
        self.assertEqual(release.check_committed(self.root), ["notes.txt"])

    def test_writes_over_no_folder(self) -> None:
        with self.assertRaisesRegex(LabError, "is not empty"):
            release.write_tree(self.root, root=self.root)

    def test_course_and_passages_are_filled_in(self) -> None:
        about = {"course": "CS 149", "due": {"01": "2026-10-19"}, "links": {"Questions": "https://example.edu"},
                 "timezone": "Europe/Berlin"}  # fmt: skip
        text = "# Lab\n\n<!-- course -->\n<!-- extension -->\nMore.\n<!-- /extension -->\n"
        self.commit({"course.json": str(about).replace("'", '"'), "README.md": text})
        self.released("out")
        readme = (self.top / "out" / "README.md").read_text()
        for part in ("**CS 149**", "| 01 | Monday, 19 October 2026, 23:59 CEST |", "[Questions](https://example.edu)",
                     "\nMore.\n"):  # fmt: skip
            self.assertIn(part, readme)
        self.assertNotIn("<!--", readme)

    def test_the_courses_own_rule_for_assistants_stands_first(self) -> None:
        rule = "In stage 01 a model may write code."
        text = (ROOT / "students" / "AGENTS.md").read_text()
        for given, expected in ((rule, True), ("", False)):
            self.commit({"course.json": json.dumps({"assistants": given}), "students/AGENTS.md": text})
            self.released(f"out{expected}")
            found = (self.top / f"out{expected}" / "AGENTS.md").read_text()
            self.assertEqual(rule in found.partition("## Do\n")[0], expected)
            self.assertNotIn("<!--", found)
            for wanted in ("Explain", "Ask", "Review", "Don't write a stage", "writeup"):
                self.assertIn(wanted, found)

    def test_an_edit_is_known_without_git(self) -> None:
        made = self.released("out")
        self.assertEqual(list(made.differing(self.top / "out")), [])
        (self.top / "out" / "README.md").unlink()
        (self.top / "out" / "course.json").write_text("{}")
        self.assertEqual(
            sorted(released.load(self.top / "out").differing(self.top / "out")), ["README.md", "course.json"]
        )


class CourseFile(unittest.TestCase):
    def test_without_any_field_all_are_defaults(self) -> None:
        self.assertEqual(course.parse("{}"), course.Course())

    def test_a_day_ends_before_midnight_and_a_time_is_in_the_courses_zone(self) -> None:
        found = course.parse('{"timezone": "Europe/Berlin", "due": {"01": "2026-10-19", "02": "2026-11-02 18:00"}}')
        self.assertEqual(found.due["01"].isoformat(), "2026-10-19T23:59:59+02:00")
        self.assertEqual(found.due["02"].isoformat(), "2026-11-02T18:00:00+01:00")

    def test_utc_needs_no_tzdata(self) -> None:
        with mock.patch.object(course, "ZoneInfo", side_effect=course.ZoneInfoNotFoundError):
            self.assertEqual(course.parse('{"timezone": "UTC"}').timezone.utcoffset(None).total_seconds(), 0)
            with self.assertRaisesRegex(LabError, "tzdata"):
                course.parse('{"timezone": "Europe/Berlin"}')

    def test_a_mistake_names_its_field(self) -> None:
        for text, message in (
            ("{", "is not JSON"),
            ('{"dues": {}}', "an unknown field, dues"),
            ('{"due": {"02": "soon"}}', 'due, 02 should be a day or a time, such as .*, not "soon"'),
            ('{"timezone": "Nowhere"}', "timezone should be a name"),
            ('{"name": "a/b"}', "name should be a name for a folder"),
            ('{"assistants": true}', "assistants should be a text"),
            ('{"links": {"a": 1}}', "links should be an object"),
            ("[]", "is not an object"),
        ):
            with self.subTest(text), self.assertRaisesRegex(LabError, message):
                course.parse(text)
