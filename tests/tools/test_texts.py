"""What texts name is there: the files that they link to, the commands, and the code that they quote."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.tools.release_test import git
from tools.grading.running import test_lists
from tools.grading.stages import Stage, all_stages
from tools.setup.toolchain import ROOT

TEXTS = {
    name: (ROOT / name).read_text() for name in git(ROOT, "ls-files", "*.md").splitlines() if (ROOT / name).exists()
}
_MAKEFILES = "".join((ROOT / name).read_text() for name in ("Makefile", "instructor.mk"))
_PROGRAMS = "".join(path.read_text() for path in (ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")))
_BLOCK, _INLINE = re.compile(r"^ *```.*?^ *```|^ {4}[^\n]*", re.MULTILINE | re.DOTALL), re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)#?([^)\s]*)\)")
_MAKE = re.compile(r"(?:[A-Z_]+=\S+ +|sudo +)*make ([a-z]+)")
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
        if not ((ROOT / "benchmarks/experiments" / name).is_dir() or re.search(rf"\b{name}\b", _PROGRAMS)):
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
def test_a_handout_has_each_tests_points_and_no_line_of_the_solution(stage: Stage) -> None:
    handout = (ROOT / "assignments" / stage.name / "README.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", handout, re.MULTILINE)
    assert {name for _, name in rows} == {spec.name for spec in test_lists.tests_of(stage)}
    assert sum(int(points) for points, _ in rows) == stage.points
    for source in (ROOT / "solutions" / stage.name).glob("*.cpp"):
        lines = {line.strip() for line in source.read_text().splitlines()}
        code = {line for line in lines if len(line) > 30 and not line.startswith(("//", "#", "at::Tensor y"))}
        assert [line for line in code if line in handout] == []


def test_the_primers_code_is_compiled_and_run_word_for_word() -> None:
    primer, program = ((ROOT / name).read_text() for name in ("docs/primer.md", "tests/harness/primer_test.cpp"))
    for block in re.findall(r"^```cpp\n(.*?)^```$", primer, re.MULTILINE | re.DOTALL):
        (name,) = re.findall(r"^void (\w+)\(", block, re.MULTILINE)
        assert f"\n{block}\n" in program, "docs/primer.md quotes it differently"
        assert re.search(rf"\b{name}\((rank\.group\(\))?\);", program), f"nobody calls {name}()"
