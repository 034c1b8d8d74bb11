"""Tests of `make release`: what students get, and what they don't, and that it builds, grades and draws by itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import pytest

from tests.tools.release_helpers import STUB, Repository, git, known_activity, working_tree, write
from tools.course import release
from tools.course.release import for_students
from tools.grading import released, stages
from tools.grading.running import minimum_activity
from tools.setup import toolchain
from tools.setup.toolchain import ROOT, LabError
from tools.student import course

# Whoever is told of these looks for what is not there.
INSTRUCTORS = re.compile(
    r"solutions/|IMPL=solutions|--impl solutions|tests/(mutants|variants|lab|common|benchmarks|figures|tools)"
    r"|(NOTES\.md|INSTRUCTOR\.md|instructor\.mk)"
    r"|make (check|release|format|class|autograder)\b|tools[/.](checking|course)"
)
EXTENSION = re.compile(r"\b0[67]_|stages? 0[67]|sharded_|ZeRO|FSDP")
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
CODE = re.compile(r"^```.*?^```|^ {4}[^\n]*|`[^`\n]*`", re.MULTILINE | re.DOTALL)
ANSWERS = ("solutions", "tests/mutants", "tests/variants")  # all that has a solution's text in it
DISTINCT = 20  # characters: a shorter line says nothing
WORDS = 28  # in a row: about five lines of code, or two of text; baselines and solutions share up to 26
BUILT = "05"  # the stage that is graded from the archive
PATIENCE_S = 1500


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


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The students' tree of the whole lab."""
    tree = tmp_path_factory.mktemp("release") / "ddp-lab"
    with known_activity(tree.parent / "activity.json"):
        release.write_tree(tree, working_tree())
    return tree


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def run(lab: Path, *command: str, code: int = 0) -> str:
    """What it prints."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS")}
    done = subprocess.run(command, cwd=lab, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert "Traceback" not in said
    return said


def given() -> str:
    """The libtorch of this checkout, for another one's set-up."""
    tools = toolchain.load()
    return f"PYTHON={tools.python}" if tools.python else f"LIBTORCH={tools.libtorch}"


def test_has_what_a_student_needs(lab: Path) -> None:
    wanted = [".github/workflows/grade.yml", ".gitlab-ci.yml", "AGENTS.md"]
    for stage in stages.all_stages():
        sources = [path.name for path in stage.sources("assignments")]
        wanted += [f"assignments/{stage.name}/{name}" for name in ("README.md", "stage.json", *sources)]
        wanted += [f"tests/{stage.name}/minimum_activity.json", f"writeup/answers/{stage.name}.typ"]
    assert {*wanted} <= {*release.files_of(lab)}
    assert [path.name for path in (lab / ".github/workflows").iterdir()] == ["grade.yml"]
    there = {path.name for path in (lab / "tests").iterdir()}
    assert there == {*(stage.name for stage in stages.all_stages()), "README.md", "grader", "several_machines"}


def test_the_solutions_are_run_once_or_nothing_is_handed_out(tmp_path: Path) -> None:
    """A run that makes nothing known, a run that finds mistakes, and a repository without solutions."""
    tree = working_tree()
    for code, sources, said in ((0, [STUB], "stages 01, 02, 03"), (1, [STUB], "full marks"), (0, [], "IMPL=solutions")):
        done = subprocess.CompletedProcess([], code)
        with (
            mock.patch.object(minimum_activity, "known", return_value=None),
            mock.patch.object(minimum_activity, "run", return_value=done) as run,
            mock.patch.object(stages.Stage, "sources", return_value=sources),
            pytest.raises(LabError, match=f"(?s){said}"),
        ):
            release.write_tree(tmp_path / said, tree)
        assert run.call_count == len(sources)


