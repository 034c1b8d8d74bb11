"""The grader: verdicts and result files, among cheats and accidents, and what it says."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
from xml.etree import ElementTree

import pytest

from tests.tools.conftest import (
    ALL_FAIL,
    ALL_PASS,
    NAMES,
    STAGE,
    Lab,
    alive,
    in_the_second_test,
    processes_in,
    wait_for,
)
from tools.grading.running.records import DISTURBED, Records
from tools.grading.running.runner import inputs_seed
from tools.grading.scoring.results import Status, TestResult, TestSpec
from tools.grading.stages import named
from tools.setup.checkout_lock import hold


def test_full_marks(lab: Lab) -> None:
    """In results.json by Gradescope's schema."""
    lab.student("def run(name): return {'status': 'passed', 'notes': [f'seed {seed}']}", impl="solutions")
    said = lab.grade(ALL_FAIL, "--stage=01", "--impl=solutions", "--seed=123")
    assert (
        "Total  15 / 15 points\nPage with pictures: build/grade/report.html (make report opens it)\nFull marks. Next: "
        in said
    )
    results = lab.results()
    assert (results["score"], results["stdout_visibility"]) == (15, "hidden")
    due = {"name": "01 gradients equal the oracle", "number": "1.2", "score": 6, "max_score": 6, "status": "passed"}
    assert due.items() <= results["tests"][1].items()
    assert results["tests"][1]["output"].endswith(f"seed {inputs_seed(123, named(STAGE))}")


