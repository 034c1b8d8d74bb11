"""What the grader shows: choices, looks, the companions hint and watch."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
import unittest

from tests.tools.grading_test import ALL_PASS, GraderTest
from tools.grading.exit_codes import explain
from tools.grading.running.processes import BoundedText
from tools.grading.running.records import Records, printable
from tools.grading.scoring.results import Status, TestResult, TestSpec
from tools.setup.columns import fold_command


class Choices(GraderTest):
    def assert_refused(self, *expected: str, arguments: tuple[str, ...]) -> None:
        done = self.grade(ALL_PASS, *arguments)
        self.assertEqual(done.returncode, 2)
        for text in expected:
            self.assertIn(text, done.stderr)

    def test_every_spelling_of_a_stage(self) -> None:
        for text in ("01", "1", "01_naive_ddp", "naive_ddp"):
            self.assertEqual(self.grade(ALL_PASS, f"--stage={text}").returncode, 0)

    def test_unknown_values_list_the_valid_ones_the_closest_first(self) -> None:
        self.assert_refused("STAGE=01_naive is not one of: 01_naive_ddp, 02", arguments=("--stage=01_naive",))
        self.assert_refused("IMPL=solution is not one of: solutions, ass", arguments=("--impl=solution",))
        self.assert_refused("DEVICE=gpu is not one of: cpu, cuda", arguments=("--device=gpu",))
        self.assert_refused("SEED=-1", "as in SEED=42", arguments=("--seed=-1",))
        self.assert_refused("SEED=²", arguments=("--seed=²",))
        self.assert_refused("SCHEDULE=last is not a number that a failure", arguments=("--schedule=last",))
        self.assert_refused("TRACE=a.json is for one stage; add STAGE=02", arguments=("--trace=a.json",))
        self.assert_refused("TEST=broadcast_rank_0", "\n  broadcasts_rank_0\n", arguments=("--test=broadcast_rank_0",))
        self.assert_refused("unrecognized arguments: --stagee", arguments=("--stagee=1",))


class Looks(GraderTest):
    def test_plain_in_a_pipe(self) -> None:
        output = self.grade(ALL_PASS, PYTHONIOENCODING="ascii").stdout
        self.assertNotIn("\033", output)
        self.assertTrue(output.isascii())
        self.assertIn("+ gradients equal the oracle", output)

    def test_colour_on_a_terminal_unless_unwanted(self) -> None:
        self.checkout.student(ALL_PASS)
        self.assertIn("\033[32m", self.on_terminal().read_all())
        self.assertNotIn("\033[32m", self.on_terminal(NO_COLOR="1").read_all())

    def test_a_reader_that_left_is_no_error(self) -> None:
        self.checkout.student(ALL_PASS)
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            self.checkout.command("grade"),
            cwd=self.checkout.root,
            stdout=write,
            stderr=subprocess.PIPE,
            env=self.environment,
            timeout=60,
        )
        os.close(write)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertEqual(self.checkout.results()["score"], 15)


class Width(GraderTest):
    LONG = "in 'three layers' (2 ranks): rank 1: the gradient of layer 0 is wrong by more than rounding could explain"

    def assert_fits(self, student: str, width: int) -> str:
        """A line may be too wide only if it is a single word, which is to be copied."""
        self.checkout.student(student)
        lines = self.on_terminal("--stage=01", "--seed=123456789", width=width).lines()
        wide = [line for line in lines if len(line) > width and len(line.split()) > 2]
        self.assertEqual(wide, [], f"{width} columns")
        return " ".join(word for line in lines for word in line.split() if word not in ("│", "\\"))

    def test_every_line_fits_and_no_word_is_lost(self) -> None:
        for width in (60, 80, 100):
            shown = self.assert_fits(
                f"""
                def run(name):
                    if name == 'broadcasts_rank_0': return {{'status': 'not_judged', 'failures': [{self.LONG!r}]}}
                    if name == 'gradients_equal_the_oracle': return {{'status': 'failed', 'failures': [{self.LONG!r}]}}
                    return {{'status': 'skipped', 'measured': ['this machine lacks what is needed ' * 3]}}
                """,
                width,
            )
            self.assertEqual(shown.count(self.LONG), 2)
            self.assertIn("make test STAGE=01 TEST=gradients_equal_the_oracle SEED=123456789", shown)
            self.assertIn("make hint STAGE=01 TEST=gradients_equal_the_oracle", shown)
            self.assert_fits("does not compile", width)
            self.assert_fits("fills the disk", width)

    def test_a_reason_that_many_tests_share_is_given_once(self) -> None:
        student = f"def run(name): return {{'status': 'not_judged', 'failures': [{self.LONG!r}]}}"
        self.assertEqual(self.assert_fits(student, 80).count(self.LONG), 1)

    def test_a_failure_in_another_order_is_repeated_by_its_schedule(self) -> None:
        student = "def run(name): return {'status': 'failed', 'failures': ['in x with SCHEDULE=10000300004: wrong']}"
        self.assertRegex(
            self.grade(student, "--seed=7").stdout, r"make test STAGE=01 TEST=\w+ SEED=7 SCHEDULE=10000300004"
        )

    def test_a_pipe_keeps_lines_whole(self) -> None:
        student = f"def run(name): return {{'status': 'failed', 'failures': [{self.LONG!r}]}}"
        self.assertIn(self.LONG, self.grade(student).stdout)

    def test_a_folded_command_is_still_one(self) -> None:
        command = "make test STAGE=05 TEST=a_name_of_a_test IMPL=solutions SEED=7"
        folded = fold_command(command, 40, 9)
        self.assertGreater(folded.count("\n"), 0)
        self.assertLessEqual(max(map(len, (9 * " " + folded).split("\n"))), 40)
        self.assertEqual(shlex.split(folded.replace("\\\n", "")), shlex.split(command))


class Progress(GraderTest):
    def test_a_build_is_shown_before_its_first_file_is_done(self) -> None:
        waits = self.checkout.write("build_waits", "")
        self.checkout.student(ALL_PASS)
        terminal = self.on_terminal("--stage=01")
        for elapsed in ("[0:01]", "[0:02]"):
            terminal.read_until(f"Building {elapsed}")
        waits.unlink()
        self.assertIn("Full marks", terminal.read_all())

    def test_in_a_pipe_it_is_a_line(self) -> None:
        waits = self.checkout.write("build_waits", "")
        process = self.start(ALL_PASS)
        lines = iter(process.stdout.readline, "")
        self.assertTrue(any(line == "Building ...\n" for line in lines))
        waits.unlink()
        self.assertIn("Building: done", process.stdout.read())
        self.assertEqual(process.wait(20), 0)


class Companions(GraderTest):
    def test_hint_of_a_test(self) -> None:
        done = self.tool("hint", "--test=gradients_equal_the_oracle")
        self.assertEqual(done.returncode, 0)
        self.assertIn("Divide.", done.stdout)
        self.assertIn("make test STAGE=01 TEST=gradients_equal_the_oracle", done.stdout)
        self.assertNotIn("Use broadcast.", done.stdout)

    def test_hints_of_a_stage(self) -> None:
        done = self.tool("hint", "--stage=01")
        self.assertEqual(done.returncode, 0)
        for hint in ("Use broadcast.", "Divide.", "Count."):
            self.assertIn(hint, done.stdout)
        done = self.tool("hint", "--stage=02")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("no graded tests", done.stderr)
        self.assertEqual(self.tool("hint", "--stage=9").returncode, 2)

    def test_hint_where_nothing_can_be_written(self) -> None:
        self.checkout.write("build/grade", "a file, where hint needs a folder")
        done = self.tool("hint")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        read_only = explain(OSError(errno.EROFS, "Read-only file system", "/lab/build/grade/lock"), "make hint")
        self.assertIn("/lab/build/grade/lock: Read-only file system. make hint writes into the checkout", read_only)

    def test_hint_of_an_unknown_test(self) -> None:
        done = self.tool("hint", "--test=gradient_equal_oracle")
        self.assertEqual(done.returncode, 2)
        self.assertIn("\n  gradients_equal_the_oracle\n", done.stderr)

    def test_watch_grades_on_every_save_and_ends_on_ctrl_c(self) -> None:
        self.checkout.student("does not compile")
        process = subprocess.Popen(
            self.checkout.command("watch", "--stage=01"),
            cwd=self.checkout.root,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)

        def read_until(text: str) -> None:
            for line in process.stdout:
                if text in line:
                    return
            self.fail(f"{text!r} was not printed")

        read_until("does not compile")
        read_until("Watching assignments/01_naive_ddp")
        self.checkout.student(ALL_PASS)
        read_until("naive_ddp.cpp was saved")
        read_until("Full marks")
        read_until("Watching")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 0)

    def test_watch_refuses_an_unknown_stage(self) -> None:
        self.assertEqual(self.tool("watch", "--stage=9").returncode, 2)


class Parts(unittest.TestCase):
    def test_bounded_text_keeps_both_ends(self) -> None:
        text = BoundedText(10)
        for _ in range(1000):
            text.add(b"0123456789abcdef")
        self.assertEqual(str(text), "01234\n[... 15990 bytes left out ...]\nbcdef")

    def test_records_may_arrive_in_any_pieces(self) -> None:
        result = TestResult(TestSpec("a", 1))
        records = Records([result], lambda _: None)
        stream = b'{"event":"test_started","name":"a"}\n{"event":"test_finished","name":"a","status":"passed"}\n'
        for byte in stream + b'{"event":"run_finished"}\n':
            records.feed(bytes([byte]))
        self.assertTrue(records.run_finished)
        self.assertIs(result.status, Status.PASSED)

    def test_a_body_that_ended_is_a_sign_of_life_of_the_test_that_runs_alone(self) -> None:
        result = TestResult(TestSpec("a", 1))
        records = Records([result], lambda _: None)
        for event, count in (("body_ended", 0), ("test_started", 1), ("body_ended", 2)):
            records.feed(f'{{"event":"{event}","name":"a"}}\n'.encode())
            self.assertEqual(records.count, count, event)

    def test_printable_is_bounded(self) -> None:
        self.assertEqual(printable("ab\r\x1b\tc", 100), "ab\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\tc")
        self.assertIn("5 characters left out", printable("x" * 15, 10))
