"""Would a mutant be noticed that survives or dies for another reason, and a sanitizer that reports nothing?"""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

import pytest

from tools.checking import in_place, mutants, sanitizers, variants
from tools.checking.context import Context, graded_stages
from tools.checking.in_place import write_edited
from tools.checking.mutants import Mutant
from tools.checking.sanitizers import ADDRESS, THREAD, Watched, Watcher
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import StageReport, Status, TestResult, TestSpec
from tools.grading.stages import Stage, all_stages
from tools.setup.toolchain import ROOT, LabError, Toolchain

SPECS = [TestSpec("mean", 3), TestSpec("bitwise", 1), TestSpec("order", 2)]
HEADER = "Mistake: adds up only\nKilled-by: mean, order\nSays: the sum, not .* mean\n"
BEFORE = "".join(f"line {number}\n" for number in range(1, 21))
AFTER = BEFORE.replace("line 3\n", "").replace("line 18\n", "line 18\nand a half\n")
EDITS = "@@\n line 2\n-line 3\n@@\n line 18\n+and a half\n"  # from the one to the other


def mutant(header: str = HEADER, edits: str = EDITS) -> mutants.Mutant:
    return mutants.parse(all_stages()[0], "sum", header + edits)


def report(**failures: str) -> StageReport:
    """A grading in which the named tests fail with these texts."""
    results = [TestResult(spec, Status.PASSED) for spec in SPECS]
    for result in results:
        if text := failures.get(result.spec.name):
            result.status, result.failures = Status.FAILED, [text]
    return StageReport(all_stages()[0], results)


def context(**fields: str) -> Context:
    known = dict.fromkeys(Toolchain.__dataclass_fields__, "")
    return Context(Toolchain(**(known | fields)), 1)


class Sums:
    """A stage with a solution of several files."""

    name = "09_sums"

    def __init__(self, root: Path, **contents: str) -> None:
        self.root = root
        for name, content in {"sum_cpp": BEFORE, "more_cpp": "more\n", "both_h": "both\n", **contents}.items():
            for impl in ("assignments", "solutions") if name == "sum_cpp" else ("solutions",):
                path = root / impl / self.name / name.replace("_", ".")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)

    def sources(self, impl: str) -> list[Path]:
        return sorted((self.root / impl / self.name).glob("*.cpp"))


MOVED = ("line 9\n", "line 9\nnew\n\n")
DUE = {"mean": "diagnosis: the sum, not the mean", "order": "wrong order"}
ONLY = HEADER + "Only: yes\n"


@pytest.mark.parametrize(
    ("edits", "before", "expected"),
    [
        (EDITS, BEFORE, [AFTER, "more\n", "both\n"]),
        (EDITS, BEFORE.replace(*MOVED), [AFTER.replace(*MOVED), "more\n", "both\n"]),
        ("@@ more.cpp\n-more\n+less\n@@ both.h\n-both\n+none\n", BEFORE, [BEFORE, "less\n", "none\n"]),
    ],
)
def test_edits_do_what_they_say(edits: str, before: str, expected: list[str], tmp_path: Path) -> None:
    source = write_edited(Sums(tmp_path, sum_cpp=before), mutant(edits=edits).edits, tmp_path)
    assert source == tmp_path / "sum.cpp"
    assert [(tmp_path / name).read_text() for name in ("sum.cpp", "more.cpp", "both.h")] == expected


