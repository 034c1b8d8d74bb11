"""Files that CIs read: held to published schemas, and their commands run with a grader that says what it is told."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from tests.tools.release_test import git
from tests.tools.text_commands_test import Run, class_of
from tests.tools.workflow_test import CLASSROOM, Job, checkers_python, parse
from tools.grading import released
from tools.setup.toolchain import ROOT

SCHEMAS = {
    ".github/workflows/check.yml": "vendor.github-workflows",
    "students/.github/workflows/classroom.yml": "vendor.github-workflows",
    "students/.gitlab-ci.yml": "vendor.gitlab-ci",
    "CITATION.cff": "vendor.citation-file-format",
}
NO_SCHEMA = {"docs/several_machines/pytorchjob.yaml"}  # none is packed: tests/tools/test_project_files.py looks at it
# Grades as the submission says; its hidden test is for nobody to see.
GRADER = """\
import json, pathlib, sys
said = pathlib.Path(sys.argv[1], "assignments/01_naive_ddp/naive_ddp.cpp").read_text().strip()
if said == "crashes": sys.exit(3)
def test(name, status, points, stage, visibility="visible"):
    return {"name": name, "status": "passed" if status == "passed" else "failed", "max_score": points,
            "score": points * (status == "passed"), "visibility": visibility,
            "output": "" if status == "passed" else "twice <the> mean\\nand more",
            "extra_data": {"stage": stage, "status": status}}
tests = [test("01 first", said, 10, "01_naive_ddp"), test("01 secret", "passed", 5, "01_naive_ddp", "hidden"),
         test("02 third", "passed", 20, "02_overlapped_ddp"), test("02 report", "passed", 0, "02_overlapped_ddp")]
pathlib.Path(sys.argv[3]).write_text(json.dumps({"tests": tests}))
sys.exit(said != "passed")
"""
MAKE = """\
setup:
	touch set_up
test:
	mkdir -p build/grade && cp given.json build/grade/results.json && exit 1
