"""The whole lab under a sanitizer: tools/checking/sanitizers.py."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

import pytest

from tests.tools.checking_test import context, mutant, report
from tests.tools.setup_test import script
from tools.checking import sanitizers
from tools.checking.context import Context, Outcome
from tools.checking.mutants import Mutant
from tools.checking.sanitizers import ADDRESS, THREAD, Watcher
from tools.grading.other_ways import sanitizer_reports
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import StageReport, TestSpec
from tools.setup.toolchain import ROOT

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
SHORT = """\
WARNING: ThreadSanitizer: data race
  Write of size 8 by thread T1 (mutexes: write M0):
    common/ddp/clocks.cpp:12 in ddp::Clocks::wait(long)
    common/ddp/futures.cpp:101 in serve
  Previous read of size 8 by main thread:
    common/ddp/clocks.h:49 in now
"""
OVERFLOW = f"""\
{ROOT}/tests/harness/sanitizer_test.cpp:34:23: runtime error: signed integer overflow: 2147483647 + 1
    #0 0x7f12 in operator() {ROOT}/tests/harness/sanitizer_test.cpp:34:23
SUMMARY: UndefinedBehaviorSanitizer: signed-integer-overflow
"""
FREED = f"""\
==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x60600 at pc 0x7f4 bp 0x7ff sp 0x7fd
    #0 0x7f4ae in void run(int, char const*) {ROOT}/tests/02_overlapped_ddp/07_lifetime.cpp:84
