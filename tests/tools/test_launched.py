"""`make test` as one of a launcher's ranks, on one machine and on several: tools/grading/other_ways/launched.py."""

from __future__ import annotations

import sys
import unittest

import pytest

from tests.harness.hosts import HostsTest
from tools.grading import stages
from tools.grading.other_ways import launched
from tools.setup.toolchain import BUILD_DIR

ALL_STAGES = BUILD_DIR / "bin" / "all_stages"
SOLUTIONS = BUILD_DIR / "stages" / "solutions"


class Rank(unittest.TestCase):
    def test_by_the_variables_of_launchers(self) -> None:
        job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
        for environment, expected in (
            ({}, None),
            ({"RANK": "1"}, None),  # some other program's
            ({"RANK": "0", "WORLD_SIZE": "1"}, None),  # as in a container of one
            ({"RANK": "1", "WORLD_SIZE": "2"}, 1),
            ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, 3),
            ({"PMI_RANK": "1", "PMI_SIZE": "2"}, 1),
            (job, None),  # the shell of salloc, or a batch script
            ({**job, "SLURM_STEP_ID": "0", "SLURM_PROCID": "1"}, 1),
        ):
            with self.subTest(environment):
                self.assertEqual(launched.rank(environment), expected)


class SeveralMachines(HostsTest):
    def test_every_stage_computes_what_one_process_does(self) -> None:
        needed = [ALL_STAGES, *(SOLUTIONS / stage.name / "libstage.so" for stage in stages.all_stages())]
        if missing := [str(path) for path in needed if not path.exists()]:
            self.skipTest(f"skipped: {', '.join(missing)} is not built")
        ranks = self.start_ranks(str(ALL_STAGES), "--impl", "solutions")
        (code, text), (other, silence) = self.finish(ranks)
        self.assertEqual((code, other, silence), (0, 0, ""), text)
        self.assertEqual(text.count("2 ranks on 2 machines agree with one process\n"), len(stages.all_stages()), text)

    @pytest.mark.slow
    def test_make_test_grades_once(self) -> None:
        """All ranks run a step together; rank 0 alone has the scorecard. None waits for another's build for ever."""
        grade = [sys.executable, "-m", "tools.grading.grade", "--stage=05", "--impl=solutions"]
        (code, text), (other, said) = self.finish(self.start_ranks(*grade))
        self.assertEqual((code, other), (0, 0), text + said)
        self.assertRegex(text, r"05_ring_all_reduce .* 2 ranks on 2 machines agree with one process\n")
        self.assertIn("The graded tests, all of whose ranks run on this machine", text)
        self.assertIn("Total  20 / 20 points", text)
        self.assertNotIn("points", said)
