"""What a grading run found, and the files that carry it: Gradescope's results.json and JUnit XML."""

from __future__ import annotations

import enum
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tools.grading.stages import Stage

DOES_NOT_COMPILE = "does not compile"
NOT_HANDED_IN = "was not handed in"
USES_WHAT_IT_MAY_NOT = "uses what it may not"
WAS_NOT_GRADED = "was not graded"  # for a reason that may be nobody's fault


class Status(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_JUDGED = "not_judged"  # another test's failure leaves nothing to say; few points either
    TODO = "todo"  # met a stub
    SKIPPED = "skipped"  # this machine lacks what it needs; never counted as passed
    NOT_RUN = "not_run"  # the run ended before its turn


@dataclass(frozen=True)
class TestSpec:
    """A test as its program declares it."""

    name: str  # in commands
    points: float
    hint: str = ""
    more: str = ""
    file: str = ""
    line: int = 0
    title: str = ""  # for people; none: the name's words

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name.replace("_", " "))


@dataclass(frozen=True)
class Broken:
    """A scenario that breaks a test's claim, its edge cases, and the test that it is charged to."""

    scenario: str
    edge_cases: frozenset[str]
    charged_to: str


@dataclass
class TestResult:
    spec: TestSpec
    status: Status = Status.NOT_RUN
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scenarios: list[str] = field(default_factory=list)  # what it was judged on
    runs: tuple[int, int] = (0, 0)  # in how many of them the claim holds, of how many it could be judged on
    broken: list[Broken] = field(default_factory=list)
    kept: float = 0  # of its points, though it is not judged
    partial: bool = False  # a claim that fails gets the share of runs in which it holds
    picture: dict[str, Any] | None = None  # of the run that breaks the claim; see tools/grading/page

    @property
    def score(self) -> float:
        if self.status is Status.FAILED and self.partial and self.runs[1]:
            return round(self.spec.points * self.runs[0] / self.runs[1], 2)
        return self.spec.points if self.status is Status.PASSED else self.kept


@dataclass
class StageReport:
    """One stage's tests. `build_error`: why its code was not run, the compiler's message or what it may not use."""

    stage: Stage
    results: list[TestResult]
    build_error: str = ""
    problem: str = DOES_NOT_COMPILE  # what a build error says in short
    sources: str = ""  # the digest of what was graded
    output: str = ""
    activity: dict[str, list[object]] = field(default_factory=dict)  # by scenario: tests/grader/minimum_activity.h
    unpaid: list[str] | None = None  # scenarios in which nobody fails if code dies: tests/grader/grading.cpp

    @property
    def compiles(self) -> bool:
        return not self.build_error or self.problem != DOES_NOT_COMPILE

    @property
    def score(self) -> float:
        return sum(result.score for result in self.results)

    @property
    def max_score(self) -> float:
        return sum(result.spec.points for result in self.results)

    @property
    def left_out(self) -> bool:
        """A stage of the extension of which nothing is written, or was handed in."""
        unwritten = all(result.status is Status.TODO for result in self.results)
        return self.stage.extension and (unwritten or self.problem == NOT_HANDED_IN)

    @property
    def seconds(self) -> float:
        return sum(result.seconds for result in self.results)

    def count(self, status: Status) -> int:
        return sum(result.status is status for result in self.results)


@dataclass
class Report:
    """A whole run, of stages with graded tests."""

    impl: str
    device: str
    seed: int
    stages: list[StageReport] = field(default_factory=list)
    partial: bool = False  # only some tests, by TEST=
    sanitize: str = ""  # what watches it, by SANITIZE=; such a run is no grade
    started: float = field(default_factory=time.monotonic)
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    @property
    def results(self) -> list[TestResult]:
        return [result for stage in self.stages for result in stage.results]

    @property
    def sums(self) -> Sums:
        return add_up((stage.stage.extension, stage.score, stage.max_score) for stage in self.stages)

    def full_marks(self) -> bool:
        """All points of the chosen tests. A stage of the extension may be left out beside others."""
        begun = [stage for stage in self.stages if not (stage.left_out and len(self.stages) > 1)]
        due = [result for stage in begun for result in stage.results]
        return bool(due) and all(result.status is Status.PASSED for result in due)

    def exit_code(self) -> int:
        """4: nobody can tell what a stage is worth."""
        if any(stage.build_error and stage.problem == WAS_NOT_GRADED for stage in self.stages):
            return 4
        return 0 if self.full_marks() else 1