SUMMARY: AddressSanitizer: heap-use-after-free
"""
MISTAKES = {
    THREAD: RACE.replace("common/ddp/clocks.h", sanitizers.MISTAKES),
    ADDRESS: OVERFLOW + FREED.replace("tests/02_overlapped_ddp/07_lifetime.cpp", sanitizers.MISTAKES),
}


def test_of_a_report_the_useful_part_is_shown() -> None:
    text, (_, *innermost) = sanitizer_reports.summarize(RACE)
    assert text.startswith(SHORT) and innermost == ["common/ddp/clocks.cpp:12", "common/ddp/clocks.h:49"]


def test_each_is_found_once_in_whichever_process(tmp_path: Path) -> None:
    again = RACE.replace("serve", "other") + OVERFLOW.replace("2147483647 + 1", "2147483646 + 2")
    for pid, text in {3: RACE + OVERFLOW, 7: again, 8: "FATAL: cut off"}.items():
        (tmp_path / f"report.{pid}").write_text(text)
    (tmp_path / "mistake.9").write_text("WARNING: of another run\n")
    found = [*sanitizer_reports.found(tmp_path / "report").values()]
    assert [path.name for _, path in found] == ["report.3", "report.3", "report.8"]
    assert "    tests/harness/sanitizer_test.cpp:34 in operator()" in found[1][0]


def test_a_link_to_nothing_tells_no_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian's alternatives leave one where another clang was removed."""
    (tmp_path / "llvm-symbolizer").symlink_to("gone")
    addr2line = script(tmp_path / "addr2line", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    for options in ADDRESS.environment(Path("/reports")).values():
        assert f':external_symbolizer_path="{addr2line}"' in options


class Run:
    """A run in which nothing is built: each mistake on purpose is reported as `mistake`, the solutions as `report`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.context, self.shards = context(build_dir=str(folder)), []
        for name, value in {
            "is_installed": lambda *_: True,
            "second_build": lambda *_: (self.context, ""),
            "grade_solutions": self.grade,
            "graded_stages": lambda: [],
            "run_shard": self.shard,
            "CORES": 2,
        }.items():
            monkeypatch.setattr(sanitizers, name, value)
        monkeypatch.setattr(Context, "run", lambda _, *arguments: self.try_mistake(*arguments))

    def check(self, sanitizer: Watcher, mistake: str, report: str = "") -> Outcome:
        self.mistake, self.report, self.shards = mistake, report, []
        return sanitizers.check(sanitizer, self.context)

    def try_mistake(self, command: list[str], log: Path, env: dict[str, str]) -> tuple[int, str]:
        write(env, self.mistake)
        return 0, "FATAL: unexpected memory mapping"

    def grade(self, other: Context, options: RunOptions, untimed: bool) -> Outcome:
        write(options.environment, self.report)
        return Outcome(5)

    def shard(self, other: Context, program: str, index: int, env: dict[str, str]) -> Outcome:
        self.shards.append(env["GTEST_FILTER"])
        return Outcome(1)


def write(environment: dict[str, str], text: str) -> None:
    """A process's report."""
    (path,) = {path for options in environment.values() for path in re.findall(r'log_path="(.*?)"', options)}
    if text:
        Path(f"{path}.77").write_text(text)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


each_sanitizer = pytest.mark.parametrize("sanitizer", MISTAKES, ids=lambda each: each.name)


@each_sanitizer
def test_silence_passes_and_what_cannot_run_is_skipped(sanitizer: Watcher, run: Run) -> None:
    outcome = run.check(sanitizer, MISTAKES[sanitizer])
    assert (outcome.passed, outcome.failures, len(outcome.skipped)) == (7, [], len(sanitizer.cannot_run))
    assert run.shards == ["-" + ":".join(sanitizer.cannot_run)] * 2


def test_a_report_fails_it_though_all_tests_pass(run: Run) -> None:
    (failure,) = run.check(THREAD, MISTAKES[THREAD], RACE).failures
    assert failure.splitlines()[0] == "SANITIZE=thread: common/ddp/clocks.cpp:12, common/ddp/clocks.h:49"
    assert "common/ddp/clocks.h:49 in now" in failure and "report.77" in failure


@each_sanitizer
def test_a_mistake_that_is_not_reported_fails_it_and_nothing_else_runs(sanitizer: Watcher, run: Run) -> None:
    mistake = MISTAKES[sanitizer]
    for kind in sanitizer.mistakes.values():
        for wrong in ("", mistake.replace(sanitizers.MISTAKES, "common/a.cpp"), mistake.replace(kind, "")):
            outcome = run.check(sanitizer, wrong)
            assert (outcome.passed, len(outcome.failures), run.shards) == (0, 1, [])
            for said in (f"SANITIZE={sanitizer.name} does not report the ", "FATAL: unexpected memory", "sudo sysctl"):
                assert said in outcome.failures[0]


@each_sanitizer
def test_a_compiler_without_it_is_skipped(sanitizer: Watcher, tmp_path: Path) -> None:
    outcome = sanitizers.check(sanitizer, context(build_dir=str(tmp_path), cxx="echo"))
    assert (outcome.passed, outcome.failures, len(outcome.skipped)) == (0, [], 1)


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

    with (
        mock.patch.object(sanitizers, "graded_tests", return_value=[]),
        mock.patch.multiple(Mutant, grade=grade, compile=lambda *_: Outcome(1)),
    ):
        due = mutant(f"Mistake: hooks leak\nSanitizer: {kind}\n")
        outcome = sanitizers._try_in_place(context(build_dir=str(tmp_path)), ADDRESS, RunOptions(1), due)
    assert (said in "".join(outcome.failures), outcome.passed) == (True, int(not said))


@each_sanitizer
def test_each_test_that_it_treats_apart_exists(sanitizer: Watcher) -> None:
    text = "".join(path.read_text() for path in (ROOT / "tests" / "harness").glob("*.cpp"))
    tests = {".".join(names) for names in re.findall(r"^(?:CHILD_)?TEST(?:_F)?\((\w+), (\w+)\)", text, re.MULTILINE)}
    assert tests >= {*sanitizer.cannot_run, *(f"Sanitizer.DISABLED_{test}" for test in sanitizer.mistakes)}


def test_each_suppression_has_its_reason_above() -> None:
    for block in sanitizers.SUPPRESSIONS.read_text().split("\n\n"):
        lines = block.strip().splitlines()
        assert lines[0].startswith("# ") and sum(not line.startswith("#") for line in lines) <= 1, block
