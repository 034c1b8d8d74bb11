"""How long a submission may take: a busy machine costs it nothing, and what spins or sleeps comes to an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

from tests.tools.grading_test import wait_for
from tools.course.time_limit import Budget, Part
from tools.grading.running.waiting_clock import Look, Silence, look, seconds_between

SPIN = "while True: pass"
SLEEP = "import time; time.sleep(1000)"
BURN = "import time\nwhile time.process_time() < 0.3: pass"
PATIENCE_S = 60


def child_of_a_child(code: str) -> list[str]:
    return [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"]


class Looks(unittest.TestCase):
    def test_processor_time_is_of_what_has_ended_too(self) -> None:
        before = look()
        subprocess.run(child_of_a_child(BURN), check=True)
        self.assertGreaterEqual(look().processor - before.processor, 0.25)

    def test_what_still_runs_is_seen_and_so_is_what_sleeps(self) -> None:
        before = look()
        for code, ready in ((SPIN, True), (SLEEP, False)):
            with subprocess.Popen(child_of_a_child(code), start_new_session=True) as process:
                try:
                    wait_for(lambda ready=ready: look().ready is ready, f"a look at {code}", PATIENCE_S)
                    if ready:
                        wait_for(lambda: look().processor - before.processor > 0.3, "processor time", PATIENCE_S)
                finally:
                    os.killpg(process.pid, signal.SIGKILL)

    def test_what_ends_while_it_is_looked_at_is_passed_over(self) -> None:
        with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
            process.wait()
        with mock.patch("tools.grading.running.waiting_clock.descendants", return_value={process.pid: process.pid}):
            self.assertFalse(look().ready)

    def test_time_stands_still_for_those_who_wait_for_a_processor(self) -> None:
        began = Look(1000, 50, True)
        for what, now, seconds in (
            ("spins on an idle machine, with two cores", Look(1010, 70, True), 10),
            ("spins on a busy one", Look(1010, 51, True), 1),
            ("sleeps", Look(1010, 50, False), 10),
            ("lost a process while it was looked at", Look(1010, 49, True), 0),
        ):
            self.assertEqual(seconds_between(began, now), seconds, what)


class Silences(unittest.TestCase):
    def test_grow_by_that_clock_and_end_when_broken(self) -> None:
        looks = iter([Look(0, 50, True), Look(100, 51, True), Look(110, 51, False)])
        silence = Silence(lambda: next(looks))
        self.assertEqual([silence.went_on(), silence.went_on()], [1, 11])
        silence.broken()
        self.assertEqual(silence.seconds, 0)


class Limit(unittest.TestCase):
    def test_what_spins_or_sleeps_ends(self) -> None:
        for code in (SPIN, SLEEP):
            stopping = threading.Event()
            with Budget(1, look_s=0.05).part(1, stopping) as part:
                process = subprocess.Popen([sys.executable, "-c", code])
                stopped = stopping.wait(PATIENCE_S)
                process.kill()
                process.wait()
            self.assertTrue(stopped and part.exceeded, code)


class Shares(unittest.TestCase):
    """With looks that see what they are told."""

    def setUp(self) -> None:
        self.now, self.looks = Look(1000, 50, True), 0

    def look(self) -> Look:
        self.looks += 1
        return self.now

    def take(self, budget: Budget, parts: int, clock: float, processor: float) -> tuple[Part, bool]:
        stopping = threading.Event()
        with budget.part(parts, stopping) as part:
            self.now = Look(self.now.clock + clock, self.now.processor + processor, True)
            seen, end = self.looks + 2, time.monotonic() + PATIENCE_S
            while self.looks < seen and not stopping.is_set() and time.monotonic() < end:
                time.sleep(0.001)
        return part, stopping.is_set()

    def test_a_busy_machine_costs_nothing(self) -> None:
        budget = Budget(220, self.look, 0.001)
        for parts in (5, 4, 3, 2, 1):
            part, stopped = self.take(budget, parts, clock=500, processor=9)
            self.assertEqual((part.exceeded, stopped), (False, False), "the machine had little time for it")

    def test_a_part_is_a_share_of_what_is_left(self) -> None:
        budget = Budget(100, self.look, 0.001)
        self.assertEqual(self.take(budget, 2, clock=20, processor=10)[0].allowed, 50)
        part, stopped = self.take(budget, 1, clock=95, processor=91)
        self.assertEqual((part.allowed, part.exceeded, stopped), (90, True, True))