class ResultFiles:
    """Both files, rewritten after each test. If the disk is full or the folder read-only, `problem` says so and the run
    continues: the printed scorecard is still right."""

    def __init__(self, folder: Path) -> None:
        self.problem = ""
        self.folder = folder
        for name in ("results.json", "junit.xml"):  # results of an earlier run must not pass for this one's
            (folder / name).unlink(missing_ok=True)

    def write(self, report: Report) -> None:
        try:
            replace_file(self.folder / "results.json", json.dumps(gradescope(report), indent=1).encode() + b"\n")
            replace_file(self.folder / "junit.xml", junit(report))
            self.problem = ""
        except OSError as error:
            self.problem = f"{self.folder}: the result files could not be written: {error.strerror}"


def replace_file(path: Path, content: bytes) -> None:
    """Replaces a file atomically: no one ever reads half of it."""
    new = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    try:
        new.write_bytes(content)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def gradescope(report: Report) -> dict[str, object]:
    """The run in Gradescope's schema for autograders."""
    return {
        "score": report.sums.score,
        "execution_time": round(time.monotonic() - report.started, 3),
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "output": f"{report.sums}, seed {report.seed}",
        "tests": [
            _gradescope_test(stage, index, result)
            for stage in report.stages
            for index, result in enumerate(stage.results, start=1)
        ],
        "extra_data": {
            "impl": report.impl,
            "device": report.device,
            "seed": report.seed,
            "date": report.date,
            "partial": report.partial,
            "extension": {"score": report.sums.extension, "max_score": report.sums.most_of_extension},
            "stages": {
                stage.stage.name: {"sources": stage.sources, "compiles": stage.compiles} for stage in report.stages
            },
        },
    }


def _gradescope_test(stage: StageReport, index: int, result: TestResult) -> dict[str, object]:
    return {
        "name": f"{stage.stage.number} {result.spec.title}",
        "number": f"{int(stage.stage.number)}.{index}",
        "score": result.score,
        "max_score": result.spec.points,
        "status": "passed" if result.status is Status.PASSED else "failed",
        "output": "\n\n".join(result.failures + result.notes),
        "tags": [stage.stage.name, result.status.value],
        "visibility": "visible",
        "extra_data": {
            "stage": stage.stage.name,
            "extension": stage.stage.extension,
            "test": result.spec.name,
            "title": result.spec.title,
            "status": result.status.value,
            "seconds": result.seconds,
            "notes": result.notes,
        },
    }


def junit(report: Report) -> bytes:
    suites = ElementTree.Element("testsuites", name="ddp-lab")
    for stage in report.stages:
        skipped = stage.count(Status.SKIPPED)
        failed = len(stage.results) - stage.count(Status.PASSED) - skipped
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=stage.stage.name,
            tests=str(len(stage.results)),
            failures=str(failed),
            skipped=str(skipped),
            time=f"{stage.seconds:.3f}",
        )
        for result in stage.results:
            _junit_case(suite, stage.stage, result)
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)


def _junit_case(suite: ElementTree.Element, stage: Stage, result: TestResult) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=stage.name, name=result.spec.name, time=f"{result.seconds:.3f}"
    )
    if result.status is Status.SKIPPED:
        ElementTree.SubElement(case, "skipped", message=" ".join(result.notes))
    elif result.status is not Status.PASSED:
        failure = ElementTree.SubElement(case, "failure", message=result.status.value)
        failure.text = "\n\n".join(result.failures)
    if result.notes and result.status is not Status.SKIPPED:
        ElementTree.SubElement(case, "system-out").text = "\n".join(result.notes)


@dataclass(frozen=True)
class Sums:
    """Points of the lab's stages, and of those beyond them (the extension), which are a sum of their own."""

    score: float = 0
    most: float = 0
    extension: float = 0
    most_of_extension: float = 0

    def __str__(self) -> str:
        """Both sums, or the one that there is: "87 of 100 points, extension 12 of 20"."""
        lab = f"{self.score:g} of {self.most:g} points"
        beyond = f"extension {self.extension:g} of {self.most_of_extension:g}"
        said = [lab] * bool(self.most or not self.most_of_extension) + [beyond] * bool(self.most_of_extension)
        return ", ".join(said)


def add_up(points: Iterable[tuple[bool, float, float]]) -> Sums:
    """Of (whether it belongs to the extension, points, what can be had)."""
    points = list(points)
    lab, beyond = ([each for each in points if each[0] is extension] for extension in (False, True))
    return Sums(*(sum(each[column] for each in part) for part in (lab, beyond) for column in (1, 2)))


def sums_of_tests(tests: Iterable[dict[str, Any]]) -> Sums:
    """Of the tests of a results.json."""
    return add_up((test["extra_data"].get("extension", False), test["score"], test["max_score"]) for test in tests)
