"""The whole lab under a sanitizer: tools/checking/sanitizers.py."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

import pytest

from tests.tools.checking_helpers import context, mutant, report
from tests.tools.setup_helpers import script
from tools.checking import sanitizers
from tools.checking.context import Context
from tools.checking.mutants import Mutant
from tools.checking.sanitizers import ADDRESS, THREAD, Watched
from tools.grading.debugging import sanitizer_reports
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import StageReport, TestSpec
from tools.setup.toolchain import ROOT, LabError

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
{ROOT}/tests/common/sanitizer_test.cpp:34:23: runtime error: signed integer overflow: 2147483647 + 1
    #0 0x7f12 in operator() {ROOT}/tests/common/sanitizer_test.cpp:34:23
SUMMARY: UndefinedBehaviorSanitizer: signed-integer-overflow
"""
FREED = f"""\
==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x60600 at pc 0x7f4 bp 0x7ff sp 0x7fd
    #0 0x7f4ae in void run(int, char const*) {ROOT}/tests/02_overlapped_ddp/07_lifetime.cpp:84
SUMMARY: AddressSanitizer: heap-use-after-free
"""


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
    assert "    tests/common/sanitizer_test.cpp:34 in operator()" in found[1][0]


def test_a_link_to_nothing_tells_no_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian's alternatives leave one where another clang was removed."""
    (tmp_path / "llvm-symbolizer").symlink_to("gone")
    addr2line = script(tmp_path / "addr2line", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    for options in ADDRESS.environment(Path("/reports")).values():
        assert f':external_symbolizer_path="{addr2line}"' in options


def write(environment: dict[str, str], text: str) -> None:
    """A process's report."""
    (path,) = {path for options in environment.values() for path in re.findall(r'log_path="(.*?)"', options)}
    if text:
        Path(f"{path}.77").write_text(text)


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


def test_a_report_of_any_process_is_told(tmp_path: Path) -> None:
    watched = Watched(context(build_dir=str(tmp_path)), THREAD, "solution")
    assert watched.reported() == ""
    write(watched.environment, RACE)
    assert watched.reported().splitlines()[0] == "common/ddp/clocks.cpp:12, common/ddp/clocks.h:49"


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
    with mock.patch.object(Context, "tests_of", return_value=[]), mock.patch.object(Mutant, "grade", grade):
        due = mutant(f"Mistake: hooks leak\nSanitizer: {kind}\n")
        found = sanitizers.try_mutant(other, due, Watched(other, ADDRESS, "hooks_leak"))
    assert said in found and bool(found) == bool(said)
