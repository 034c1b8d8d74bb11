"""The grader's verdicts, on what was built and on what was not, and the files that it writes."""

from __future__ import annotations

import json
import subprocess
from unittest import mock
from xml.etree import ElementTree

from tests.harness.cuda_driver_test import driver
from tests.tools.grading_test import ALL_PASS, NAMES, STAGE, GraderTest, wait_for
from tools.grading import stages
from tools.grading.compiling import stale
from tools.setup import gpus


class Verdicts(GraderTest):
    def test_full_marks_exit_0(self) -> None:
        done = self.grade(ALL_PASS, "--stage=01")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("Total  15 / 15 points", done.stdout)
        self.assertIn("Full marks. Next: see it measured, make figures STAGE=01\n", done.stdout)
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

    def test_a_course_may_give_the_share_of_runs_in_which_a_claim_holds(self) -> None:
        student = "def run(name): return {'status': 'failed', 'failures': ['almost'], 'runs': [24, 32]}"
        self.assertIn("Total  0 / 15 points", self.grade(student).stdout)
        (self.checkout.root / "course.json").write_text('{"partial": true}')
        self.assertIn("Total  11.25 / 15 points", self.grade(student).stdout)
        more = "def run(name): return {'status': 'failed', 'failures': [], 'runs': [3, 2]}"
        self.assertIn("Total  0 / 15 points", self.grade(more).stdout)

    def test_a_fresh_clone_says_todo_and_where_to_begin(self) -> None:
        done = self.grade(
            """\
            # a stub
            TODO = "TODO(student): 01 naive DDP"
            def run(name): return {'status': 'todo', 'failures': ['NotImplementedError: ' + TODO]}
            """
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("Total  0 / 15 points\n(15 of the lab's 100 points are graded in this version)", done.stdout)
        self.assertEqual(done.stdout.count("TODO line 2\n"), 3)
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
        self.assertRegex(done.stdout, "one all reduce per parameter +report  not written\n")
        self.assertIn("Full marks", done.stdout)
        self.assertEqual(self.checkout.statuses(), ["passed", "passed", "todo"])
        suite = ElementTree.parse(self.checkout.root / "build/grade/junit.xml").getroot()[0]
        self.assertEqual((suite.get("failures"), suite.get("skipped")), ("0", "1"))
        self.assertIn("begin with assignments", self.grade(f"def run(name): return {todo}", "--stage=01").stdout)

    def test_skipped_is_not_passed(self) -> None:
        self.checkout.write("build/CMakeCache.txt", "DDP_LAB_CUDA:INTERNAL=on\n")
        done = self.grade(
            """
            def run(name):
                assert device == 'cuda'
                if name == 'broadcasts_rank_0': return {'status': 'skipped', 'measured': ['needs a GPU']}
                return {'status': 'passed'}
            """,
            "--device=cuda",
            LD_LIBRARY_PATH=driver(self.checkout.root, gpus_there=[gpus.OLDEST[gpus.CUDA]]),
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

    def test_one_test_alone_leaves_the_scores_of_the_last_whole_run(self) -> None:
        self.grade(ALL_PASS, "--stage=01")
        kept = self.checkout.root / "build/grade/scores.json"
        whole = json.loads(kept.read_text())
        self.assertEqual((whole["score"], len(whole["tests"])), (15, 3))
        self.grade("def run(name): return {'status': 'failed'}", "--test=broadcasts_rank_0")
        self.assertEqual(json.loads(kept.read_text()), whole)
        self.grade("def run(name): return {'status': 'failed'}", "--stage=01")
        self.assertEqual(json.loads(kept.read_text())["score"], 0)

    def test_a_run_that_was_cut_short_leaves_the_scores_of_the_same_code(self) -> None:
        dies = self.checkout.write("dies", "")
        student = f"""
            def run(name):
                if name == TESTS[1]['name'] and os.path.exists({str(dies)!r}): os.kill(os.getpid(), 9)
                return {{'status': 'passed'}}
            """
        self.grade(student)
        self.assertEqual(self.checkout.kept_score(), 5)  # better than nothing
        dies.unlink()
        self.grade(student + "# edited")
        dies.touch()
        self.grade(student + "# edited")
        self.assertEqual((self.checkout.results()["score"], self.checkout.kept_score()), (5, 15))

    def test_scores_are_of_what_was_compiled(self) -> None:
        """And not of what was saved meanwhile."""
        waits = self.checkout.write("build_waits", "")
        before = self.checkout.root / "assignments" / STAGE / "naive_ddp.cpp"
        process = self.start(ALL_PASS)
        wait_for(lambda: (self.checkout.root / "build/targets").exists(), "the build")
        saved = before.read_text() + "# saved"
        before.write_text(saved)
        waits.unlink()
        process.communicate(timeout=60)
        kept = json.loads((self.checkout.root / "build/grade/scores.json").read_text())
        before.write_text(ALL_PASS)
        with mock.patch.object(stale, "ROOT", self.checkout.root), mock.patch.object(stages, "ROOT", stale.ROOT):
            graded = stale.digest(stages.named(STAGE), "assignments")
        self.assertEqual(kept["extra_data"]["stages"][STAGE]["sources"], graded)

    def test_without_a_gpu_nothing_is_lost(self) -> None:
        self.grade(ALL_PASS)
        self.assertEqual(self.grade(ALL_PASS, "--device=cuda", LD_LIBRARY_PATH="/nowhere").returncode, 3)
        self.assertEqual(self.checkout.kept_score(), 15)

    def test_a_trace_is_asked_of_the_test_program(self) -> None:
        trace = self.checkout.root / "trace.json"
        student = "def run(name): open(os.environ['DDP_LAB_TRACE'], 'w'); return {'status': 'passed'}"
        said = self.grade(student, "--stage=1", f"--trace={trace}").stdout
        self.assertIn(f"Timeline: {trace}; open it in https://ui.perfetto.dev", said)
        self.assertIn(
            f"No timeline was written to {trace}", self.grade(ALL_PASS, "--stage=1", f"--trace={trace}").stdout
        )

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

    def test_an_edited_header_is_named_with_how_to_get_it_back(self) -> None:
        header = self.checkout.write("assignments/01_naive_ddp/naive_ddp.h", "as it was")
        git = ["git", "-c", "user.name=x", "-c", "user.email=x"]
        for command in (["init", "-q"], ["add", "assignments"], ["commit", "-qm", "the lab"]):
            subprocess.run([*git, *command], cwd=self.checkout.root, check=True)
        advice = "\n  git checkout -- assignments/01_naive_ddp/naive_ddp.h\n"
        failing = "def run(name): return {'status': 'failed'}"
        self.assertNotIn("git checkout", self.grade(failing).stdout)
        header.write_text("edited")
        self.assertIn(advice, self.grade(failing).stdout)
        self.assertNotIn("git checkout", self.grade(ALL_PASS, "--stage=01").stdout)
        self.assertIn(advice.replace("\n", "\n  │ ", 1), self.grade("does not compile").stdout)
        self.checkout.write("common_is_broken", "")
        done = self.grade(ALL_PASS)
        self.assertIn(advice, done.stderr)
        self.assertNotIn("not your stage's fault", done.stderr)

    def test_a_full_disk_is_nobodys_mistake(self) -> None:
        done = self.grade("fills the disk")
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"The disk is full at {self.checkout.root}/build. Free some space", done.stderr)
        self.assertIn("final link failed", done.stderr)
        self.assertNotIn("compile", done.stdout + done.stderr)


class Files(GraderTest):
    def test_results_follow_gradescopes_schema(self) -> None:
        measured = "['leaderboard: naive / flat step time: 2.31', 'ratio: 2.31', 'x']"
        self.grade(f"def run(name): return {{'status': 'passed', 'measured': {measured}}}")
        results = self.checkout.results()
        self.assertEqual(results["stdout_visibility"], "hidden")
        self.assertGreater(results["execution_time"], 0)
        self.assertEqual(results["leaderboard"], [{"name": "01 naive / flat step time", "value": 2.31}] * 3)
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
