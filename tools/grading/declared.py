"""The graded tests as tests/<stage>/*.cpp declare them: names, points and hints, at once and without a build.

What is graded is what the built program lists (test_lists.py); tests hold both to be the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from tools.grading import stages
from tools.grading.scoring.results import TestSpec
from tools.grading.stages import BadChoice, Stage, short_paths
from tools.setup.toolchain import ROOT, LabError, how_to_restore

_DECLARATION = re.compile(r"^ *(?:const )?GradedTest \w+ *[{(]", re.MULTILINE)
_TEXT = r'(?:"(?:[^"\\\n]|\\.)*"\s*)+'
_CLAIM = re.compile(rf"\s*\{{\s*(?:\.name = )?(\w+|{_TEXT}),\s*(?:\.points = )?(\d+),\s*(?:\.hint = *)?\s*({_TEXT})")
_CONSTANT = re.compile(r'\bchar\* (?:const )?(\w+) = "(\w+)";')


def tests_of(stage: Stage) -> list[TestSpec]:
    """In the order of the program: by file and line."""
    return [spec for path in sorted((ROOT / "tests" / stage.name).glob("*.cpp")) for spec in _in_file(str(path))]


def _in_file(path: str) -> Iterable[TestSpec]:
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    constants = dict(_CONSTANT.findall(text))
    for declaration in _DECLARATION.finditer(text):
        line = text.count("\n", 0, declaration.end()) + 1
        claim = _CLAIM.match(text, declaration.end())
        if not claim:
            what = "its name, points and hint cannot be read here"
            raise LabError(f"{short_paths(path)}:{line}: {what}. Restore it: {how_to_restore('tests')}")
        name = constants.get(claim[1]) or str(ast.literal_eval(claim[1]))
        yield TestSpec(name, int(claim[2]), ast.literal_eval(f"({claim[3]})"), path, line)


def chosen(pattern: str, graded: Iterable[Stage]) -> list[tuple[Stage, TestSpec]]:
    """The tests of these stages that TEST= means; all of them if it is empty."""
    tests = [(stage, spec) for stage in graded for spec in tests_of(stage)]
    wanted = set(stages.match_tests(pattern, [spec.name for _, spec in tests]))
    if not wanted:
        raise _none_chosen(pattern, tests)
    return [(stage, spec) for stage, spec in tests if spec.name in wanted]


def _none_chosen(pattern: str, tests: list[tuple[Stage, TestSpec]]) -> BadChoice:
    elsewhere = [
        stage.number
        for stage in stages.all_stages()
        if pattern.strip() and stages.match_tests(pattern, [spec.name for spec in tests_of(stage)])
    ]
    if not elsewhere:
        return stages.no_such_test(pattern, [spec.name for _, spec in tests])
    asked = ", ".join(dict.fromkeys(stage.number for stage, _ in tests))
    return BadChoice(
        f"TEST={pattern}: that is a test of stage {' and '.join(elsewhere)}{asked and f', not of {asked}'}. "
        f"Say STAGE={elsewhere[0]}, or no STAGE= at all"
    )