@pytest.mark.parametrize(
    ("edits", "before", "said"),
    [
        (EDITS, BEFORE.replace("line 3", "line three"), "0 times in sum.cpp.*line 2\nline 3"),
        (EDITS, BEFORE + BEFORE, "2 times in sum.cpp.*line 2\nline 3"),
        ("@@ gone.cpp\n-more\n", BEFORE, "0 times in gone.cpp"),
    ],
)
def test_what_is_found_never_or_twice_is_shown(edits: str, before: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(LabError, match=f"(?s)no longer fits solutions/09_sums.*{said}"):
        write_edited(Sums(tmp_path, sum_cpp=before), mutant(edits=edits).edits, tmp_path)


def test_all_of_it_is_read() -> None:
    read = mutant(HEADER + "Score: 0\n")
    assert (read.killed_by, read.only, read.score) == (("mean", "order"), False, 0)
    read = mutant("Mistake: frees twice\nSanitizer: double-free\n")
    assert (read.sanitizer, read.killed_by) == ("double-free", ())
    assert mutant(HEADER + "Sanitizer: double-free\n").killed_by == ("mean", "order")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER.replace("Says: the sum, not .* mean\n", ""), "lacks the line 'Says"),
        (HEADER + "Kiled-by: order\n", "cannot read the line 'Kiled-by: order'"),
        (HEADER.replace(".* mean", "(mean"), "cannot read Says"),
        ("Mistake: frees twice\nSanitizer: double-free\nOnly: yes\n", "lacks the line 'Killed-by"),
    ],
)
def test_mistakes_are_named(header: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        mutant(header)


@pytest.mark.parametrize(
    ("header", "failures", "said"),
    [
        (HEADER, DUE, ""),
        (HEADER, DUE | {"bitwise": "x"}, ""),
        (HEADER, {}, "survives"),
        (HEADER, {"mean": DUE["mean"]}, "should fail order"),
        (HEADER, {"mean": "rank 0 died: SIGSEGV", "order": "wrong order"}, "without saying"),
        (ONLY, DUE | {"bitwise": "x"}, "no other test should fail, but bitwise"),
        (HEADER.replace("mean,", "means,"), DUE, "no test of the stage: means"),
        (HEADER + "Score: 0\n", DUE, "should get 0 points, and gets 1"),
        (HEADER + "Loses: 4\n", DUE, "lose no more than 4 points, and loses 5"),
    ],
)
def test_a_mutant_that_does_not_die_as_it_should_is_found(header: str, failures: dict[str, str], said: str) -> None:
    found = "; ".join(mutants.faults(mutant(header), report(**failures)))
    assert said in found and bool(found) == bool(said)


def test_a_run_that_broke_off_is_found() -> None:
    broken = report(**DUE)
    broken.results[1].status = Status.NOT_RUN
    assert mutants.faults(mutant(), broken) == ["it has no verdict on bitwise"]


def test_a_test_without_a_mutant_of_its_own_is_found() -> None:
    own = mutant(ONLY.replace("mean, order", "mean"))
    assert mutants.not_needed(SPECS, [mutant(), own]) == ["bitwise", "order"]


@pytest.mark.parametrize("stage", graded_stages(), ids=lambda stage: stage.name)
def test_each_mutant_and_variant_of_the_lab_fits_its_solution_and_changes_it(stage: Stage, tmp_path: Path) -> None:
    known, solution = mutants.load(stage), in_place.solution_of(stage).parent
    assert 0 in {each.score for each in known}  # an empty solution is among them
    for each in (*known, *(variant for variant in variants.variants_of(stage) if variant.edits)):
        write_edited(stage, each.edits, tmp_path)
        assert any(path.read_bytes() != (solution / path.name).read_bytes() for path in tmp_path.iterdir()), each.name


RACE = f"""\
WARNING: ThreadSanitizer: data race (pid=2525)
  Write of size 8 at 0x7b58000a4e88 by thread T1 (mutexes: write M0):
    #0 std::vector<int>::push_back(int const&) /usr/include/c++/12/bits/stl_vector.h:1280 (libddp.so+0x8ada4)
    #1 ddp::Clocks::wait(long) {ROOT}/common/ddp/clocks.cpp:12:3 (libddp.so+0x8ada4) (BuildId: fd2a)
    #2 invoke {ROOT}/.venv/lib/torch/include/c10/util/x.h:5:1 (libddp.so+0x8ada4)
    #3 serve {ROOT}/common/ddp/futures.cpp:101:14 (libddp.so+0x8ada4)

  Previous read of size 8 at 0x7b58000a4e88 by main thread:
    #0 now {ROOT}/common/ddp/clocks.h:49:45 (libddp.so+0x8ada4)

SUMMARY: ThreadSanitizer: data race {ROOT}/common/ddp/clocks.cpp:12:3 in ddp::Clocks::wait(long)
"""
FREED = f"""\
==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x60600 at pc 0x7f4 bp 0x7ff sp 0x7fd
    #0 0x7f4ae in void run(int, char const*) {ROOT}/tests/02_overlapped_ddp/07_lifetime.cpp:84
SUMMARY: AddressSanitizer: heap-use-after-free
"""


def write(environment: dict[str, str], text: str) -> None:
    """A process's report."""
    (path,) = {path for options in environment.values() for path in re.findall(r'log_path="(.*?)"', options)}
    if text:
        Path(f"{path}.77").write_text(text)


each_sanitizer = pytest.mark.parametrize("sanitizer", (ADDRESS, THREAD), ids=lambda each: each.name)


def test_a_mistake_that_is_not_reported_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or silence would mean nothing."""

    def run(_: Context, command: list[str], log: Path, env: dict[str, str]) -> tuple[int, str]:
        write(env, reported[-1])
        return 0, "FATAL: unexpected memory mapping"

    monkeypatch.setattr(Context, "run", run)
    monkeypatch.setattr(sanitizers, "second_build", lambda context, *_: context)
    due = RACE.replace("common/ddp/clocks.h", sanitizers.MISTAKES)
    reported = [due]
    sanitizers.build(context(build_dir=str(tmp_path)), THREAD)
    for other in ("", RACE, due.replace("data race", "")):
        reported.append(other)
        with pytest.raises(LabError, match="ThreadSanitizer does not report the data race(?s:.*)sudo sysctl"):
            sanitizers.build(context(build_dir=str(tmp_path)), THREAD)


@pytest.mark.parametrize(
    ("kind", "reported", "said"),
    [
        ("heap-use-after-free", FREED, ""),
        ("heap-use-after-free", "", "reports nothing"),
        ("double-free", FREED, "double-free, and reports heap-use-after-free"),
    ],
)
def test_a_mutant_dies_of_the_report_that_it_names(kind: str, reported: str, said: str, tmp_path: Path) -> None:
    def grade(self: Mutant, other: Context, tests: list[TestSpec], options: RunOptions) -> tuple[StageReport, Path]:
        write(options.environment, reported)
        return report(), tmp_path / "tests.log"

    other = context(build_dir=str(tmp_path))
    with mock.patch.object(Context, "graded_tests", return_value=[]), mock.patch.object(Mutant, "grade", grade):
        due = mutant(f"Mistake: hooks leak\nSanitizer: {kind}\n")
        found = sanitizers.try_mutant(other, due, Watched(other, ADDRESS, "hooks_leak"))
    assert said in found and bool(found) == bool(said)


@each_sanitizer
def test_each_test_that_it_treats_apart_exists(sanitizer: Watcher) -> None:
    text = "".join(path.read_text() for path in (ROOT / "tests" / "harness").glob("*.cpp"))
    tests = {".".join(names) for names in re.findall(r"^(?:CHILD_)?TEST(?:_F)?\((\w+), (\w+)\)", text, re.MULTILINE)}
    assert tests >= {*sanitizer.cannot_run, *(f"Sanitizer.DISABLED_{test}" for test in sanitizer.mistakes)}
