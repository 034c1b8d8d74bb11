"""The grader's verdicts, on what was built and on what was not, and the files that it writes."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from tests.harness.cuda_driver_test import driver
from tests.tools.conftest import ALL_FAIL, ALL_PASS, NAMES, STAGE, Lab, in_the_second_test, wait_for
from tools.setup import gpus


def test_full_marks(lab: Lab) -> None:
    """In results.json by Gradescope's schema."""
    measured = "['leaderboard: naive / flat step time: 2.31', f'seed {seed}']"
    lab.student(f"def run(name): return {{'status': 'passed', 'measured': {measured}}}", impl="solutions")
    said = lab.grade(ALL_FAIL, "--stage=01", "--impl=solutions", "--seed=123")
    assert "Total  15 / 15 points\nFull marks. Next: see it measured, make figures STAGE=01 IMPL=solutions\n" in said
    results = lab.results()
    assert (results["score"], results["stdout_visibility"], results["extra_data"]["impl"]) == (
        15,
        "hidden",
        "solutions",
    )
    assert results["leaderboard"] == [{"name": "01 naive / flat step time", "value": 2.31}] * 3
    due = {"name": "01 gradients equal the oracle", "number": "1.2", "score": 6, "max_score": 6, "status": "passed"}
    assert due.items() <= results["tests"][1].items()
    assert results["tests"][1]["output"].endswith("seed 123")


def test_failures_are_shown_with_how_to_repeat_them(lab: Lab) -> None:
    """The first in full, the others by name."""
    student = """
        def run(name):
            failures = [f'exactly 2.000x: {name}', '<&>'] if 'oracle' in name else [f'because of {name}']
            return {'status': 'failed', 'failures': failures}
        """
    said = lab.grade(student, "--seed=77", code=1)
    for text in (
        f"exactly 2.000x: {NAMES[1]}",
        "tests/01_naive_ddp/a.cpp:4",
        f"TEST={NAMES[1]} SEED=77",
        "1 more failed",
    ):
        assert text in said
    assert f"because of {NAMES[2]}" not in said
    assert f"because of {NAMES[2]}" in lab.grade(student, "--verbose", code=1)
    suite = ElementTree.parse(lab.root / "build/grade/junit.xml").getroot()[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == (STAGE, "3", "3")
    assert (suite[1].get("name"), suite[1][0].text) == (NAMES[1], f"exactly 2.000x: {NAMES[1]}\n\n<&>")
    assert lab.grade(ALL_PASS).splitlines()[0] != lab.grade(ALL_PASS).splitlines()[0]  # another seed


def test_a_course_may_give_the_share_of_runs_in_which_a_claim_holds(lab: Lab) -> None:
    student = ALL_FAIL.replace("}", ", 'runs': [24, 32]}")
    assert "Total  0 / 15 points" in lab.grade(student, code=1)
    lab.write("course.json", '{"partial": true}')
    assert "Total  11.25 / 15 points" in lab.grade(student, code=1)
    assert "Total  0 / 15 points" in lab.grade(student.replace("24, 32", "3, 2"), code=1)


def test_a_fresh_clone_says_todo_and_where_to_begin(lab: Lab) -> None:
    stub = """\
        # a stub
        TODO = "TODO(student): 01 naive DDP"
        def run(name): return {'status': 'todo', 'failures': ['NotImplementedError: ' + TODO]}
        """
    said = lab.grade(stub, code=1)
    assert "Total  0 / 15 points\n(15 of the lab's 100 points are graded in this version)" in said
    assert said.count("TODO line 2\n") == 3
    assert "begin with assignments/01_naive_ddp/README.md" in said
    assert "assignments/01_naive_ddp/naive_ddp.cpp:2" in said
    assert re.search("02 overlapped DDP +no graded tests yet", said)
    assert "no graded tests" in lab.grade(ALL_PASS, "--stage=02", code=1)


def test_an_extension_that_is_not_written_costs_nothing(lab: Lab) -> None:
    lab.edit(f"build/bin/tests_{STAGE}", "points=4", "points=0")
    todo = "{'status': 'todo', 'failures': ['TODO(student): 01 extension']}"
    said = lab.grade(f"def run(name): return {todo} if name == '{NAMES[2]}' else {{'status': 'passed'}}", "--stage=01")
    assert re.search("one all reduce per parameter +report  not written\n", said)
    assert lab.statuses() == ["passed", "passed", "todo"]
    suite = ElementTree.parse(lab.root / "build/grade/junit.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")
    assert "begin with assignments" in lab.grade(f"def run(name): return {todo}", "--stage=01", code=1)


def grade_on_cuda(lab: Lab, student: str, code: int, **answers: object) -> str:
    """With a stand-in for the driver."""
    return lab.grade(student, "--device=cuda", code=code, LD_LIBRARY_PATH=driver(lab.root, **answers))


def test_skipped_is_not_passed(lab: Lab) -> None:
    student = in_the_second_test("return {'status': 'skipped', 'measured': [f'needs {device}']}")
    assert "skipped: needs cuda" in grade_on_cuda(lab, student, code=1, gpus_there=[gpus.OLDEST[gpus.CUDA]])
    assert lab.statuses() == ["passed", "skipped", "passed"]
    assert lab.results()["tests"][1]["status"] == "failed"
    assert "ddp_cuda" in (lab.root / "build/targets").read_text().split()  # built for its device alone
    lab.grade(ALL_PASS)
    assert "ddp_cuda" not in (lab.root / "build/targets").read_text()


def test_without_a_gpu_that_is_said_and_nothing_lost(lab: Lab) -> None:
    lab.grade(ALL_PASS)
    assert "DEVICE=cuda: the NVIDIA driver shows no GPU" in grade_on_cuda(lab, ALL_PASS, code=3, init=gpus.NO_GPU)
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
    assert "not your stage's fault.\n\ncommon/ddp/ranks/launch.cpp:7:1: error: expected ';'" in said
    (lab.root / "build/toolchain.json").unlink()
    assert lab.tool("grade").stderr == "The lab is not set up here. Run: make setup\n"


def test_results_are_there_after_each_test(lab: Lab) -> None:
    waits = "while '\"status\": \"passed\"' not in open('build/grade/results.json').read(): time.sleep(0.01)"
    lab.grade(in_the_second_test(waits))