def test_failures_are_shown_with_how_to_repeat_them(lab: Lab) -> None:
    """The first in full, the others with their first line."""
    student = """
        def run(name):
            others = [f'because of {name}\\nand more of {name}']
            failures = [f'exactly 2.000x: {name}', '<&>'] if 'oracle' in name else others
            return {'status': 'failed', 'failures': failures}
        """
    said = lab.grade(student, "--seed=77", code=1)
    for text in (f"exactly 2.000x: {NAMES[1]}", "tests/01_naive_ddp/a.cpp:4", f"TEST={NAMES[1]} SEED=77"):
        assert text in said
    assert f"because of {NAMES[2]}" in said and f"and more of {NAMES[2]}" not in said
    assert f"and more of {NAMES[2]}" in lab.grade(student, "--verbose", code=1)
    suite = ElementTree.parse(lab.root / "build/grade/junit.xml").getroot()[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == (STAGE, "3", "3")
    assert (suite[1].get("name"), suite[1][0].text) == (NAMES[1], f"exactly 2.000x: {NAMES[1]}\n\n<&>")
    assert lab.grade(ALL_PASS).splitlines()[0] != lab.grade(ALL_PASS).splitlines()[0]  # another seed


def test_failures_with_one_cause_are_one_block(lab: Lab) -> None:
    student = """
        def run(name):
            where = 'mine.cpp:7' if name.startswith('one') else 'mine.cpp:8'
            text = 'in "' + name + '" (2 ranks): rank 1 threw an exception: ' + name + '\\n    at ' + where
            return {'status': 'failed', 'failures': [text]}
        """
    said = lab.grade(student, code=1)
    assert re.search(r"For the same reason 1 more fails: \w", said)
    assert said.count("For the same reason") == 1 and "more failed" not in said


def test_what_died_comes_first_and_what_was_sent_can_be_drawn(lab: Lab) -> None:
    student = """
        def run(name):
            died = 'one' in name
            return {'status': 'failed', 'failures': ['rank 1 died: SIGSEGV' if died else 'an all-gather came late']}
        """
    said = lab.grade(student, code=1)
    assert said.index("SIGSEGV") < said.index("came late") and "Next: fix 'one all reduce per parameter'" in said
    assert said.count("TRACE=step.json") == 1  # of the second


def test_a_course_may_give_the_share_of_runs_in_which_a_claim_holds(lab: Lab) -> None:
    student = ALL_FAIL.replace("}", ", 'runs': [24, 32]}")
    assert "Total  0 / 15 points" in lab.grade(student, code=1)
    lab.write("course.json", '{"partial": true}')
    assert "Total  11.25 / 15 points" in lab.grade(student, code=1)
    assert "Total  0 / 15 points" in lab.grade(student.replace("24, 32", "3, 2"), code=1)


def test_a_fresh_clone_says_todo_and_where_to_begin(lab: Lab) -> None:
    todo = """\
        # a stub
        TODO = "TODO(student): 01 naive DDP"
        def run(name): return {'status': 'todo', 'failures': [TODO]}
        """
    said = lab.grade(todo, code=1)
    assert "Total  0 / 15 points" in said
    assert said.count("TODO line 2\n") == 3 and "begin with assignments/01_naive_ddp/README.md" in said
    assert "no graded tests" in lab.grade(ALL_PASS, "--stage=02", code=1)


def grade_on_cuda(lab: Lab, student: str, code: int, smi: str) -> str:
    """Where nvidia-smi does this."""
    tools = lab.root / "nvidia"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(f"#!/bin/sh\n{smi}\n")
    (tools / "nvidia-smi").chmod(0o755)
    return lab.grade(student, "--device=cuda", code=code, PATH=f"{tools}:{os.environ['PATH']}")


def test_skipped_is_not_passed(lab: Lab) -> None:
    student = in_the_second_test("return {'status': 'skipped', 'notes': [f'needs {device}']}")
    said = grade_on_cuda(lab, student, code=1, smi="echo 'NVIDIA H200, 9.0, 580.95.05'")
    assert "skipped: needs cuda" in said
    assert lab.statuses() == ["passed", "skipped", "passed"]
    assert lab.results()["tests"][1]["status"] == "failed"
    assert "ddp_cuda" in (lab.root / "build/targets").read_text().split()  # built for its device alone
    lab.grade(ALL_PASS)
    assert "ddp_cuda" not in (lab.root / "build/targets").read_text()


def test_without_a_gpu_that_is_said_and_nothing_lost(lab: Lab) -> None:
    lab.grade(ALL_PASS)
    said = grade_on_cuda(lab, ALL_PASS, code=3, smi="echo No devices were found; exit 6")
    assert "DEVICE=cuda: No devices were found" in said
    assert lab.kept()["score"] == 15


def test_one_test_alone_and_by_pattern(lab: Lab) -> None:
    """It leaves the scores of the last whole run."""
    lab.grade(ALL_PASS, "--stage=01")
    whole = lab.kept()
    assert (whole["score"], len(whole["tests"])) == (15, 3)
    for test, count in ("broadcasts_rank_0", 1), ("*r*_*", 3):
        lab.grade(ALL_FAIL, f"--test={test}", code=1)
        assert lab.statuses() == ["failed"] * count
        assert lab.kept() == whole
    lab.grade(ALL_FAIL, "--stage=01", code=1)
    assert lab.kept()["score"] == 0


def test_a_run_that_was_cut_short_leaves_the_scores_of_the_same_code(lab: Lab) -> None:
    dies = lab.write("dies", "")
    student = in_the_second_test("if os.path.exists('dies'): os.kill(os.getpid(), 9)")
    lab.grade(student, code=1)
    assert lab.kept()["score"] == 5  # better than nothing
    dies.unlink()
    lab.grade(student + "# edited")
    dies.touch()
    lab.grade(student + "# edited", code=1)
    assert (lab.results()["score"], lab.kept()["score"]) == (5, 15)


def test_scores_are_of_what_was_compiled(lab: Lab) -> None:
    """And not of what was saved meanwhile."""
    lab.grade(ALL_PASS)
    graded = lab.kept()["extra_data"]["stages"][STAGE]["sources"]
    (lab.root / "build/targets").unlink()
    waits = lab.write("build_waits", "")
    process = lab.start("grade")
    wait_for((lab.root / "build/targets").exists, "the build")
    lab.student(ALL_PASS + "# saved")
    waits.unlink()
    assert "Full marks" in process.communicate(timeout=60)[0]
    assert lab.kept()["extra_data"]["stages"][STAGE]["sources"] == graded
    lab.grade(ALL_PASS + "# saved")
    assert lab.kept()["extra_data"]["stages"][STAGE]["sources"] != graded


def test_a_list_of_tests_is_asked_for_again_after_a_build(lab: Lab) -> None:
    lab.grade(ALL_PASS)
    lab.edit(f"build/bin/tests_{STAGE}", "points=6", "points=7")
    lab.grade(ALL_PASS)
    assert [test["max_score"] for test in lab.results()["tests"]] == [5, 7, 4]
    lab.script(f"build/bin/tests_{STAGE}", "#!/bin/sh\necho undefined symbol >&2; exit 127\n")
    said = lab.grade(ALL_PASS, code=3)
    assert "does not list its tests. This is not your stage's fault.\nundefined symbol" in said


def test_points_cannot_be_raised(lab: Lab) -> None:
    kept = f"build/grade/tests_{STAGE}.json"
    lab.grade(f"open('{kept}', 'w').write(json.dumps([dict(t, points=99) for t in TESTS]))\n" + ALL_PASS)
    assert "Total  15 / 15 points" in lab.grade(ALL_PASS)


def test_what_does_not_compile_scores_0_with_its_message(lab: Lab) -> None:
    """And the other stages are graded all the same."""
    lab.second_stage(ALL_PASS)
    said = lab.grade("does not compile", code=1)
    place = "assignments/01_naive_ddp/naive_ddp.cpp:12:5: error: 'gruop' was not declared"
    for text in place, "gruop->allreduce(tensors);", "logs/01_naive_ddp.build.log", "Total  15 / 30 points":
        assert text in said
    assert str(lab.root) not in said
    assert lab.statuses() == ["failed"] * 3 + ["passed"] * 3
    assert place in lab.results()["tests"][0]["output"]


def test_what_is_not_the_students_fault(lab: Lab) -> None:
    said = lab.grade("fills the disk", code=3)
    assert f"The disk is full at {lab.root}/build. Free some space" in said and "compile" not in said
    lab.write("common_is_broken", "")
    said = lab.grade(ALL_PASS, code=3)
    assert "not your stage's fault.\n\ncommon/ddp/launching/launch.cpp:7:1: error: expected ';'" in said
    (lab.root / "build/toolchain.json").unlink()
    assert lab.tool("grade").stderr == "The lab is not set up here. Run: make setup\n"


def test_results_are_there_after_each_test(lab: Lab) -> None:
    waits = "while '\"status\": \"passed\"' not in open('build/grade/results.json').read(): time.sleep(0.01)"
    lab.grade(in_the_second_test(waits))


FORGED = """
for test in TESTS:
    record(event='test_started', name=test['name'])
    record(event='test_finished', name=test['name'], status='passed', seconds=0, failures=[], notes=[])
"""
RESULTS = "build/grade/results.json"


@pytest.mark.parametrize(
    "student, says",
    [
        ("sys.exit(0)", "without a verdict"),
        (f"open('{RESULTS}', 'w').write('{{\"score\": 15}}'); sys.exit(0)", "without a verdict"),
        ("for test in TESTS: print(json.dumps({'event': 'test_finished', 'name': test['name'], 'status': 'passed'}))\n"
         "sys.exit(0)", "without a verdict"),
        (FORGED + ALL_FAIL, DISTURBED),
        (FORGED + "record(event='run_finished')\nos.kill(os.getpid(), 9)", "was killed by SIGKILL"),
    ],
    ids=["exits with 0", "writes the result file", "prints that it passed", "forges records", "forges, and crashes"],
)  # fmt: skip
def test_scores_come_from_the_record_stream_alone(lab: Lab, student: str, says: str) -> None:
    assert says in lab.grade(student, code=1)
    assert lab.results()["score"] == 0


HANGS = ("passed failed not_run", "the test program itself hung")


@pytest.mark.parametrize(
    "does, statuses, says",
    [
        (r"""write('rubbish\n{"event": []}\n[1]\n"x"\n\x00\n' + '[' * 100000 + '\n' + 'a' * 3000000 + '\n')""",
         "passed failed passed", DISTURBED),
        ("print('about to crash', flush=True); os.kill(os.getpid(), 11)",
         "passed failed not_run", "killed by SIGSEGV; the last that it printed:\n  │ about to crash"),
        ("while True: write('rubbish is no progress\\n'); time.sleep(0.1)", *HANGS),
        ("os.kill(os.getpid(), 19)", *HANGS),
    ],
    ids=["writes rubbish into the stream", "crashes", "hangs", "is stopped"],
)  # fmt: skip
def test_what_happens_to_a_test_costs_that_one_alone(lab: Lab, does: str, statuses: str, says: str) -> None:
    if says in HANGS:
        lab.edit("tools/grading/running/runner.py", "SILENCE_S = 120.0", "SILENCE_S = 0.5")
    assert says in lab.grade(in_the_second_test(does), code=1)
    assert lab.statuses() == statuses.split()
    assert processes_in(lab.root) == []


def test_odd_texts_reach_every_output(lab: Lab) -> None:
    lab.grade("def run(name): return {'status': 'failed', 'failures': ['\\x1b[2J \\x00 \\ud800 é', 7]}", code=1)
    assert lab.statuses() == ["failed"] * 3
    ElementTree.parse(lab.root / "build/grade/junit.xml")


def test_a_gigabyte_of_output_is_bounded(lab: Lab) -> None:
    said = lab.grade("for _ in range(1000): os.write(1, b'x' * 1000000)\n" + ALL_PASS, "--verbose")
    assert "bytes left out" in said
    assert len(said) < 3_000_000


def test_nothing_is_left_running(lab: Lab) -> None:
    pids = lab.root / "pids"
    daemon = """
if os.fork() == 0:
    os.setsid()  # it would hold the pipes open
    if os.fork() == 0:
        open('pids', 'w').write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not os.path.exists('pids') or not open('pids').read(): time.sleep(0.01)
open(os.environ['TMPDIR'] + '/left', 'w').close()
"""
    lab.grade(daemon + ALL_PASS)
    assert not alive(int(pids.read_text()))


def test_what_multiplies_faster_than_it_is_found_is_stopped(lab: Lab) -> None:
    bomb = """
if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if os.fork(): os._exit(0)
    os._exit(0)
"""
    lab.grade(bomb + ALL_PASS)


def test_a_program_that_kills_its_guard_gains_nothing(lab: Lab) -> None:
    lab.student("open('pid', 'w').write(str(os.getpid())); os.kill(os.getppid(), 9); time.sleep(600)")
    assert lab.tool("grade").returncode == 1  # not lab.grade(): the guard's temporary folder may stay
    assert lab.statuses() == ["not_run"] * 3
    assert not alive(int((lab.root / "pid").read_text()))


@pytest.mark.parametrize(
    "signum, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)], ids=["INT", "TERM", "KILL"]
)
def test_a_signal_keeps_what_was_found_and_leaves_no_process(lab: Lab, signum: int, code: int) -> None:
    pids = lab.root / "pids"
    fork = "child = os.fork(); child or os.setsid(); child and open('pids', 'w').write(f'{os.getpid()} {child} ')"
    lab.student(in_the_second_test(fork + "; time.sleep(600)"))
    process = lab.start("grade", "--stage=1")
    wait_for(lambda: pids.exists() and pids.read_text().endswith(" "), "the second test")
    wait_for(lambda: lab.statuses()[:1] == ["passed"], "the first test's verdict, in the file")
    process.send_signal(signum)
    output = process.stdout.read()
    assert process.wait(20) == code
    for pid in map(int, pids.read_text().split()):
        wait_for(lambda pid=pid: not alive(pid), f"the end of {pid}")
    wait_for(lambda: not list(lab.temporary.iterdir()), "the removal of temporary files")
    assert "Traceback" not in output
    assert (lab.statuses()[0], lab.results()["score"], lab.kept()) == ("passed", 5, {})


@pytest.mark.slow
def test_ctrl_c_at_random_moments(lab: Lab) -> None:
    """Like a terminal's: to all in the foreground."""
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    lab.student("def run(name): time.sleep(0.1); return {'status': 'passed'}")
    for _ in range(50 if os.environ.get("ALL") else 8):
        process = lab.start("grade", "--stage=1", start_new_session=True)
        process.stdout.readline()  # it has begun
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0, 0.7))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        output = f"seed {seed}:\n{process.stdout.read()}"
        assert process.wait(20) in (0, 130, -signal.SIGINT), output  # the last as Python itself ends
        assert "Traceback" not in output
        if said := re.search(r"(?:Stopped\. |Total  )(\d+)", output):
            assert lab.results()["score"] == int(said[1]), output
        else:
            assert process.returncode != 0, output
        assert [*lab.temporary.iterdir(), *(lab.root / "build/grade").glob(".*")] == [], output
        assert lab.kept().get("score") in (None, 15)  # what make submit packs is a whole run's
        assert processes_in(lab.root) == [], output


