"""Files about the repository that others read: CIs, schedulers, citations. They are held to published schemas and to
each other, and their commands run with a grader that says what it is told."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

import pytest

from tests.tools.release_test import git
from tests.tools.text_commands_test import Run, class_of
from tests.tools.workflow_test import CLASSROOM, Job, checkers_python, parse
from tools.grading import released
from tools.setup.toolchain import BUILD_DIR, ROOT

SCHEMAS = {
    ".github/workflows/check.yml": "vendor.github-workflows",
    "students/.github/workflows/classroom.yml": "vendor.github-workflows",
    "students/.gitlab-ci.yml": "vendor.gitlab-ci",
    "CITATION.cff": "vendor.citation-file-format",
}
EXAMPLES = ROOT / "docs/several_machines"
NO_SCHEMA = "docs/several_machines/pytorchjob.yaml"  # none is packed: test_the_job_for_kubernetes looks at it
HERE = unittest.TestCase()
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


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def complaint(file: Path, schema: str) -> str:
    command = [checkers_python(HERE), "-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def test_each_file_is_as_its_readers_want_it(tmp_path: Path) -> None:
    assert {file: said for file, schema in SCHEMAS.items() if (said := complaint(ROOT / file, schema))} == {}
    assert {*git(ROOT, "ls-files", "*.yml", "*.yaml", "*.cff").splitlines()} == {*SCHEMAS, NO_SCHEMA}
    wrong = tmp_path / "classroom.yml"
    wrong.write_text(CLASSROOM.read_text().replace("runs-on:", "run-on:"))
    assert "runs-on" in complaint(wrong, "vendor.github-workflows")


def test_actions_have_versions_and_the_labs_own_commands_are_those_of_its_texts() -> None:
    for file in (".github/workflows/check.yml", "students/.github/workflows/classroom.yml"):
        used = re.findall(r"uses: (\S+)", read(file))
        assert len(used) > 2 and all(re.search(r"@v\d+$", each) for each in used), file
    job = parse(HERE, ROOT / ".github/workflows/check.yml")["jobs"]["check"]
    given = [each["command"] for each in job["strategy"]["matrix"]["include"]]
    assert ".ci/run" in given
    for command in given:
        assert os.access(ROOT / command, os.X_OK) or isinstance(class_of(command), Run), command


def test_what_gitlab_keeps_is_what_make_test_writes() -> None:
    job = parse(HERE, ROOT / "students/.gitlab-ci.yml")["grade"]
    written = [*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]]
    assert (job["script"], written) == (["make test"], ["build/grade/results.json", "build/grade/junit.xml"])
    assert {"results.json", "junit.xml"} <= {*re.findall(r'"(\S+\.\w+)"', read("tools/grading/scoring/results.py"))}


def test_there_is_one_version_and_the_changelog_keeps_its_form() -> None:
    version = re.search(r"^project\(ddp_lab VERSION (\d+\.\d+\.\d+) ", read("CMakeLists.txt"), re.MULTILINE)[1]
    log, citation = read("CHANGELOG.md"), read("CITATION.cff")
    releases = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", log, re.MULTILINE)
    assert f"\nversion: {version}\n" in citation and releases[0][0] == version
    assert re.search(rf"^date-released: .?{releases[0][1]}", citation, re.MULTILINE)
    assert f"/ddp-lab:{version}\n" in read(NO_SCHEMA)
    first, *others = re.findall(r"^## (.*)$", log, re.MULTILINE)
    assert (first, len(others)) == ("[Unreleased]", len(releases))
    kinds = set(re.findall(r"^### (.*)$", log, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    dates = [date for _, date in releases]
    assert dates == sorted(dates, reverse=True)


def test_the_job_for_kubernetes() -> None:
    job = parse(HERE, ROOT / NO_SCHEMA)
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert (replicas.keys(), replicas["Master"]["replicas"]) == ({"Master", "Worker"}, 1)
    for each in replicas.values():
        (container,) = each["template"]["spec"]["containers"]
        assert container["name"] == "pytorch"  # by which the operator knows it
        assert_known(" ".join(container["command"]))


def test_commands_for_several_machines_name_programs_and_flags_that_there_are() -> None:
    script, page = EXAMPLES / "two_nodes.sbatch", read("docs/several_machines.md").replace("\\\n", "")
    assert subprocess.run(["bash", "-n", script], capture_output=True).stderr == b""
    assert "#SBATCH --nodes=2\n" in script.read_text()
    runs = re.findall(r"^run (build/bin/\w+ .*)$", script.read_text(), re.MULTILINE)
    shown = re.findall(r"^    .*?(build/bin/\w+.*)", page, re.MULTILINE)
    assert len(runs) >= 3 and len(shown) >= 6
    for command in (*runs, *shown):
        assert_known(command)


def assert_known(command: str) -> None:
    program, *arguments = command.split()
    binary = BUILD_DIR / "bin" / Path(program).name
    source = ROOT / "benchmarks/experiments" / binary.name / f"{binary.name}.cpp"
    assert source.exists(), f"{program} is not made of any experiment"
    if not binary.exists():
        pytest.skip(f"skipped: {binary} is not built")
    said = subprocess.run([binary, "--help"], capture_output=True, text=True, timeout=60).stdout
    for flag in (each for each in arguments if each.startswith("--")):
        assert re.search(rf"(?m)^ +(-\w,\s*)?{flag}\b", said), f"{program} has no {flag}"


class Classroom:
    """A student's repository, and the course's grader."""

    def __init__(self, top: Path) -> None:
        self.top, self.workspace = top, self.lab(top / "workspace")
        self.hand_in("passed")

    def lab(self, folder: Path) -> Path:
        shutil.copytree(ROOT / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        for manifest in (ROOT / "assignments").glob("*/stage.json"):
            (folder / "assignments" / manifest.parent.name).mkdir(parents=True)
            shutil.copy(manifest, folder / "assignments" / manifest.parent.name)
        (folder / "requirements.txt").write_text("torch==2.0\n")
        return folder

    def hand_in(self, says: str) -> None:
        (self.workspace / "assignments/01_naive_ddp/naive_ddp.cpp").write_text(f"{says}\n")

    def grader(self) -> Path:
        """A repository as `make autograder` writes what is public."""
        source = self.top / "source"
        lab = self.lab(source / "lab")
        (lab / "tools/course/grade_submission.py").write_text(GRADER)
        (source / "setup.sh").write_text('touch "$(dirname "$0")/lab/set_up"\n')
        git(source, "init", "-q")
        git(source, "add", "-A")
        git(source, "commit", "-q", "-m", "the grader")
        return source

    def job(self, grader: str) -> Job:
        return Job(HERE, self.top / "runner", self.workspace, grader)

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


@pytest.fixture
def classroom(tmp_path: Path) -> Classroom:
    return Classroom(tmp_path)


def test_the_courses_grader_judges_what_was_pushed(classroom: Classroom) -> None:
    source = classroom.grader()
    job = classroom.job(source.as_uri())
    assert job.run() == 0, job.printed
    assert (job.folder / "grader/lab/set_up").exists()
    assert "| 01 naive DDP | 15 / 15 | 2 of 2 |\n| 02 overlapped DDP | 20 / 20 | 1 of 1 |\n" in job.summary
    assert "| **all** | 35 / 35 | 3 of 3 |\n\nGraded by the course's own copy" in job.summary
    assert (job.reported["status"], job.reported["max_score"]) == ("pass", 35)
    assert [test["score"] for test in job.reported["tests"]] == [10, 20, 5]
    assert len(job.results["tests"]) == 4
    assert "secret" not in job.summary + json.dumps(job.reported), "the course shows it later"
    cached = (job.folder / "GITHUB_OUTPUT.grader").read_text()
    assert cached == f"commit={git(source, 'rev-parse', 'HEAD')}\n"


def test_less_than_full_marks_is_told_and_no_failure_of_the_grader(classroom: Classroom) -> None:
    classroom.hand_in("failed")
    job = classroom.job(classroom.grader().as_uri())
    assert job.run() == 0, job.printed
    assert "| 01 naive DDP | 5 / 15 | 1 of 2 |" in job.summary
    said = "<details><summary>01 first: failed</summary>\n<pre>twice &lt;the&gt; mean\nand more</pre>"
    assert said in job.summary
    assert job.reported["status"] == "fail"
    assert job.reported["tests"][0]["message"] == "failed: twice <the> mean"


def test_a_grader_that_cannot_grade_fails_the_job(classroom: Classroom) -> None:
    job = classroom.job(f"file://{classroom.top}/nowhere")
    assert job.run() and "/nowhere' does not appear to be a git repository" in job.printed
    shutil.rmtree(job.folder)
    classroom.hand_in("crashes")
    job = classroom.job(classroom.grader().as_uri())
    assert job.run() and not (job.folder / "GITHUB_OUTPUT.lab").exists()


def test_without_a_grader_the_repositorys_own_copy_judges(classroom: Classroom) -> None:
    job = classroom.by_own_copy()
    assert job.run() == 0, job.printed
    assert (classroom.workspace / "set_up").exists()
    assert "| **all** | 10 / 10 | 1 of 1 |\n\nGraded by this repository's own copy" in job.summary
    assert job.reported["status"] == "pass"
    (classroom.workspace / "given.json").write_text('{"tests": []}')
    assert job.run() == 3
    assert "nothing was graded; see what was printed before" in job.printed


def test_an_edited_copy_gives_no_points(classroom: Classroom) -> None:
    job = classroom.by_own_copy()
    edited = ("common/given.h", "tools/grading/grade.py", "assignments/01_naive_ddp/stage.json")
    for name in edited:
        (classroom.workspace / name).write_text((classroom.workspace / name).read_text() + "\n")
    assert job.run() == 0, job.printed
    for said in ("**These points do not count**", *(f"- `{name}`" for name in edited)):
        assert said in job.summary
    assert "README" not in job.summary
    assert (job.reported["status"], job.reported["max_score"]) == ("error", 10)
    assert sum(test["score"] for test in job.reported["tests"]) == 0
