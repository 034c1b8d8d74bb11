"""Tests of `make check ONLY=machines`, and of what is built for arm64: would they notice, and is the table right? No
system is made."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from tests.tools.checking_test import context
from tools.checking import arm64, machines, minimal_system
from tools.checking.machine_list import CHECKS, MACHINES, Check, Machine
from tools.checking.minimal_system import Ran, System
from tools.grading.stages import BadChoice
from tools.setup.system_packages import Need
from tools.setup.toolchain import LabError


class Here(System):
    """Runs scripts on this machine, as who runs the test."""

    def __init__(self, folder: Path) -> None:
        self._context, self._user = context(build_dir=str(folder)), ""

    def _enter(self) -> list[str]:
        return []

    def _as(self, user: str, script: str, seconds: float, env: dict[str, str] | None) -> list[str]:
        variables = [f"{name}={value}" for name, value in (env or {}).items()]
        return ["timeout", "--kill-after=1", str(seconds), "env", *variables, "bash", "-c", script]


@pytest.mark.parametrize(
    ("check", "cell", "said"),
    [
        (Check("a test", "echo 7 of 7", ("^7 of 7$",)), "0:00", []),
        (Check("a test", "exit 2", (), 2), "0:00", []),
        (
            Check("a test", "echo why; exit 3", ()),
            machines.FAILED,
            ["here: a test: it ended with code 3, not 0", "    why\n", "a_test.log"],
        ),
        (Check("a test", "echo begun; sleep 1000", (), minutes=1 / 60), machines.FAILED, ["had not ended", "begun"]),
    ],
)
def test_what_a_check_ends_with_is_its_cell(
    check: Check, cell: str, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "CHECKS", (check, Check("b", "true", ())))
    monkeypatch.setattr(machines, "BUILT_WITH", 'echo "$CXX"')
    here, machine = Here(tmp_path), Machine("here", "none", env={"CXX": "c++-99"})
    trial = machines.Trial(context(), machine, tmp_path, tmp_path, {"lab": here, "grader": here})
    outcome, row = machines.run_checks(trial)
    assert (outcome.passed, len(outcome.failures)) == ((1, 1) if said else (2, 0))
    assert all(part in outcome.failures[0] for part in said)
    assert row[:5] == ["here", "root; CXX=c++-99", "c++-99", cell, "0:00"]


GRADED = "good gets 100.0\nempty gets 0\nhanging gets 85\nrank 0 hung\n"


@pytest.mark.parametrize(
    ("check", "ran", "wrong"),
    [
        (CHECKS[0], Ran(0, "x\nTotal  100 / 100 points\ny", 1), ""),
        (CHECKS[0], Ran(0, "Total  80 / 100 points\n", 1), "does not say"),
        (CHECKS[0], Ran(2, "Total  100 / 100 points\n", 1), "code 2"),
        (CHECKS[-1], Ran(0, GRADED, 1), ""),
        (CHECKS[-1], Ran(0, GRADED.replace("100.0", "80.0"), 1), "does not say"),
        (CHECKS[-1], Ran(0, GRADED.replace("empty gets 0", "empty gets 5"), 1), "does not say"),
        (CHECKS[-1], Ran(0, GRADED.removesuffix("rank 0 hung\n"), 1), "does not say"),
    ],
)
def test_less_than_it_should_get_is_found(check: Check, ran: Ran, wrong: str) -> None:
    verdict = machines.verdict(check, ran)
    assert wrong in verdict and bool(verdict) == bool(wrong)


def test_a_row_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    table = tmp_path / "machines.md"
    table.write_text("before\n{}{}\nafter\n".format(*machines.MARKS))
    for machine, cell in ((MACHINES[1], "old"), (MACHINES[0], "first"), (MACHINES[1], "new")):
        machines.write_row(table, [machine.name, *[cell] * (len(machines.TITLES) - 1)])
    lines = table.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    rows = [line.split(" | ")[:2] for line in lines if line.startswith("| ")]
    assert rows[2:] == [[f"| {MACHINES[0].name}", "first"], [f"| {MACHINES[1].name}", "new"]]
    table.write_text(machines.MARKS[0])
    with pytest.raises(LabError, match="lacks the line <!-- to here -->"):
        machines.write_row(table, [])


def test_the_page_in_docs_has_the_table_of_these_checks() -> None:
    told = machines.TABLE.read_text().partition(machines.MARKS[0])[2].partition(machines.MARKS[1])[0].splitlines()
    assert told[0] == machines._line(machines.TITLES)
    names = [line.split("|")[1].strip() for line in told[2:]]
    assert names == [machine.name for machine in MACHINES if machine.name in names]


def test_machines_are_chosen_by_name() -> None:
    assert (machines.chosen(""), machines.chosen(MACHINES[2].name)) == ([*MACHINES], [MACHINES[2]])
    with pytest.raises(BadChoice, match="MACHINE=vax is not one of"):
        machines.chosen("vax")


@pytest.mark.parametrize(
    ("lack", "value", "said"),
    [("os.geteuid", 1000, "as root"), ("shutil.which", None, "only root|apt-get install debootstrap")],
)
def test_where_none_can_be_made_that_is_skipped_and_says_what_to_do(lack: str, value: object, said: str) -> None:
    with mock.patch(lack, return_value=value):
        outcome = machines.check_machines(context())
    assert (outcome.passed, outcome.failures) == (0, [])
    assert re.search(said, outcome.skipped[0])


def test_a_system_gets_the_hosts_certificates_by_another_name() -> None:
    host = {"PIP_CERT": str(minimal_system.CERTIFICATES), "HTTPS_PROXY": "http://proxy:1", "SECRET": "x"}
    with mock.patch.dict("os.environ", host, clear=True):
        found = minimal_system._network()
    cache, name = "/var/cache/pip", f"/{minimal_system.COPIED[minimal_system.CERTIFICATES]}"
    assert found == {"PIP_CERT": name, "HTTPS_PROXY": "http://proxy:1", "PIP_CACHE_DIR": cache}


def library(folder: Path, name: str, code: str) -> Path:
    path = folder / f"lib{name}.so"
    command = ["c++", "-x", "c++", "-", "-shared", "-fPIC", "-o", str(path)]
    subprocess.run(command, input=f'extern "C" {{ {code} }}', text=True, check=True)
    return path


def test_for_arm64_what_neither_the_build_nor_its_libraries_define_is_named(tmp_path: Path) -> None:
    there, own = (library(tmp_path, name, f"void {name}() {{}}") for name in ("there", "own"))
    uses = "void there(); void own(); void nowhere(); __attribute__((weak)) void weak();"
    user = library(tmp_path, "user", f"{uses} void call() {{ there(); own(); nowhere(); if (weak) weak(); }}")
    assert arm64.undefined([user, own], [there]) == [(user, "nowhere")]
    assert arm64.undefined([user], [there]) == [(user, "nowhere"), (user, "own")]


def test_for_arm64_what_is_missing_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = [Need("lld", "lld", lambda: "", ""), Need("nm", "binutils", lambda: "/usr/bin/nm", "")]
    monkeypatch.setattr(arm64, "NEEDS", needs)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("tools.setup.system_packages.can_install", lambda: False)
    (skipped,) = arm64.check_arm64(context(build_dir=str(tmp_path))).skipped
    assert skipped.startswith("lld: missing. ")
    assert skipped.endswith("apt-get install --no-install-recommends lld")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert "this machine is an arm64" in arm64.check_arm64(context()).skipped[0]
