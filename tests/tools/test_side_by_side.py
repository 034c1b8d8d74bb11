"""Stages that are graded beside one another."""

from __future__ import annotations

import threading
import time
import unittest
from collections.abc import Callable
from concurrent.futures import Future

from tools.grading.scoring import side_by_side

PATIENCE_S = 60.0


class SideBySide(unittest.TestCase):
    """Stages are numbers here."""

    def setUp(self) -> None:
        self.stopping = threading.Event()
        self.begun: list[int] = []

    def in_order(self, run: Callable[[int], None], build: Future | None = None, at_a_time: int = 2):
        def begin(stage: int) -> None:
            self.begun.append(stage)
            run(stage)

        return side_by_side.in_order(range(4), lambda: build, begin, at_a_time, self.stopping)

    def test_two_run_at_a_time_and_come_in_their_order(self) -> None:
        both_run = threading.Barrier(2)
        ended = []

        def run(stage: int) -> None:
            both_run.wait(PATIENCE_S)  # broken, and an error, if they run one after another
            ended.append(stage)

        self.assertEqual(list(self.in_order(run)), [0, 1, 2, 3])
        self.assertEqual(sorted(ended), [0, 1, 2, 3])

    def test_one_that_is_built_does_not_wait_for_the_next_to_be(self) -> None:
        stages = self.in_order(lambda stage: None, build=Future())
        self.assertEqual(next(stages), 0)
        self.assertEqual(self.begun, [0])
        self.assertEqual(list(stages), [1, 2, 3])

    def test_the_next_begins_once_it_is_built_not_once_the_last_has_ended(self) -> None:
        build, next_began = Future(), threading.Event()

        def run(stage: int) -> None:
            if stage == 0:
                build.set_result("")
                self.assertTrue(next_began.wait(PATIENCE_S))
            next_began.set()

        self.assertEqual(list(self.in_order(run, build)), [0, 1, 2, 3])

    def test_a_third_does_not_wait_for_the_first_where_the_second_has_ended(self) -> None:
        third_began = threading.Event()

        def run(stage: int) -> None:
            if stage == 0:
                self.assertTrue(third_began.wait(PATIENCE_S))
            elif stage == 2:
                third_began.set()

        self.assertEqual(list(self.in_order(run)), [0, 1, 2, 3])

    def test_one_at_a_time_none_begins_before_the_last_one_is_taken(self) -> None:
        """Its results are to be written first, as nothing of the next stage's can touch them then."""
        for stage in self.in_order(lambda stage: None, at_a_time=1):
            time.sleep(0.02)  # for a thread that should not be there
            self.assertEqual(self.begun, list(range(stage + 1)))
        self.assertEqual(self.begun, [0, 1, 2, 3])

    def test_whoever_leaves_early_stops_those_that_run(self) -> None:
        stages = self.in_order(lambda stage: stage > 0 and self.assertTrue(self.stopping.wait(PATIENCE_S)))
        self.assertEqual(next(stages), 0)
        stages.close()  # returns, because the others are told to stop
        self.assertLess(len(self.begun), 4)

    def test_an_error_of_a_stage_is_raised_and_stops_the_others(self) -> None:
        def run(stage: int) -> None:
            if stage == 0:
                raise OSError("no such program")
            self.stopping.wait(PATIENCE_S)

        with self.assertRaisesRegex(OSError, "no such program"):
            next(self.in_order(run))
        self.assertTrue(self.stopping.is_set())