def test_result_files_that_cannot_be_written(lab: Lab) -> None:
    broken = "raise OSError(28, 'No space left on device')"
    lab.edit("tools/grading/scoring/results.py", "new.write_bytes(content)", broken)
    said = lab.grade(ALL_PASS, code=3)
    assert "Total  15 / 15" in said
    assert said.count("the result files could not be written: No space left on device") == 1
    assert said.count("There is no page with pictures: ") == 1


def test_results_of_an_earlier_run_never_stay(lab: Lab) -> None:
    lab.grade(ALL_PASS)
    lab.write("common_is_broken", "")
    lab.grade(ALL_PASS, code=3)
    assert lab.statuses() == []


@pytest.mark.parametrize(
    "choices, said",
    [
        ("--stage=01_naive", "STAGE=01_naive is not one of: 01_naive_ddp, 02"),
        ("--seed=-1", "SEED=-1 is not a whole number from 0 to 9223372036854775807, as in SEED=42"),
        ("--test=broadcast_rank_0", "\n  broadcasts_rank_0\n"),
        ("--sanitize=address --untrusted", "SANITIZE=address does not go with UNTRUSTED=1"),
    ],
)
def test_unknown_values_list_the_valid_ones_the_closest_first(lab: Lab, choices: str, said: str) -> None:
    assert said in lab.grade(ALL_PASS, *choices.split(), code=2)


