"""The grader among cheats and accidents: nothing gained, nothing lost, nothing left running."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
from xml.etree import ElementTree

from tests.tools.grading_test import ALL_PASS, GraderTest, alive, processes_in, wait_for
from tools.grading.running.records import DISTURBED


class Cheats(GraderTest):
    """Scores come from the record stream alone."""

    def assert_no_points(self, student: str) -> str:
        done = self.grade(student)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.checkout.results()["score"], 0)
        return done.stdout

    def test_exit_0_without_records_gains_nothing(self) -> None:
        self.assertIn("without a verdict", self.assert_no_points("sys.exit(0)"))

    def test_printing_passed_gains_nothing(self) -> None:
        self.assert_no_points(
            """
            for test in TESTS:
                print(json.dumps({'event': 'test_finished', 'name': test['name'], 'status': 'passed'}))
                print('[  PASSED  ]', test['name'])
            sys.exit(0)
            """
        )

    def test_writing_the_result_files_gains_nothing(self) -> None:
        target = self.checkout.root / "build/grade/results.json"
        self.assert_no_points(f"open({str(target)!r}, 'w').write('{{\"score\": 15}}'); sys.exit(0)")

    def test_forged_records_cost_the_test_they_name(self) -> None:
        self.assert_no_points(
            """
            for test in TESTS:
                record(event='test_started', name=test['name'])
                record(event='test_finished', name=test['name'], status='passed', seconds=0, failures=[], measured=[])
            def run(name): return {'status': 'failed', 'failures': ['wrong']}
            """
        )

    def test_forged_records_and_then_a_crash_gain_nothing(self) -> None:
        self.assert_no_points(
            """
            for test in TESTS:
                record(event='test_started', name=test['name'])
                record(event='test_finished', name=test['name'], status='passed', seconds=0, failures=[], measured=[])
            record(event='run_finished')
            os.kill(os.getpid(), 9)
            """
        )

    def test_rubbish_in_the_stream_costs_the_test_under_way(self) -> None:
        done = self.grade(
            """
            def run(name):
                if name == 'gradients_equal_the_oracle':
                    write('rubbish\\n{"event": []}\\n[1]\\n"x"\\n\\x00\\n')
                    write('[' * 100000 + '\\n' + 'a' * 3000000 + '\\n')
                return {'status': 'passed'}
            """
        )
        self.assertEqual(self.checkout.statuses(), ["passed", "failed", "passed"])
        self.assertIn(DISTURBED, done.stdout)

    def test_odd_texts_reach_every_output(self) -> None:
        self.grade("def run(name): return {'status': 'failed', 'failures': ['\\x1b[2J \\x00 \\ud800 é', 7]}")
        self.assertEqual(self.checkout.statuses(), ["failed"] * 3)
        ElementTree.parse(self.checkout.root / "build/grade/junit.xml")


class Accidents(GraderTest):
    def test_a_crash_fails_the_test_under_way_and_keeps_the_others(self) -> None:
        done = self.grade(
            """
            def run(name):
                if name == 'gradients_equal_the_oracle':
                    print('about to crash', flush=True)
                    os.kill(os.getpid(), 11)
                return {'status': 'passed'}
            """
        )
        self.assertEqual(self.checkout.statuses(), ["passed", "failed", "not_run"])
        self.assertIn("killed by SIGSEGV", done.stdout)
        self.assertIn("about to crash", done.stdout)

    def test_a_gigabyte_of_output_is_bounded(self) -> None:
        done = self.grade(
            """
            for _ in range(1000):
                os.write(1, b'x' * 1000000)
            def run(name): return {'status': 'passed'}
            """,
            "--verbose",
        )
        self.assertEqual(done.returncode, 0)
        self.assertIn("bytes left out", done.stdout)
        self.assertLess(len(done.stdout), 3_000_000)

    def test_nothing_is_left_running(self) -> None:
        pids = self.checkout.root / "pids"
        done = self.grade(
            f"""
            if os.fork() == 0:
                os.setsid()  # a daemon, which would hold the pipes open
                if os.fork() == 0:
                    open({str(pids)!r}, 'w').write(str(os.getpid()))
                    time.sleep(600)
                os._exit(0)
            while not os.path.exists({str(pids)!r}) or not open({str(pids)!r}).read(): time.sleep(0.01)
            open(os.environ['TMPDIR'] + '/left', 'w').close()
            def run(name): return {{'status': 'passed'}}
            """
        )
        self.assertEqual(done.returncode, 0)
        self.assertFalse(alive(int(pids.read_text())))

    def test_what_multiplies_faster_than_it_is_found_is_stopped(self) -> None:
        done = self.grade(
            """
            if os.fork() == 0:
                os.setsid()
                end = time.monotonic() + 10
                while time.monotonic() < end:
                    if os.fork(): os._exit(0)
                os._exit(0)
            def run(name): return {'status': 'passed'}
            """
        )
        self.assertEqual(done.returncode, 0)

    def test_a_program_that_kills_its_guard_gains_nothing(self) -> None:
        pids = self.checkout.root / "pids"
        self.checkout.student(
            f"""
            open({str(pids)!r}, 'w').write(str(os.getpid()))
            os.kill(os.getppid(), 9)
            time.sleep(600)
            """
        )
        done = self.tool("grade")  # not self.grade: the guard's temporary folder may stay
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.checkout.statuses(), ["not_run"] * 3)
        self.assertFalse(alive(int(pids.read_text())))

    def test_a_program_that_hangs_is_stopped(self) -> None:
        runner = self.checkout.root / "tools/grading/running/runner.py"
        runner.write_text(runner.read_text().replace("SILENCE_S = 120.0", "SILENCE_S = 0.5"))
        done = self.grade(
            """
            def run(name):
                if name == 'gradients_equal_the_oracle':
                    while True: write('rubbish is no progress\\n'); time.sleep(0.1)
                return {'status': 'passed'}
            """
        )
        self.assertEqual(self.checkout.statuses(), ["passed", "failed", "not_run"])
        self.assertIn("the test program itself hung", done.stdout)

    def test_ctrl_c_keeps_what_was_found(self) -> None:
        self.end_by_signal(signal.SIGINT, 130)

    def test_sigterm_keeps_what_was_found(self) -> None:
        self.end_by_signal(signal.SIGTERM, 143)

    def test_sigkill_leaves_no_process(self) -> None:
        self.end_by_signal(signal.SIGKILL, -signal.SIGKILL)

    def end_by_signal(self, signum: int, exit_code: int) -> None:
        pids = self.checkout.root / "pids"
        process = self.start(
            f"""
            def run(name):
                if name != 'gradients_equal_the_oracle': return {{'status': 'passed'}}
                child = os.fork()
                if child == 0:
                    os.setsid()
                    time.sleep(600)
                open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child}} ')
                time.sleep(600)
            """
        )
        wait_for(lambda: pids.exists() and pids.read_text().endswith(" "), "the second test")
        wait_for(lambda: self.checkout.statuses()[:1] == ["passed"], "the first test's verdict, in the file")
        process.send_signal(signum)
        output = process.stdout.read()
        self.assertEqual(process.wait(20), exit_code)
        for pid in map(int, pids.read_text().split()):
            wait_for(lambda pid=pid: not alive(pid), f"the end of {pid}")
        wait_for(lambda: not list(self.temporary.iterdir()), "the removal of temporary files")
        self.assertNotIn("Traceback", output)
        self.assertEqual(self.checkout.statuses()[0], "passed")
        self.assertEqual(self.checkout.results()["score"], 5)
        self.assertEqual(self.checkout.kept_score(), None)

    def test_ctrl_c_at_random_moments(self) -> None:
        """Like a terminal's: to all in the foreground."""
        seed = random.randrange(10**6)
        chance = random.Random(seed)
        for _ in range(50 if os.environ.get("ALL") else 8):
            process = self.start(
                """
                def run(name):
                    time.sleep(0.1)
                    return {'status': 'passed'}
                """,
                start_new_session=True,
            )
            process.stdout.readline()  # it has begun
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0, 0.7))
            with self.subTest(seed=seed):
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGINT)
                output = process.stdout.read()
                self.assertIn(process.wait(20), (0, 130, -signal.SIGINT))  # the last as Python itself ends
                self.assertNotIn("Traceback", output)
                if said := re.search(r"(?:Stopped\. |Total  )(\d+)", output):
                    self.assertEqual(self.checkout.results()["score"], int(said[1]), output)
                else:
                    self.assertNotEqual(process.returncode, 0, output)
                self.assertEqual(list(self.temporary.iterdir()), [])
                self.assertEqual(list((self.checkout.root / "build/grade").glob(".*")), [])
                self.assertIn(self.checkout.kept_score(), (None, 15))  # what make submit packs is a whole run's
                self.assertEqual(processes_in(self.checkout.root), [])

    def test_a_program_that_is_stopped_is_ended(self) -> None:
        runner = self.checkout.root / "tools/grading/running/runner.py"
        runner.write_text(runner.read_text().replace("SILENCE_S = 120.0", "SILENCE_S = 0.5"))
        done = self.grade("def run(name): os.kill(os.getpid(), 19); return {'status': 'passed'}")
        self.assertEqual(self.checkout.statuses(), ["failed", "not_run", "not_run"])
        self.assertIn("the test program itself hung", done.stdout)
        self.assertEqual(processes_in(self.checkout.root), [])

    def test_ctrl_c_during_the_build(self) -> None:
        started = self.checkout.write("build_hangs", "")
        process = self.start(ALL_PASS)
        wait_for(lambda: started.read_text(), "the build")
        process.send_signal(signal.SIGINT)
        self.assertNotIn("Traceback", process.stdout.read())
        self.assertEqual(process.wait(20), 130)

    def test_result_files_that_cannot_be_written(self) -> None:
        results = self.checkout.root / "tools/grading/scoring/results.py"
        broken = "raise OSError(28, 'No space left on device')"
        results.write_text(results.read_text().replace("_write_whole(new, content)", broken))
        done = self.grade(ALL_PASS)
        self.assertEqual(done.returncode, 3)
        self.assertIn("Total  15 / 15", done.stdout)
        self.assertEqual(done.stderr.count("No space left on device"), 1)

    def test_results_of_an_earlier_run_never_stay(self) -> None:
        self.grade(ALL_PASS)
        self.grade("def run(name): return {'status': 'failed'}", "--test=broadcasts_rank_0")
        self.assertEqual(self.checkout.statuses(), ["failed"])
        self.checkout.write("common_is_broken", "")
        self.grade(ALL_PASS)
        self.assertEqual(self.checkout.statuses(), [])

    def test_a_second_run_waits_for_the_first(self) -> None:
        go = self.checkout.root / "go"
        started = self.checkout.root / "started"
        first = self.start(
            f"""
            open({str(started)!r}, 'w').close()
            while not os.path.exists({str(go)!r}): time.sleep(0.01)
            def run(name): return {{'status': 'passed'}}
            """
        )
        wait_for(started.exists, "the first run")
        second = subprocess.Popen(
            self.checkout.command("grade"),
            cwd=self.checkout.root,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        self.addCleanup(second.kill)
        self.assertIn(f"process {first.pid}", second.stdout.readline())
        go.touch()
        self.assertEqual(first.wait(20), 0)
        self.assertIn("Full marks", second.stdout.read())
        second.stdout.close()
        self.assertEqual(second.wait(20), 0)
