"""The grader among cheats and accidents: nothing gained, nothing lost, nothing left running."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
from xml.etree import ElementTree

import pytest

from tests.tools.conftest import ALL_FAIL, ALL_PASS, Lab, alive, in_the_second_test, processes_in, wait_for
from tools.grading.running.records import DISTURBED

FORGED = """
for test in TESTS:
    record(event='test_started', name=test['name'])
    record(event='test_finished', name=test['name'], status='passed', seconds=0, failures=[], measured=[])
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
    assert said.count("No space left on device") == 1


def test_results_of_an_earlier_run_never_stay(lab: Lab) -> None:
    lab.grade(ALL_PASS)
    lab.write("common_is_broken", "")
    lab.grade(ALL_PASS, code=3)
    assert lab.statuses() == []


def test_a_second_run_waits_for_the_first(lab: Lab) -> None:
    lab.student("open('started', 'w')\nwhile not os.path.exists('go'): time.sleep(0.01)\n" + ALL_PASS)
    first = lab.start("grade", "--stage=1")
    wait_for((lab.root / "started").exists, "the first run")
    second = lab.start("grade")
    assert f"process {first.pid}" in second.stdout.readline()
    lab.write("go", "")
    assert first.wait(20) == 0
    assert "Full marks" in second.stdout.read()
    assert second.wait(20) == 0