def test_a_reader_that_left_is_no_error(lab: Lab) -> None:
    lab.student(ALL_PASS)
    read, write = os.pipe()
    os.close(read)
    process = lab.start("grade", stdout=write, stderr=None)
    os.close(write)
    assert process.wait(60) == 0
    assert lab.results()["score"] == 15


def test_watch_grades_on_every_save_and_ends_on_ctrl_c(lab: Lab) -> None:
    lab.student("does not compile")
    process = lab.start("watch", "--stage=01")

    def read_until(text: str) -> None:
        assert any(text in line for line in process.stdout), f"{text!r} was not printed"

    read_until("does not compile")
    read_until("Watching assignments/01_naive_ddp")
    lab.student(ALL_PASS)
    for text in "naive_ddp.cpp was saved", "Full marks", "Watching":
        read_until(text)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert lab.tool("watch", "--stage=9").returncode == 2


def test_records_may_arrive_in_any_pieces() -> None:
    """An ended scenario is activity, while a test runs."""
    result = TestResult(TestSpec("a", 1))
    records = Records([result], lambda _: None)
    stream = ["scenario_ended", "test_started", "scenario_ended", "test_finished", "run_finished"]
    for count, event in enumerate(stream):
        for byte in f'{{"event": "{event}", "name": "{"a" if count else "b"}", "status": "passed"}}\n'.encode():
            records.feed(bytes([byte]))
        assert records.count == count, event
    assert records.run_finished
    assert result.status is Status.PASSED


