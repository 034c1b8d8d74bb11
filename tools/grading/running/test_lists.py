"""The graded tests: names, titles, points and hints, as tests/<stage>/*.cpp declare them, at once and without a build;
and as the built program lists them, which is what is graded. Tests hold both to be the same.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from tools.grading import stages
from tools.grading.scoring.results import TestSpec, replace_file
from tools.grading.stages import BadChoice, Stage, short_paths
from tools.setup.toolchain import ROOT, LabError, how_to_restore

LIST_S = 600  # it loads libtorch, which on a slow machine beside other work takes a minute
_DECLARATION = re.compile(r"^ *(?:const )?GradedTest \w+ *[{(]", re.MULTILINE)
_TEXT = r'(?:"(?:[^"\\\n]|\\.)*"\s*)+'
_CLAIM = re.compile(
    rf"\s*\{{\s*(?:\.name = )?(\w+|{_TEXT}),\s*(?:\.title =\s*({_TEXT}),\s*)?"
    rf"(?:\.points = )?(\d+),\s*(?:\.hint = *)?\s*({_TEXT})(?:,\s*\.more =\s*({_TEXT}))?"
)
_CONSTANT = re.compile(r'\bchar\* (?:const )?(\w+) = "(\w+)";')


class TestLists:
    """Programs' lists kept in `folder`, each valid until its program is built again: to ask one takes a while."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lists: dict[Path, list[TestSpec]] = {}

    def of(self, program: Path) -> list[TestSpec]:
        if program not in self._lists:
            self._lists[program] = self._recall(program) or ask(program)
        return self._lists[program]

    def remember(self) -> None:
        """Called when no student code runs any more, which could have touched the cache."""
        for program, specs in self._lists.items():
            with contextlib.suppress(OSError):  # the cache only saves time
                replace_file(self._kept(program), json.dumps([asdict(spec) for spec in specs]).encode())

    def _kept(self, program: Path) -> Path:
        return self._folder / f"{program.name}.json"

    def _recall(self, program: Path) -> list[TestSpec]:
        code = program.parent.parent / "lib" / f"lib{program.name}_code.so"
        try:
            built = max(path.stat().st_mtime_ns for path in (program, code))
            if self._kept(program).stat().st_mtime_ns > built:
                return [TestSpec(**test) for test in json.loads(self._kept(program).read_bytes())]
        except (OSError, ValueError, TypeError):
            pass
        return []


def ask(program: Path) -> list[TestSpec]:
    """Asks the program; runs no student code."""
    said = ""
    try:
        done = subprocess.run(
            [str(program), "--list"], capture_output=True, text=True, timeout=LIST_S, stdin=subprocess.DEVNULL
        )
        said = done.stderr[-2000:]
        return [TestSpec(**test) for test in json.loads(done.stdout)]
    except OSError as error:
        raise LabError(f"{program}: {error.strerror}. Build the lab: make setup") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{program} --list took more than {LIST_S} s, where seconds are due. Try again.") from None
    except (ValueError, TypeError):
        raise LabError(f"{program} --list does not list its tests. This is not your stage's fault.\n{said}") from None


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
        if not claim or not (claim[1] in constants or claim[1].startswith('"')):
            what = "its name, title, points and hint cannot be read here"
            raise LabError(f"{short_paths(path)}:{line}: {what}. Restore it: {how_to_restore('tests')}")
        name = constants.get(claim[1]) or str(ast.literal_eval(claim[1]))
        title, hint, more = (ast.literal_eval(f"({text})") for text in (claim[2] or '""', claim[4], claim[5] or '""'))
        yield TestSpec(name, int(claim[3]), hint, more, path, line, title)


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
