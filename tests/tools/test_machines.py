"""Tests of `make check ONLY=machines`: would it notice, and is the table right? No system is made."""

from __future__ import annotations

import unittest
from unittest import mock

from tests.tools.checking_test import context
from tools.checking import check, machines, minimal_system, trials
from tools.checking.machine_list import CHECKS, MACHINES, Check, Machine
from tools.checking.minimal_system import Ran, System
from tools.grading.stages import BadChoice
from tools.setup.toolchain import LabError

TOLD = "before\n{}{}\nafter\n".format(*machines.MARKS)


class Here(System):
    """Runs scripts on this machine, as who runs the test."""

    def __init__(self, folder: str) -> None:
        self._context, self._user = context(build_dir=folder), ""

    def _enter(self) -> list[str]:
        return []

    def _as(self, user: str, script: str, seconds: float, env: dict[str, str] | None) -> list[str]:
        variables = [f"{name}={value}" for name, value in (env or {}).items()]
        return ["timeout", "--kill-after=1", str(seconds), "env", *variables, "bash", "-c", script]


class Verdicts(unittest.TestCase):
    def run_checks(self, *checks: Check) -> tuple[machines.Outcome, list[str]]:
        here = Here(str(self.folder))
        trial = machines.Trial(
            context(), Machine("here", "none", env={"CXX": "c++-99"}), self.folder, self.folder,
            {"lab": here, "grader": here},
        )  # fmt: skip
        with (
            mock.patch.object(machines, "CHECKS", checks),
            mock.patch.object(machines, "BUILT_WITH", 'echo "$CXX"'),
        ):
            return machines.run_checks(trial)

    def test_all_is_well(self) -> None:
        outcome, row = self.run_checks(Check("a", "echo 7 of 7", ("^7 of 7$",)), Check("b", "exit 2", (), 2))
        self.assertEqual((outcome.passed, outcome.failures), (2, []))
        self.assertEqual(row[:5], ["here", "root; CXX=c++-99", "c++-99", "0:00", "0:00"])

    def test_a_command_that_fails(self) -> None:
        outcome, row = self.run_checks(Check("a test", "echo why; exit 3", ()), Check("b", "true", ()))
        (failure,) = outcome.failures
        self.assertEqual((outcome.passed, row[3:5]), (1, [machines.FAILED, "0:00"]))
        for part in ("here: a test: it ended with code 3, not 0", "    why\n", "a_test.log"):
            self.assertIn(part, failure)

    def test_one_that_hangs_is_ended(self) -> None:
        outcome, row = self.run_checks(Check("a", "echo begun; sleep 1000", (), minutes=1 / 60))
        self.assertEqual((outcome.passed, row[3]), (0, machines.FAILED))
        self.assertIn("had not ended", outcome.failures[0])
        self.assertIn("begun", outcome.failures[0])

    def test_less_than_full_marks(self) -> None:
        full = CHECKS[0]
        self.assertEqual(machines.verdict(full, Ran(0, "x\nTotal  100 / 100 points\ny", 1)), "")
        self.assertIn("does not say", machines.verdict(full, Ran(0, "Total  80 / 100 points\n", 1)))
        self.assertIn("code 2", machines.verdict(full, Ran(2, "Total  100 / 100 points\n", 1)))

    def test_a_submission_with_less_than_it_should_get(self) -> None:
        graded = CHECKS[-1]
        right = "good gets 100.0\nempty gets 0\nhanging gets 85\nrank 0 hung\n"
        self.assertEqual(machines.verdict(graded, Ran(0, right, 1)), "")
        for wrong in (right.replace("100.0", "80.0"), right.replace("empty gets 0", "empty gets 5"), right[:-12]):
            self.assertIn("does not say", machines.verdict(graded, Ran(0, wrong, 1)))


class Table(unittest.TestCase):
    def setUp(self) -> None:
        self.table = self.folder / "machines.md"

    def row(self, machine: Machine, cell: str) -> list[str]:
        return [machine.name, *[cell] * (len(machines.TITLES) - 1)]

    def test_a_row_takes_the_place_of_the_one_before(self) -> None:
        self.table.write_text(TOLD)
        for machine, cell in ((MACHINES[1], "old"), (MACHINES[0], "first"), (MACHINES[1], "new")):
            machines.write_row(self.table, self.row(machine, cell))
        lines = self.table.read_text().splitlines()
        self.assertEqual((lines[0], lines[-1]), ("before", "after"))
        rows = [line.split(" | ")[:2] for line in lines if line.startswith("| ")]
        expected = [["| machine", machines.TITLES[1]], ["| ---", "---"]]
        self.assertEqual(rows, [*expected, [f"| {MACHINES[0].name}", "first"], [f"| {MACHINES[1].name}", "new"]])

    def test_a_page_without_its_marks_is_left_alone(self) -> None:
        self.table.write_text(machines.MARKS[0])
        with self.assertRaisesRegex(LabError, "lacks the line <!-- to here -->"):
            machines.write_row(self.table, self.row(MACHINES[0], "x"))

    def test_the_page_in_docs_has_the_table_of_these_checks(self) -> None:
        told = machines.TABLE.read_text().partition(machines.MARKS[0])[2].partition(machines.MARKS[1])[0].splitlines()
        self.assertEqual(told[0], machines._line(machines.TITLES))
        names = [line.split("|")[1].strip() for line in told[2:]]
        self.assertEqual(names, [machine.name for machine in MACHINES if machine.name in names])


class Choices(unittest.TestCase):
    def test_machines_by_name(self) -> None:
        self.assertEqual(machines.chosen(""), list(MACHINES))
        self.assertEqual(machines.chosen(MACHINES[2].name), [MACHINES[2]])
        with self.assertRaisesRegex(BadChoice, "MACHINE=vax is not one of"):
            machines.chosen("vax")

    def test_they_run_only_when_asked_for(self) -> None:
        self.assertEqual(trials.KINDS["machines"].labels, (trials.APART,))
        with mock.patch("sys.argv", ["make check", "--only=machines format"]):
            self.assertEqual(check.parse_arguments().only, ["machines", "format"])
        with mock.patch("sys.argv", ["make check", "--only=machine"]):
            with self.assertRaisesRegex(BadChoice, "ONLY=machine is not one of: machines"):
                check.parse_arguments()

    def test_where_none_can_be_made_that_is_skipped_and_says_what_to_do(self) -> None:
        without_root = mock.patch("os.geteuid", return_value=1000)
        without_tool = mock.patch("shutil.which", return_value=None)
        for lack, said in ((without_root, "as root"), (without_tool, "only root|apt-get install debootstrap")):
            with lack:
                outcome = machines.check_machines(context())
            self.assertEqual((outcome.passed, outcome.failures), (0, []))
            self.assertRegex(outcome.skipped[0], said)


class Network(unittest.TestCase):
    def test_a_system_gets_the_hosts_certificates_by_another_name(self) -> None:
        host = {"PIP_CERT": str(minimal_system.CERTIFICATES), "HTTPS_PROXY": "http://proxy:1", "SECRET": "x"}
        with mock.patch.dict("os.environ", host, clear=True):
            found = minimal_system._network()
        name = f"/{minimal_system.COPIED[minimal_system.CERTIFICATES]}"
        self.assertEqual(found.pop("PIP_CACHE_DIR"), "/var/cache/pip")
        self.assertEqual(found, {"PIP_CERT": name, "HTTPS_PROXY": "http://proxy:1"})
