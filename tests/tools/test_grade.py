"""Tests of the grader: a scratch checkout with the real tools, a fake compiler and a fake test program.

The fake compiler copies a stage's source to the place of its library, and the fake test program runs that text as
Python. So each test here writes, as "student's code", the outcome of stage 01's tests.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path
from xml.etree import ElementTree


from tools.grading.building import condense
from tools.grading.processes import BoundedText
from tools.grading.records import DISTURBED, Records, printable
from tools.grading.results import Status, TestResult, TestSpec
from tools.setup.toolchain import ROOT

STAGE = "01_naive_ddp"
NAMES = ["broadcasts_rank_0", "gradients_equal_the_oracle", "one_all_reduce_per_parameter"]
ALL_PASS = "def run(name): return {'status': 'passed'}\n"

PROGRAM = """\
#!{python}
import json, os, sys, time
TESTS = [
    dict(name="broadcasts_rank_0", points=5, hint="Use broadcast.", file="{root}/tests/01_naive_ddp/a.cpp", line=3),
    dict(name="gradients_equal_the_oracle", points=6, hint="Divide.", file="{root}/tests/01_naive_ddp/a.cpp", line=9),
    dict(name="one_all_reduce_per_parameter", points=4, hint="Count.", file="{root}/tests/01_naive_ddp/a.cpp", line=20),
]
if "--list" in sys.argv:
    print(json.dumps(TESTS))
    sys.exit()
options = [argument[2:].split("=", 1) for argument in sys.argv[1:]]
flags = dict(options)
fd = int(flags["records-fd"])
seed, device = int(flags["seed"]), flags["device"]

def write(text):
    os.write(fd, text.encode())

def record(**fields):
    write(json.dumps(fields) + "\\n")

exec(open(flags["stage-library"]).read())
for key, name in options:
    if key == "test":
        record(event="test_started", name=name)
        record(event="test_finished", name=name, **{{"seconds": 0.01, "failures": [], "measured": [], **run(name)}})
record(event="run_finished")
"""

CMAKE = """\
#!{python}
import pathlib, shutil, sys, time
root = pathlib.Path("{root}")
targets = sys.argv[sys.argv.index("--target") + 1:sys.argv.index("--")]
broken = False
for target in targets:
    impl, _, stage = target.partition("_")
    if target.startswith("tests_") and (root / "common_is_broken").exists():
        print("[1/2] Building CXX object ddp.cpp.o")
        print(f"{{root}}/common/ddp/ranks/launch.cpp:7:1: error: expected ';'", file=sys.stderr)
        broken = True
    elif target == "ddp" and (root / "build_hangs").exists():
        (root / "build_hangs").write_text("started")
        time.sleep(600)
    elif impl in ("assignments", "solutions"):
        source = root / impl / stage / (stage[3:] + ".cpp")
        if "does not compile" in source.read_text():
            print("[1/2] Building CXX object naive_ddp.cpp.o")
            print(f"{{source}}:12:5: error: 'gruop' was not declared in this scope")
            print("   12 |     gruop->allreduce(tensors);")
            print("      |     ^~~~~")
            broken = True
        else:
            library = root / "build/stages" / impl / stage / "libstage.so"
            library.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, library)