def test_no_line_of_a_solution_mutant_or_reference_answer_is_in_it(lab: Path, tmp_path: Path) -> None:
    leaks = Leaks()
    assert leaks.found(lab) == []
    first, second, *_ = stages.all_stages()
    answers = (ROOT / "solutions/writeup/03_bucketed_ddp.typ").read_text()
    for leak in (first.sources("solutions")[0].read_text(), " ".join(answers[len(answers) // 2 :].split()),
                 (ROOT / f"tests/mutants/{second.name}.diff").read_text()):  # fmt: skip
        (tmp_path / "page.md").write_text(leak)
        assert leaks.found(tmp_path), "a leak would be found"


def test_no_text_speaks_of_what_is_not_there(lab: Path) -> None:
    pages = sorted(lab.rglob("*.md"))
    paths = [*pages, lab / "Makefile", *lab.rglob("*.typ"), *lab.rglob("*.json")]
    lines = [(path, line) for path in paths for line in path.read_text().splitlines()]
    found = [f"{path.relative_to(lab)}: {line}" for path, line in lines if INSTRUCTORS.search(line)]
    assert found == [], "it belongs into CONTRIBUTING.md or INSTRUCTOR.md"
    links = [(path, path.parent / link) for path in pages for link in links_of(path)]
    assert [f"{path.relative_to(lab)}: {file}" for path, file in links if not file.exists()] == [], "by .gitattributes"
    shown = {file.resolve() for _, file in links}
    gallery = sorted((lab / "figures/gallery").iterdir())
    needless = [path.name for path in gallery if path.suffix != ".png" or path.resolve() not in shown]
    assert needless == [], "no text of the release shows it, so .gitattributes should not hand it out"


def test_its_tools_need_nothing_that_is_not_there(lab: Path) -> None:
    modules = [path.relative_to(lab).with_suffix("") for path in sorted(lab.glob("tools/*/**/*.py"))]
    programs = (".guard", ".jail", ".gdb_frames")  # the last is gdb's
    names = [name for name in (".".join(path.parts) for path in modules) if not name.endswith(programs)]
    run(lab, sys.executable, "-c", f"import importlib; [importlib.import_module(name) for name in {names}]")


def test_the_lab_without_its_extension_does_not_speak_of_it() -> None:
    for name, (content, _) in release.without_extension(dict(release._handed_out(ROOT, working_tree()))).items():
        assert not EXTENSION.search(name)
        if name.endswith((".md", ".h", ".cpp", ".typ", ".json", ".txt")):
            text = content.decode()
            text = for_students(text, name, course.Course(extension=False)) if name.endswith(".md") else text
            assert not EXTENSION.search(text), name


def test_a_release_is_the_commit_without_what_is_marked(repository: Repository) -> None:
    made, found = repository.released("out"), release.files_of(repository.top / "out")
    assert {"release.json", "assignments/01_sums/sums.cpp"} <= {*found}
    assert not [name for name in found if name.startswith(("solutions", ".gitattributes"))]
    assert (made.name, made.version[:11]) == ("little-lab", "2026-10-05.")
    git(repository.root, "worktree", "add", "-q", str(repository.top / "beside"))
    assert release.write_tree(repository.top / "again", root=repository.top / "beside") == made
    with pytest.raises(LabError, match="is not empty"):
        repository.released("again")


def test_the_branch_has_each_release_on_top_of_the_last_and_nothing_else(repository: Repository) -> None:
    def handed_out(*arguments: str) -> list[str]:
        release.release(repository.root, repository.top / "out")
        return git(repository.root, *arguments, release.BRANCH).splitlines()

    assert handed_out("ls-tree", "-r", "--name-only") == release.files_of(repository.top / "out/little-lab")
    (first,) = handed_out("rev-list")
    repository.commit({"solutions/01_sums/sums.cpp": "int sum() { return 2 + 1; }\n"})
    assert handed_out("rev-list") == [first], "nothing of it is handed out"
    (repository.root / "README.md").chmod(0o755)
    repository.commit({"docs/new.md": "# New\n"})
    assert handed_out("rev-list")[1:] == [first]
    assert "100755" in next(line for line in handed_out("ls-tree", "-r") if "README.md" in line)
    assert git(repository.root, "status", "--porcelain") == ""
    assert "solutions" not in git(repository.root, "rev-list", "--objects", release.BRANCH)
    assert git(repository.root, "log", "-1", "--format=%an %s", release.BRANCH).startswith("little-lab Release 2026-10")


def test_the_same_commit_gives_the_same_bytes(repository: Repository) -> None:
    one, other = (repository.top / f"{name}.tar.gz" for name in ("a/lab", "b/lab"))
    for archive in (one, other):
        tree = archive.with_name("lab")
        made = repository.released(str(tree))
        release.write_archive(tree, made, archive)
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as tar:
        assert tar.getnames() == sorted(tar.getnames())
        assert {(entry.uname, entry.uid) for entry in tar} == {("", 0)}


def test_refuses_what_is_not_committed(repository: Repository) -> None:
    (repository.root / "README.md").write_text("# Not committed\n")
    (repository.root / "notes.txt").write_text("mine\n")
    with pytest.raises(LabError, match="(?s)differ from it:\n  README.md\nCommit them"):
        release.check_committed(repository.root)
    git(repository.root, "checkout", "README.md")
    assert release.check_committed(repository.root) == ["notes.txt"]


def test_course_and_passages_are_filled_in(repository: Repository) -> None:
    about = {"course": "PAR 101", "due": {"01": "2026-10-19"}, "links": {"Questions": "https://example.edu"},
             "timezone": "Europe/Berlin", "assistants": "In stage 01 a model may write code."}  # fmt: skip
    text = "# Lab\n\n<!-- course -->\n<!-- repository -->\nHere.\n<!-- /repository -->\n"
    text += "<!-- extension -->\nMore.\n<!-- /extension -->\n"
    manifest = json.dumps({"number": "02", "title": "more", "points": 5, "extension": True})
    second = {f"assignments/02_more/{name}": text for name, text in (("stage.json", manifest), ("more.cpp", STUB))}
    second |= {"tests/02_more/claims.cpp": "int claims();\n", "writeup/answers/02_more.typ": "#todo\n"}
    rules = (ROOT / "students/AGENTS.md").read_text()
    repository.commit({"course.json": json.dumps(about), "README.md": text, "students/AGENTS.md": rules, **second})
    repository.released("whole")
    repository.commit({"course.json": json.dumps({"extension": False})})
    repository.released("without")
    whole, without = ({*release.files_of(repository.top / tree)} for tree in ("whole", "without"))
    assert whole - without == second.keys()
    pages = [(repository.top / f"{tree}/{name}.md").read_text()
             for name in ("README", "AGENTS") for tree in ("whole", "without")]  # fmt: skip
    table = "| Stage | Due |\n|---|---|\n| 01 | Monday, 19 October 2026, 23:59 CEST |\n"
    readme = f"# Lab\n\n**PAR 101**\n\n{table}\n- [Questions](https://example.edu)\nMore.\n"
    assert pages[:2] == [readme, "# Lab\n\n"]
    assert [about["assistants"] in page.partition("## Do\n")[0] for page in pages[2:]] == [True, False]
    assert "<!--" not in "".join(pages)
    with pytest.raises(LabError, match="README.md: the mark <!-- extension --> .about line 1. has no other end"):
        for_students("<!-- extension -->\nMore.\n", "README.md", course.Course())


def test_a_day_ends_before_midnight_and_a_time_is_in_the_courses_zone() -> None:
    found = course.parse('{"timezone": "Europe/Berlin", "due": {"01": "2026-10-19", "02": "2026-11-02 18:00"}}')
    expected = {"01": "2026-10-19T23:59:59+02:00", "02": "2026-11-02T18:00:00+01:00"}
    assert {stage: when.isoformat() for stage, when in found.due.items()} == expected
    for text, said in {
        '{"dues": {}}': "an unknown field, dues",
        '{"due": {"02": "soon"}}': "due, 02 should be",
    }.items():
        with pytest.raises(LabError, match=said):
            course.parse(text)


@pytest.mark.slow
def test_builds_grades_draws_and_hands_in(lab: Path, tmp_path: Path) -> None:
    """From the archive: the lab's library and a program anew, which takes minutes."""
    release.write_archive(lab, released.load(lab), tmp_path / "ddp-lab.tar.gz")
    with tarfile.open(tmp_path / "ddp-lab.tar.gz") as tar:
        tar.extractall(tmp_path)
    here = tmp_path / "ddp-lab"
    (stage,) = stages.find_stages(BUILT)
    stub = run(here, "make", "test", f"STAGE={BUILT}", given(), code=2)
    assert re.search(rf"Total +0 / {stage.points} points", stub)
    for source in (ROOT / "solutions" / stage.name).glob("*.[ch]*"):
        shutil.copyfile(source, here / "assignments" / stage.name / source.name)
    full = run(here, "make", "test", f"STAGE={BUILT}")
    assert re.search(rf"Total +{stage.points} / {stage.points} p", full)
    assert list((here / "build").rglob("*solutions*")) == [], "a solution was built"

    program, experiment = "all_reduce", "all_reduce_algorithms"
    run(here, "make", f"build/bin/{program}")
    run(here, f"build/bin/{program}", experiment, "--preset", "quick", "--output", "figures/data/drawn.json")
    python = json.loads((here / "build/toolchain.json").read_text())["toolchain"]["figure_python"]
    drawn = run(here, python, "-m", f"figures.plots.{experiment}", "--data", "figures/data/drawn.json")
    (file,) = re.findall(r"wrote (\S+\.png)", drawn)
    assert (here / file).read_bytes().startswith(b"\x89PNG")

    assert "questions answered" in run(here, "make", "writeup", f"STAGE={BUILT}")
    handed_in = run(here, "make", "submit")
    assert f"scores: {stage.points} of {stage.points} points, of stage {BUILT} alone" in handed_in
    assert "Still missing" in handed_in
    run(here, "make", "doctor")


@pytest.mark.slow
def test_a_stage_is_graded_by_adding_folders(tmp_path: Path) -> None:
    """One more, the first by another name, in a copy of the checkout. Builds the lab's library anew."""
    first, added = "01_naive_ddp", "99_naive_ddp"
    for name in git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file():
            write(tmp_path, {name: ""})
            shutil.copyfile(ROOT / name, tmp_path / name)
            if first in name:
                text = (ROOT / name).read_text().replace(first, added).replace('"number": "01"', '"number": "99"')
                write(tmp_path, {name.replace(first, added): text})
    stub = run(tmp_path, "make", "test", "STAGE=99", given(), code=2)
    assert re.search(rf"assignments/{added}/naive_ddp\.cpp:\d+", stub) and "Total  0 / 15 points" in stub
    assert "Total  15 / 15 points" in run(tmp_path, "make", "test", "STAGE=99", "IMPL=solutions")
