"""What the grader shows: choices, looks, the companions hint and watch."""

from __future__ import annotations

import os
import signal
import subprocess
import unittest

from tests.tools.grading_test import ALL_PASS, GraderTest
from tools.grading.processes import BoundedText
from tools.grading.records import Records, printable
from tools.grading.results import Status, TestResult, TestSpec


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
        self.assertIn("\033[32m", self.on_terminal())
        self.assertNotIn("\033[32m", self.on_terminal(NO_COLOR="1"))

    def on_terminal(self, **environment: str) -> str:
        self.checkout.student(ALL_PASS)
        ours, theirs = os.openpty()
        env = {**self.environment, "TERM": "xterm", **environment}
        command = self.checkout.command("grade")
        process = subprocess.Popen(command, cwd=self.checkout.root, stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        output = b""
        try:
            while data := os.read(ours, 65536):
                output += data
        except OSError:
            pass  # on Linux, when the other side has closed
        os.close(ours)
        self.assertEqual(process.wait(20), 0)
        return output.decode()

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


class Companions(GraderTest):
    def test_hint_of_a_test(self) -> None:
        done = self.tool("hint", "--test=gradients_equal_the_oracle")
        self.assertEqual(done.returncode, 0)
        self.assertIn("Divide.", done.stdout)
        self.assertIn("make test STAGE=01 TEST=gradients_equal_the_oracle", done.stdout)
        self.assertNotIn("Use broadcast.", done.stdout)

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

    def test_printable_is_bounded(self) -> None:
        self.assertEqual(printable("ab\r\x1b\tc", 100), "ab\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\tc")
        self.assertIn("5 characters left out", printable("x" * 15, 10))


if __name__ == "__main__":
    unittest.main()