sys.exit(broken)
"""


def setUpModule() -> None:
    """Behind "&" a shell may ignore interrupts, and what the tests start would, too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Checkout:
    """A scratch checkout with one graded stage."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT / "tools", root / "tools")  # including compiled modules, which save time
        (root / "build/bin").mkdir(parents=True)
        fields = {"python": sys.executable, "root": str(root)}
        self.script("cmake", CMAKE.format(**fields))
        self.script(f"build/bin/tests_{STAGE}", PROGRAM.format(**fields))
        keys = ("python", "figure_python", "libtorch", "torch_version", "cxx")
        chosen = {key: "" for key in keys} | {"generator": "Ninja"}
        chosen |= {"cmake": str(root / "cmake"), "build_dir": str(root / "build")}
        self.write("build/toolchain.json", json.dumps({"toolchain": chosen}))
        self.write(f"build/lib/libtests_{STAGE}_code.so", "")
        self.write(f"tests/{STAGE}/a.cpp", "")
        for manifest in (ROOT / "assignments").glob("*/stage.json"):
            self.write(f"assignments/{manifest.parent.name}/stage.json", manifest.read_text())

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    def script(self, path: str, text: str) -> None:
        self.write(path, text).chmod(0o755)

    def student(self, text: str, impl: str = "assignments", stage: str = STAGE) -> None:
        self.write(f"{impl}/{stage}/{stage[3:]}.cpp", text)

    def command(self, tool: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", f"tools.grading.{tool}", *arguments]

    def results(self) -> dict:
        return json.loads((self.root / "build/grade/results.json").read_text())

    def statuses(self) -> list[str]:
        return [test["extra_data"]["status"] for test in self.results()["tests"]]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, what: str, seconds: float = 20.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.01)
    return value


class GraderTest(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.checkout = Checkout(Path(scratch.name).resolve() / "lab")
        self.temporary = Path(scratch.name) / "tmp"
        self.temporary.mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self.temporary)}

    def tool(self, name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.checkout.command(name, *arguments),
            capture_output=True,
            text=True,
            timeout=60,
            env={**self.environment, **environment},
            cwd=self.checkout.root,
        )

    def grade(self, student: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.checkout.student(student)
        done = self.tool("grade", *arguments, **environment)
        self.assertNotIn("Traceback", done.stdout + done.stderr)
        self.assertEqual(list(self.temporary.iterdir()), [], "temporary files were left")
        return done

    def start(self, student: str) -> subprocess.Popen[str]:
        self.checkout.student(student)
        process = subprocess.Popen(
            self.checkout.command("grade", "--stage=1"),
            cwd=self.checkout.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process


class Verdicts(GraderTest):
    def test_full_marks_exit_0(self) -> None:
        done = self.grade(ALL_PASS, "--stage=01")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("Total  15 / 15 points", done.stdout)
        self.assertIn("Full marks", done.stdout)
        self.assertEqual(self.checkout.results()["score"], 15)

    def test_a_failure_is_shown_in_full_with_how_to_repeat_it(self) -> None:
        done = self.grade(
            """
            def run(name):
                ok = name != 'gradients_equal_the_oracle'
                return {'status': 'passed'} if ok else {'status': 'failed', 'failures': ['exactly 2.000x: averaged?']}
            """,
            "--stage=01",
            "--seed=77",
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("exactly 2.000x: averaged?", done.stdout)
        self.assertIn("tests/01_naive_ddp/a.cpp:9", done.stdout)
        self.assertIn("make test STAGE=01 TEST=gradients_equal_the_oracle SEED=77", done.stdout)
        self.assertEqual(self.checkout.results()["score"], 9)

    def test_the_first_failures_in_full_the_others_by_name(self) -> None:
        student = "def run(name): return {'status': 'failed', 'failures': [f'because of {name}']}"
        brief = self.grade(student).stdout
        self.assertIn("1 more failed", brief)
        self.assertNotIn("because of one_all_reduce_per_parameter", brief)
        self.assertIn("because of one_all_reduce_per_parameter", self.grade(student, "--verbose").stdout)

    def test_a_chatty_failure_is_cut_short(self) -> None:
        lines = "'\\n'.join(['again'] * 50 + list('abc' * 30))"
        student = f"def run(name): return {{'status': 'failed', 'failures': [{lines}]}}"
        brief = self.grade(student, "--test=broadcasts_rank_0").stdout
        self.assertIn("[... 49 more lines like this ...]", brief)
        self.assertIn("[... 52 more lines with VERBOSE=1 ...]", brief)
        self.assertLess(len(brief.splitlines()), 60)

    def test_a_fresh_clone_says_todo_and_where_to_begin(self) -> None:
        done = self.grade(
            """\
            # a stub
            TODO = "TODO(student): 01 naive DDP"
            def run(name): return {'status': 'todo', 'failures': ['NotImplementedError: ' + TODO]}
            """
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("Total  0 / 15 points  (15 of the lab's 100 points are graded in this version)", done.stdout)
        self.assertEqual(len(re.findall(r"TODO naive_ddp.cpp:2", done.stdout)), 3)
        self.assertIn("begin with assignments/01_naive_ddp/README.md", done.stdout)
        self.assertIn("assignments/01_naive_ddp/naive_ddp.cpp:2", done.stdout)
        self.assertIn("02 overlapped DDP", done.stdout)
        self.assertIn("no graded tests yet", done.stdout)

    def test_an_extension_that_is_not_written_costs_nothing(self) -> None:
        program = self.checkout.root / f"build/bin/tests_{STAGE}"
        self.checkout.script(f"build/bin/tests_{STAGE}", program.read_text().replace("points=4", "points=0"))
        todo = "{'status': 'todo', 'failures': ['TODO(student): 01 extension']}"
        done = self.grade(
            f"""
            def run(name):
                return {todo} if name == '{NAMES[2]}' else {{'status': 'passed'}}
            """,
            "--stage=01",
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("nothing to report: not written, and no points lost", done.stdout)
        self.assertIn("Full marks", done.stdout)
        self.assertEqual(self.checkout.statuses(), ["passed", "passed", "todo"])
        suite = ElementTree.parse(self.checkout.root / "build/grade/junit.xml").getroot()[0]
        self.assertEqual((suite.get("failures"), suite.get("skipped")), ("0", "1"))
        self.assertIn("begin with assignments", self.grade(f"def run(name): return {todo}", "--stage=01").stdout)

    def test_skipped_is_not_passed(self) -> None:
        done = self.grade(
            """
            def run(name):
                assert device == 'cuda'
                if name == 'broadcasts_rank_0': return {'status': 'skipped', 'measured': ['needs a GPU']}
                return {'status': 'passed'}
            """,
            "--device=cuda",
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("skipped: needs a GPU", done.stdout)
        self.assertEqual(self.checkout.statuses(), ["skipped", "passed", "passed"])
        self.assertEqual(self.checkout.results()["tests"][0]["status"], "failed")

    def test_a_stage_without_tests_is_no_success(self) -> None:
        done = self.tool("grade", "--stage=02")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no graded tests", done.stdout)

    def test_one_test_alone_and_by_pattern(self) -> None:
        self.assertEqual(self.grade(ALL_PASS, "--test=broadcasts_rank_0").returncode, 0)
        self.assertEqual(len(self.checkout.results()["tests"]), 1)
        self.assertEqual(self.grade(ALL_PASS, "--test=*r*_*").returncode, 0)
        self.assertEqual(len(self.checkout.results()["tests"]), 3)

    def test_a_trace_is_asked_of_the_test_program(self) -> None:
        trace = self.checkout.root / "trace.json"
        student = "def run(name): open(os.environ['DDP_LAB_TRACE'], 'w'); return {'status': 'passed'}"
        said = self.grade(student, "--stage=1", f"--trace={trace}").stdout
        self.assertIn(f"Timeline: {trace}; open it in https://ui.perfetto.dev", said)
        self.assertIn(f"No timeline was written to {trace}", self.grade(ALL_PASS, "--stage=1", f"--trace={trace}").stdout)

    def test_the_seed_is_fresh_unless_given(self) -> None:
        student = "def run(name): return {'status': 'passed', 'measured': [f'seed {seed}']}"
        seeds = {self.grade(student).stdout.splitlines()[0] for _ in range(2)}
        self.assertEqual(len(seeds), 2)
        self.grade(student, "--seed=123")
        self.assertEqual(self.checkout.results()["tests"][0]["output"], "seed 123")

    def test_solutions_are_chosen_by_impl(self) -> None:
        self.checkout.student(ALL_PASS, impl="solutions")
        done = self.grade("def run(name): return {'status': 'failed'}", "--impl=solutions")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(self.checkout.results()["extra_data"]["impl"], "solutions")


class Lists(GraderTest):
    def points(self) -> list[float]:
        return [test["max_score"] for test in self.checkout.results()["tests"]]

    def test_a_list_is_asked_for_again_after_a_build(self) -> None:
        self.grade(ALL_PASS)
        program = self.checkout.root / f"build/bin/tests_{STAGE}"
        self.checkout.script(f"build/bin/tests_{STAGE}", program.read_text().replace("points=6", "points=7"))
        self.grade(ALL_PASS)
        self.assertEqual(self.points(), [5, 7, 4])

    def test_a_program_that_cannot_list_is_not_the_students_fault(self) -> None:
        self.checkout.script(f"build/bin/tests_{STAGE}", "#!/bin/sh\necho undefined symbol >&2; exit 127\n")
        done = self.grade(ALL_PASS)
        self.assertEqual(done.returncode, 3)
        self.assertIn("undefined symbol", done.stderr)

    def test_points_cannot_be_raised(self) -> None:
        kept = str(self.checkout.root / f"build/grade/tests_{STAGE}.json")
        self.grade(f"open({kept!r}, 'w').write(json.dumps([dict(t, points=99) for t in TESTS]))\n" + ALL_PASS)
        self.grade(ALL_PASS)
        self.assertEqual(self.points(), [5, 6, 4])


class Builds(GraderTest):
    def test_what_does_not_compile_scores_0_with_its_message(self) -> None:
        done = self.grade("does not compile")
        self.assertEqual(done.returncode, 1)
        place = "assignments/01_naive_ddp/naive_ddp.cpp:12:5: error: 'gruop' was not declared"
        self.assertIn(place, done.stdout)
        self.assertIn("gruop->allreduce(tensors);", done.stdout)
        self.assertIn("build/grade/logs/01_naive_ddp.build.log", done.stdout)
        self.assertNotIn(str(self.checkout.root), done.stdout)
        self.assertEqual(self.checkout.statuses(), ["failed"] * 3)
        self.assertIn(place, self.checkout.results()["tests"][0]["output"])

    def test_the_other_stages_are_graded_all_the_same(self) -> None:
        self.checkout.write("tests/02_overlapped_ddp/a.cpp", "")
        program = (self.checkout.root / f"build/bin/tests_{STAGE}").read_text()
        self.checkout.script("build/bin/tests_02_overlapped_ddp", program)
        self.checkout.student("does not compile", stage="02_overlapped_ddp")
        done = self.grade(ALL_PASS)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Total  15 / 30 points", done.stdout)
        self.assertEqual(self.checkout.statuses(), ["passed"] * 3 + ["failed"] * 3)

    def test_a_stage_without_source_says_how_to_get_it_back(self) -> None:
        done = self.tool("grade", "--stage=01")
        self.assertEqual(done.returncode, 1)
        self.assertIn("git checkout -- assignments/01_naive_ddp", done.stdout)

    def test_a_broken_lab_is_not_the_students_fault(self) -> None:
        self.checkout.write("common_is_broken", "")
        done = self.grade(ALL_PASS)
        self.assertEqual(done.returncode, 3)
        self.assertIn("not your stage's fault", done.stderr)
        self.assertIn("common/ddp/ranks/launch.cpp:7:1: error: expected ';'", done.stderr)

    def test_without_set_up_it_says_so(self) -> None:
        (self.checkout.root / "build/toolchain.json").unlink()
        done = self.tool("grade")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("make setup", done.stderr)

    def test_errors_are_condensed(self) -> None:
        log = "\n".join(f"{ROOT}/assignments/x.cpp:{n}:1: error: bad\n  {n} | code\n    | ^" for n in range(1, 6))
        text = condense(log)
        self.assertIn("assignments/x.cpp:3:1: error: bad\n  3 | code\n    | ^", text)
        self.assertNotIn("x.cpp:4", text)
        self.assertIn("2 more errors", text)

    def test_an_error_inside_a_template_names_the_caller(self) -> None:
        log = f"{ROOT}/assignments/x.cpp:8:2:   required from here\n/usr/include/c++/12/vector:9:1: error: no match\n"
        self.assertIn("assignments/x.cpp:8:2:   required from here", condense(log))

    def test_a_full_disk_is_named(self) -> None:
        self.assertIn("The disk is full", condense("fatal error: x.o: No space left on device"))


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
        runner = self.checkout.root / "tools/grading/runner.py"
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
        process.send_signal(signum)
        output = process.stdout.read()
        self.assertEqual(process.wait(20), exit_code)
        for pid in map(int, pids.read_text().split()):
            wait_for(lambda: not alive(pid), f"the end of {pid}")
        wait_for(lambda: not list(self.temporary.iterdir()), "the removal of temporary files")
        self.assertNotIn("Traceback", output)
        self.assertEqual(self.checkout.statuses()[0], "passed")
        self.assertEqual(self.checkout.results()["score"], 5)

    def test_ctrl_c_during_the_build(self) -> None:
        started = self.checkout.write("build_hangs", "")
        process = self.start(ALL_PASS)
        wait_for(lambda: started.read_text(), "the build")
        process.send_signal(signal.SIGINT)
        self.assertNotIn("Traceback", process.stdout.read())
        self.assertEqual(process.wait(20), 130)

    def test_result_files_that_cannot_be_written(self) -> None:
        results = self.checkout.root / "tools/grading/results.py"
        broken = "raise OSError(28, 'No space left on device')"
        results.write_text(results.read_text().replace("new.write_bytes(content)", broken))
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
            self.checkout.command("grade"), cwd=self.checkout.root, stdout=subprocess.PIPE, text=True,
            env=self.environment,
        )
        self.addCleanup(second.kill)
        self.assertIn(f"process {first.pid}", second.stdout.readline())
        go.touch()
        self.assertEqual(first.wait(20), 0)
        self.assertIn("Full marks", second.stdout.read())
        second.stdout.close()
        self.assertEqual(second.wait(20), 0)


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


class Files(GraderTest):
    def test_results_follow_gradescopes_schema(self) -> None:
        self.grade("def run(name): return {'status': 'passed', 'measured': ['naive / flat step time: 2.31', 'x']}")
        results = self.checkout.results()
        self.assertEqual(results["stdout_visibility"], "hidden")
        self.assertGreater(results["execution_time"], 0)
        self.assertEqual(results["leaderboard"][0], {"name": "01 naive / flat step time", "value": 2.31})
        test = results["tests"][1]
        self.assertEqual((test["number"], test["score"], test["max_score"]), ("1.2", 6, 6))
        self.assertEqual((test["status"], test["visibility"]), ("passed", "visible"))
        self.assertEqual(test["name"], "01 gradients equal the oracle")
        self.assertEqual(test["tags"], [STAGE, "passed"])

    def test_junit_counts(self) -> None:
        self.grade("def run(name): return {'status': 'passed' if 'oracle' in name else 'failed', 'failures': ['<&>']}")
        suite = ElementTree.parse(self.checkout.root / "build/grade/junit.xml").getroot()[0]
        self.assertEqual((suite.get("name"), suite.get("tests"), suite.get("failures")), (STAGE, "3", "2"))
        self.assertEqual(suite[0].get("name"), NAMES[0])
        self.assertEqual(suite[0][0].text, "<&>")

    def test_results_are_there_after_each_test(self) -> None:
        target = str(self.checkout.root / "build/grade/results.json")
        self.grade(
            f"""
            def run(name):
                if name == TESTS[1]['name']:
                    while 'passed' not in [t['status'] for t in json.load(open({target!r}))['tests']]: time.sleep(0.01)
                return {{'status': 'passed'}}
            """
        )
        self.assertEqual(self.checkout.statuses(), ["passed"] * 3)


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
            self.checkout.command("grade"), cwd=self.checkout.root, stdout=write, stderr=subprocess.PIPE,
            env=self.environment, timeout=60,
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
            self.checkout.command("watch", "--stage=01"), cwd=self.checkout.root, stdout=subprocess.PIPE, text=True,
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