"""


class Schemas(unittest.TestCase):
    def test_each_file_is_as_its_readers_want_it(self) -> None:
        for file, schema in SCHEMAS.items():
            self.assertEqual(self.complaint(ROOT / file, schema), "", file)

    def test_none_is_left_out(self) -> None:
        files = git(ROOT, "ls-files", "*.yml", "*.yaml", "*.cff").splitlines()
        self.assertEqual(set(files) - NO_SCHEMA, set(SCHEMAS))

    def test_a_mistake_would_be_found(self) -> None:
        wrong = self.folder / "classroom.yml"
        wrong.write_text(CLASSROOM.read_text().replace("runs-on:", "run-on:"))
        self.assertIn("runs-on", self.complaint(wrong, "vendor.github-workflows"))

    def complaint(self, file: Path, schema: str) -> str:
        command = [checkers_python(self), "-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr if done.returncode else ""


class Files(unittest.TestCase):
    def test_actions_have_versions(self) -> None:
        for file in (".github/workflows/check.yml", "students/.github/workflows/classroom.yml"):
            used = re.findall(r"uses: (\S+)", (ROOT / file).read_text())
            self.assertGreater(len(used), 2)
            self.assertEqual([each for each in used if not re.search(r"@v\d+$", each)], [], file)

    def test_the_labs_own_commands_are_those_of_its_texts(self) -> None:
        job = parse(self, ROOT / ".github/workflows/check.yml")["jobs"]["check"]
        given = [each["command"] for each in job["strategy"]["matrix"]["include"]]
        self.assertIn(".ci/run", given)
        for command in given:
            self.assertTrue(os.access(ROOT / command, os.X_OK) or isinstance(class_of(command), Run), command)

    def test_what_gitlab_keeps_is_what_make_test_writes(self) -> None:
        job = parse(self, ROOT / "students/.gitlab-ci.yml")["grade"]
        self.assertEqual(job["script"], ["make test"])
        written = [*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]]
        self.assertEqual(written, ["build/grade/results.json", "build/grade/junit.xml"])
        known = re.findall(r'"(\S+\.\w+)"', (ROOT / "tools/grading/scoring/results.py").read_text())
        self.assertLessEqual({Path(each).name for each in written}, {*known})


class Classroom(unittest.TestCase):
    def setUp(self) -> None:
        self.top = self.folder
        self.workspace = self.lab("workspace")
        self.hand_in("passed")

    def lab(self, name: str) -> Path:
        lab = self.top / name
        shutil.copytree(ROOT / "tools", lab / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        for manifest in (ROOT / "assignments").glob("*/stage.json"):
            (lab / "assignments" / manifest.parent.name).mkdir(parents=True)
            shutil.copy(manifest, lab / "assignments" / manifest.parent.name)
        (lab / "requirements.txt").write_text("torch==2.0\n")
        return lab

    def hand_in(self, says: str) -> None:
        (self.workspace / "assignments/01_naive_ddp/naive_ddp.cpp").write_text(f"{says}\n")

    def grader(self) -> str:
        """A repository as `make autograder` writes what is public."""
        source = self.top / "source"
        lab = self.lab("source/lab")
        (lab / "tools/course/grade_submission.py").write_text(GRADER)
        (source / "setup.sh").write_text('touch "$(dirname "$0")/lab/set_up"\n')
        git(source, "init", "-q")
        git(source, "add", "-A")
        git(source, "commit", "-q", "-m", "the grader")
        return source.as_uri()

    def job(self, grader: str) -> Job:
        return Job(self, self.top / "runner", self.workspace, grader)

    def by_own_copy(self) -> Job:
        (self.workspace / "Makefile").write_text(MAKE)
        (self.workspace / "common").mkdir()
        (self.workspace / "common/given.h").write_text("int given();\n")
        (self.workspace / "README.md").write_text("# Lab\n")
        handed_out = ("common/given.h", "README.md", "tools/grading/grade.py", "assignments/01_naive_ddp/stage.json")
        checksums = {name: released.checksum(self.workspace / name) for name in handed_out}
        released.Release("lab", "1", "", "", checksums, {}).write(self.workspace)
        (self.workspace / "README.md").write_text("# My lab\n")  # judges nothing
        test = {"name": "01 first", "status": "passed", "score": 10, "max_score": 10, "output": "",
                "extra_data": {"stage": "01_naive_ddp", "status": "passed"}}  # fmt: skip
        (self.workspace / "given.json").write_text(json.dumps({"tests": [test]}))
        return self.job("")

    def test_the_courses_grader_judges_what_was_pushed(self) -> None:
        job = self.job(self.grader())
        self.assertEqual(job.run(), 0, job.printed)
        self.assertTrue((job.folder / "grader/lab/set_up").exists())
        self.assertIn("| 01 naive DDP | 15 / 15 | 2 of 2 |\n| 02 overlapped DDP | 20 / 20 | 1 of 1 |\n", job.summary)
        self.assertIn("| **all** | 35 / 35 | 3 of 3 |\n\nGraded by the course's own copy", job.summary)
        self.assertEqual((job.reported["status"], job.reported["max_score"]), ("pass", 35))
        self.assertEqual([test["score"] for test in job.reported["tests"]], [10, 20, 5])
        self.assertEqual(len(job.results["tests"]), 4)

    def test_its_commit_is_what_is_cached(self) -> None:
        job = self.job(self.grader())
        job.run()
        commit = git(self.top / "source", "rev-parse", "HEAD")
        self.assertEqual((job.folder / "GITHUB_OUTPUT.grader").read_text(), f"commit={commit}\n")

    def test_less_than_full_marks_is_told_and_no_failure_of_the_grader(self) -> None:
        self.hand_in("failed")
        job = self.job(self.grader())
        self.assertEqual(job.run(), 0, job.printed)
        self.assertIn("| 01 naive DDP | 5 / 15 | 1 of 2 |", job.summary)
        self.assertIn(
            "<details><summary>01 first: failed</summary>\n<pre>twice &lt;the&gt; mean\nand more</pre>", job.summary
        )
        self.assertEqual(job.reported["status"], "fail")
        self.assertEqual(job.reported["tests"][0]["message"], "failed: twice <the> mean")

    def test_what_the_course_shows_later_is_not_shown(self) -> None:
        job = self.job(self.grader())
        job.run()
        self.assertNotIn("secret", job.summary + json.dumps(job.reported))

    def test_a_grader_that_cannot_grade_fails_the_job(self) -> None:
        self.hand_in("crashes")
        job = self.job(self.grader())
        self.assertNotEqual(job.run(), 0)
        self.assertFalse((job.folder / "GITHUB_OUTPUT.lab").exists())

    def test_an_address_that_is_none_is_named(self) -> None:
        job = self.job(f"file://{self.top}/nowhere")
        self.assertNotEqual(job.run(), 0)
        self.assertIn("/nowhere' does not appear to be a git repository", job.printed)

    def test_without_a_grader_the_repositorys_own_copy_judges(self) -> None:
        job = self.by_own_copy()
        self.assertEqual(job.run(), 0, job.printed)
        self.assertTrue((self.workspace / "set_up").exists())
        self.assertIn("| **all** | 10 / 10 | 1 of 1 |\n\nGraded by this repository's own copy", job.summary)
        self.assertEqual(job.reported["status"], "pass")

    def test_an_edited_copy_gives_no_points(self) -> None:
        job = self.by_own_copy()
        edited = ("common/given.h", "tools/grading/grade.py", "assignments/01_naive_ddp/stage.json")
        for name in edited:
            (self.workspace / name).write_text((self.workspace / name).read_text() + "\n")
        self.assertEqual(job.run(), 0, job.printed)
        self.assertIn("**These points do not count**", job.summary)
        for name in edited:
            self.assertIn(f"- `{name}`", job.summary)
        self.assertNotIn("README", job.summary)
        self.assertEqual((job.reported["status"], job.reported["max_score"]), ("error", 10))
        self.assertEqual(sum(test["score"] for test in job.reported["tests"]), 0)

    def test_a_run_that_graded_nothing_fails_the_job(self) -> None:
        job = self.by_own_copy()
        (self.workspace / "given.json").write_text('{"tests": []}')
        self.assertEqual(job.run(), 3)
        self.assertIn("nothing was graded; see what was printed before", job.printed)
