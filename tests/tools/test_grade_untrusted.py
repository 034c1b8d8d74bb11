"""How the grader runs stages that are not trusted: where they run, when results are written, what is said.

The look at the code is left out here, so that the layers below it show; see grading_test for the rest. What real ranks
may do is in test_untrusted_attacks.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.tools.grading_test import ALL_PASS, STAGE, GraderTest, require_jail, wait_for

OTHER = "02_overlapped_ddp"


class Untrusted(GraderTest):
    def setUp(self) -> None:
        require_jail(self)
        super().setUp()
        self.patch("untrusted.py", "def objections(code: Compiled) -> str:", "\n    return ''")
        self.checkout.write("build/lib/libddp.so", "")

    def patch(self, tool: str, line: str, more: str) -> None:
        path = self.checkout.root / "tools/grading/strangers" / tool
        text = path.read_text()
        self.assertIn(line, text)
        path.write_text(text.replace(line, line + more))

    def left_running(self) -> list[str]:
        """Processes whose working folder is the scratch checkout."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(process / "cwd") == str(self.checkout.root):
                    found.append(process.name)
            except OSError:
                pass
        return found

    def failing_with(self, statement: str) -> str:
        """What the grader prints about a stage that tries `statement` and tells how it failed."""
        done = self.grade(
            f"""
            try:
                {statement}
                said = 'it worked'
            except OSError as error:
                said = str(error)
            def run(name): return {{'status': 'failed', 'failures': [said]}}
            """,
            "--untrusted",
        )
        self.assertNotIn("it worked", done.stdout)
        return done.stdout

    def test_what_it_does_well_counts(self) -> None:
        done = self.grade(ALL_PASS, "--untrusted")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.checkout.results()["score"], 15)

    def test_nothing_can_be_written(self) -> None:
        for file in ("build/grade/results.json", f"build/bin/tests_{OTHER}", f"assignments/{STAGE}/naive_ddp.cpp"):
            said = self.failing_with(f"open({str(self.checkout.root / file)!r}, 'w')")
            self.assertRegex(said, "Read-only file system|Permission denied")

    def test_its_own_folder_for_temporary_files_is_small(self) -> None:
        self.assertIn(
            "No space left", self.failing_with("open(os.environ['TMPDIR'] + '/f', 'wb').write(bytes(1 << 27))")
        )

    def test_no_other_process_can_be_seen_or_ended(self) -> None:
        self.assertIn("No such process", self.failing_with(f"os.kill({os.getpid()}, 9)"))

    def test_nobody_can_be_called(self) -> None:
        call = "import socket; socket.create_connection(('192.0.2.1', 80), 1)"
        self.assertIn("Network is unreachable", self.failing_with(call))

    def test_no_survivor(self) -> None:
        done = self.grade(
            """
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0: time.sleep(600)
                os._exit(0)
            def run(name): return {'status': 'passed'}
            """,
            "--untrusted",
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        wait_for(lambda: not self.left_running(), "the end of all processes")

    def test_results_are_written_when_nothing_of_the_stage_runs(self) -> None:
        done = self.grade(
            f"""
            said = []
            def run(name):
                said.append(open({str(self.checkout.root / "build/grade/results.json")!r}).read())
                return {{'status': 'passed', 'measured': [str(any('"score": 5' in text for text in said))]}}
            """,
            "--untrusted",
            "--verbose",
        )
        self.assertEqual(done.stdout.count("False"), 3, done.stdout)

    def test_a_stage_whose_program_has_changed_is_not_run(self) -> None:
        self.patch("jail.py", "def main() -> None:", "\n    raise OSError(1, 'unshare: Operation not permitted')")
        shutil.copy(self.checkout.root / f"build/bin/tests_{STAGE}", self.checkout.root / f"build/bin/tests_{OTHER}")
        self.checkout.write(f"build/lib/libtests_{OTHER}_code.so", "")
        self.checkout.write(f"tests/{OTHER}/a.cpp", "")
        self.checkout.student(ALL_PASS, stage=OTHER)
        program = self.checkout.root / f"build/bin/tests_{OTHER}"
        done = self.grade(f"open({str(program)!r}, 'a').write('# mine')\n{ALL_PASS}", "--untrusted")
        self.assertIn("UNTRUSTED=1: no namespaces here (the jail: unshare: Operation not permitted)", done.stdout)
        self.assertIn(f"build/bin/tests_{OTHER} changed after the first stage had begun", done.stdout)
        self.assertEqual(self.checkout.results()["score"], 15)
        self.assertEqual(self.checkout.statuses(), ["passed"] * 3 + ["failed"] * 3)

    def test_what_it_does_not_go_with(self) -> None:
        for option in ("--trace=step.json", "--device=cuda"):
            done = self.grade(ALL_PASS, "--untrusted", "--stage=01", option)
            self.assertEqual(done.returncode, 2)
            self.assertIn("UNTRUSTED=1 goes with neither TRACE= nor DEVICE=cuda", done.stderr)