def test_numbers_without_end_are_no_record() -> None:
    for field in '"runs": [1e400, 1e400]', '"seconds": 1e400':
        records = Records([result := TestResult(TestSpec("a", 1))], lambda _: None)
        records.feed(b'{"event": "test_started", "name": "a"}\n')
        records.feed(f'{{"event": "test_finished", "name": "a", "status": "passed", {field}}}\n'.encode())
        assert result.status is not Status.PASSED


def test_mistakes_are_said_and_hints_given_before_anything_is_built(lab: Lab) -> None:
    (lab.root / "build/toolchain.json").unlink()
    with hold(lab.root / "build/grade/lock", "make test"):
        for tool in "hint", "grade", "debugging.debug":
            done = lab.tool(tool, "--test=broadcast rank 0")
            assert (done.returncode, "There are:\n  broadcasts_rank_0\nmake hint lists all" in done.stderr) == (2, True)
        done = lab.tool("grade", "--stage=02", "--test=broadcasts_rank_0")
        assert (done.returncode, "that is a test of stage 01. Say STAGE=01" in done.stderr) == (2, True)
        first = lab.tool("hint", f"--test={NAMES[1]}").stdout
        assert "Divide." in first and "How often" not in first and "Use broadcast." not in first
        assert "How often do you divide?" in lab.tool("hint", f"--test={NAMES[1]}", "--level=2").stdout
