"""What texts, editors, CIs and containers name is there: files, commands, targets, schemas, packages, one version."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.marks import each_stage_built
from tests.tools.release_helpers import git
from tools.grading.running import test_lists
from tools.grading.stages import Stage, all_stages
from tools.report.program import programs
from tools.setup import system_packages, toolchain
from tools.setup.toolchain import BUILD_DIR, ROOT

TEXTS = {
    name: (ROOT / name).read_text() for name in git(ROOT, "ls-files", "*.md").splitlines() if (ROOT / name).exists()
}
_MAKEFILES = "".join((ROOT / name).read_text() for name in ("Makefile", "instructor.mk"))
_PROGRAMS = "".join(path.read_text() for path in (ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")))
_BLOCK, _INLINE = re.compile(r"^ *```.*?^ *```|^ {4}[^\n]*", re.MULTILINE | re.DOTALL), re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)#?([^)\s]*)\)")
_MAKE = re.compile(r"(?:[A-Z_]+=\S+ +|sudo +)*make ([a-z]+)(?!/)\b")
_MODULE, _PROGRAM = re.compile(r"-m ((?:tools|figures)(?:\.\w+)+)"), re.compile(r"\bbuild/bin/(\w+)")


def anchors(text: str) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", _BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def missing(command: str) -> Iterator[str]:
    """The targets, modules and programs of a command that do not exist."""
    if (found := _MAKE.match(command)) and not re.search(rf"(?m)^{found[1]}:", _MAKEFILES):
        yield found[1]
    for name in _MODULE.findall(command):
        if not (ROOT / name.replace(".", "/")).with_suffix(".py").exists():
            yield name
    for name in _PROGRAM.findall(command):
        if not (name in programs() or re.search(rf"\b{name}\b", _PROGRAMS)):
            yield name


def test_links_resolve() -> None:
    for name, text in TEXTS.items():
        for path, anchor in _LINK.findall(_INLINE.sub("", _BLOCK.sub("", text))):
            target = (ROOT / name).parent / path if path else ROOT / name
            assert target.exists(), f"{name}: {path}"
            assert not anchor or anchor in anchors(target.read_text()), f"{name}: {path}#{anchor}"


def test_commands_name_what_exists() -> None:
    for name in TEXTS.keys() - {"CHANGELOG.md"}:  # which speaks of what is gone, too
        blocks = (line.strip() for block in _BLOCK.findall(TEXTS[name]) for line in block.splitlines())
        for command in (*blocks, *_INLINE.findall(TEXTS[name])):
            assert [*missing(command)] == [], f"{name}: {command}"


@pytest.mark.parametrize("stage", all_stages(), ids=lambda stage: stage.name)
def test_handout_and_hints_are_of_each_test_and_have_no_line_of_the_solution(stage: Stage) -> None:
    handout = (ROOT / "assignments" / stage.name / "README.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.+)<br>`(\w+)` \|", handout, re.MULTILINE)
    titles = {spec.name: spec.title for spec in test_lists.tests_of(stage)}
    assert {name: title for _, title, name in rows} == titles
    first = {spec.name: spec.hint for spec in test_lists.tests_of(stage)}
    second = {spec.name: spec.more for spec in test_lists.tests_of(stage)}
    written = "".join(path.read_text() for path in (ROOT / "tests" / stage.name).glob("*.cpp"))
    assert {name for _, _, name in rows} == first.keys() and len(first) == written.count(".hint =")
    assert sum(int(points) for points, _, _ in rows) == stage.points
    assert [name for name, text in second.items() if not 80 < len(text) <= 480 or text in first[name]] == []
    shown = " ".join(" ".join([handout, *first.values(), *second.values()]).split())
    sources = "\n".join(path.read_text() for path in (ROOT / "solutions" / stage.name).glob("*.[ch]*"))
    lines = {" ".join(line.split()) for line in sources.splitlines()}
    code = {line for line in lines if len(line) > 30 and not line.startswith(("//", "#", "at::Tensor y"))}
    assert len(code) > 20 and [line for line in code if line in shown] == []


@each_stage_built()
def test_what_is_read_of_tests_from_files_is_what_is_built(stage: Stage) -> None:
    assert test_lists.tests_of(stage) == test_lists.ask(BUILD_DIR / "bin" / f"tests_{stage.name}")


def test_the_primers_code_is_compiled_and_run_word_for_word() -> None:
    primer, program = ((ROOT / name).read_text() for name in ("docs/primer.md", "tests/common/primer_test.cpp"))
    for block in re.findall(r"^```cpp\n(.*?)^```$", primer, re.MULTILINE | re.DOTALL):
        (name,) = re.findall(r"^void (\w+)\(", block, re.MULTILINE)
        assert f"\n{block}\n" in program, "docs/primer.md quotes it differently"
        assert re.search(rf"\b{name}\((rank\.group\(\))?\);", program), f"nobody calls {name}()"


def read(name: str) -> dict[str, Any]:
    return json.loads((ROOT / name).read_text())


def output_of(*command: object) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_tasks_are_targets_with_variables_that_make_knows() -> None:
    makefile, document = (ROOT / "Makefile").read_text(), read(".vscode/tasks.json")
    targets = re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE)
    known = re.search(r"^VARIABLES := (.*)", makefile, re.MULTILINE)[1].split()
    for task in document["tasks"]:
        target, *given = task["args"]
        assert task["command"] == "make" and target in targets, task["label"]
        assert {each.partition("=")[0] for each in given} <= {*known}, task["label"]
    assert {"test", "watch", "hint", "submit"} <= {task["args"][0] for task in document["tasks"]}
    asked = re.findall(r"\$\{input:(\w+)\}", json.dumps(document["tasks"]))
    assert {*asked} == {one["id"] for one in document["inputs"]}


@pytest.mark.builds(*(f"tests_{stage.name}" for stage in all_stages()))
def test_each_graded_test_is_one_of_ctests() -> None:
    said = output_of(Path(toolchain.load().cmake).with_name("ctest"), "--preset", "graded", "-N")
    due = [(stage.name, spec.name) for stage in all_stages() for spec in test_lists.tests_of(stage)]
    assert sorted(re.findall(r"Test +#\d+: (\w+)\.Graded\.(\w+)", said)) == sorted(due)


def test_the_container_has_all_packages_that_setup_would_miss() -> None:
    text = (ROOT / ".devcontainer" / "Dockerfile").read_text()
    installed = re.search(r"--no-install-recommends \\\n(.*?)&&", text, re.DOTALL)[1].replace("\\", "").split()
    assert {*system_packages.PACKAGES} <= {*installed}


SCHEMAS = {
    ".github/workflows/check.yml": "vendor.github-workflows",
    ".github/workflows/site.yml": "vendor.github-workflows",
    "students/.github/workflows/grade.yml": "vendor.github-workflows",
    "students/.gitlab-ci.yml": "vendor.gitlab-ci",
    "CITATION.cff": "vendor.citation-file-format",
}


@pytest.mark.parametrize("file", SCHEMAS)
def test_each_file_is_as_its_readers_want_it(file: str) -> None:
    pytest.importorskip("check_jsonschema", reason="make check installs it")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[file], ROOT / file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_one_version() -> None:
    lab, citation, log = ((ROOT / name).read_text() for name in ("CMakeLists.txt", "CITATION.cff", "CHANGELOG.md"))
    version = re.search(r"^project\(ddp_lab VERSION (\d+\.\d+\.\d+) ", lab, re.MULTILINE)[1]
    newest, date = re.search(r"^## \[(\d+\.\d+\.\d+)\] - (\S+)$", log, re.MULTILINE).groups()
    assert f"\nversion: {version}\n" in citation and newest == version
    assert f'\ndate-released: "{date}"\n' in citation
