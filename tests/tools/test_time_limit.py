"""How long a submission may take: a busy machine costs it nothing, and what spins or sleeps comes to an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Iterator

from tests.tools.grading_test import wait_for
from tools.course.time_limit import Budget, Part, Seconds, processor_seconds

SPIN = "while True: pass"
BURN = "import time\nwhile time.process_time() < 0.3: pass"
PATIENCE_S = 30


def child_of_a_child(code: str) -> list[str]:
    return [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"]


class ProcessorTime(unittest.TestCase):
    def test_is_of_what_has_ended_too(self) -> None:
        before = processor_seconds()
        subprocess.run(child_of_a_child(BURN), check=True)
        self.assertGreaterEqual(processor_seconds() - before, 0.25)

    def test_is_of_what_still_runs(self) -> None:
        before = processor_seconds()
        with subprocess.Popen(child_of_a_child(SPIN), start_new_session=True) as process:
            try:
                wait_for(lambda: processor_seconds() - before > 0.3, "processor time of a grandchild", PATIENCE_S)
            finally:
                os.killpg(process.pid, signal.SIGKILL)


class Limit(unittest.TestCase):
    def run_for(self, code: str, allowed: Seconds) -> Part:
        """Runs it until it is stopped, as the grader does."""
        stopping = threading.Event()
        with Budget(allowed, look_s=0.05).part(1, stopping) as part:
            process = subprocess.Popen([sys.executable, "-c", code])
            stopped = stopping.wait(PATIENCE_S)
            process.kill()
            process.wait()
        self.assertTrue(stopped, "it was not stopped")
        return part

    def test_what_spins_ends_by_processor_time(self) -> None:
        part = self.run_for(SPIN, Seconds(processor=0.4, clock=1000))
        self.assertRegex(part.exceeded, "s of processor time in all")

    def test_what_sleeps_ends_by_the_clock(self) -> None:
        part = self.run_for("import time; time.sleep(1000)", Seconds(processor=1000, clock=1))
        self.assertEqual(part.exceeded, "longer than 1 s in all")


class Shares(unittest.TestCase):
    """With a clock that says what it is told."""

    def setUp(self) -> None:
        self.time = Seconds(100, 5000)
        self.looks = 0

    def now(self) -> Seconds:
        self.looks += 1
        return self.time

    def take(self, budget: Budget, parts: int, used: Seconds) -> tuple[Part, bool]:
        stopping = threading.Event()
        with budget.part(parts, stopping) as part:
            self.time = Seconds(*map(sum, zip(self.time, used)))
            for _ in self.a_look():
                time.sleep(0.001)
        return part, stopping.is_set()

    def a_look(self) -> Iterator[None]:
        """Until there was one that saw what is now."""
        seen, end = self.looks + 2, time.monotonic() + PATIENCE_S
        while self.looks < seen and time.monotonic() < end and threading.active_count() > 1:
            yield

    def test_a_busy_machine_costs_nothing(self) -> None:
        budget = Budget(Seconds(processor=440, clock=400), self.now, 0.001)
        for parts in (5, 4, 3, 2, 1):
            part, stopped = self.take(budget, parts, Seconds(processor=8, clock=60))
            self.assertEqual((part.exceeded, stopped), ("", False), "five times as slow as on two idle cores")

    def test_a_part_is_a_share_of_what_is_left(self) -> None:
        budget = Budget(Seconds(processor=100, clock=1000), self.now, 0.001)
        self.assertEqual(self.take(budget, 2, Seconds(10, 20))[0].allowed, Seconds(50, 500))
        part, stopped = self.take(budget, 1, Seconds(91, 0))
        self.assertEqual((part.allowed, stopped), (Seconds(90, 980), True))
        self.assertEqual(part.exceeded, "longer than 90 s of processor time in all")


if __name__ == "__main__":
    unittest.main()
