"""When an autograder's image is ready, and when it must not come to be."""

from __future__ import annotations

import contextlib
import io
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from tools.course import prepare
from tools.grading.scoring.results import Status
from tools.setup.toolchain import LabError


class Prepare(unittest.TestCase):
    """Without the compiling and grading."""

    def prepare(self, statuses: dict[str, Status], there: bool = True) -> str:
        """What it says where stubs and solutions end so; the solutions are gone then, whatever it says."""
        solutions = self.folder / "solutions"
        if there:
            solutions.mkdir()

        def graded(submission: Path) -> list[SimpleNamespace]:
            self.assertTrue(submission.exists())
            return [SimpleNamespace(status=statuses[submission.name], spec=SimpleNamespace(name="a_test"))]

        builder = mock.Mock(build=lambda *_: {})
        said = io.StringIO()
        with (
            mock.patch.multiple(prepare, Builder=lambda _: builder, TestLists=mock.Mock(), graded=graded),
            mock.patch.object(sys, "argv", ["prepare", str(solutions)]),
            contextlib.redirect_stdout(said),
        ):
            try:
                prepare.main()
            except LabError as error:
                said.write(str(error))
        self.assertFalse(solutions.exists())
        return said.getvalue()

    def test_ends_where_solutions_lose_points(self) -> None:
        said = self.prepare({"assignments": Status.TODO, "solutions": Status.FAILED})
        self.assertIn("The solutions were graded on this system, and these tests took points from them", said)

    def test_ends_where_a_stub_is_no_stub(self) -> None:
        self.assertIn("The stubs were graded", self.prepare({"assignments": Status.FAILED, "solutions": Status.PASSED}))

    def test_is_ready_where_both_are_right(self) -> None:
        self.assertRegex(
            self.prepare({"assignments": Status.TODO, "solutions": Status.PASSED}), r"Ready to grade \d stages"
        )

    def test_is_ready_the_second_time_when_no_solution_is_there(self) -> None:
        said = self.prepare({"assignments": Status.TODO}, there=False)
        self.assertIn("There are no solutions here", said)
        self.assertRegex(said, r"Ready to grade \d stages")
