"""Tests of `make figures`: what is measured again, resumed, skipped and drawn, with fake programs and scripts."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import unittest
from pathlib import Path
from unittest import mock

CHECKOUT = Path(__file__).resolve().parents[2]

from tools.grading import stages
from tools.report import deliverables, failures, figures
from tools.report.deliverables import DRAWINGS, NAIVE, OVERLAPPED, Drawing, Run
from tools.setup.toolchain import Toolchain

# Records how it was called, and writes its result.
PROGRAM = """\
#!/bin/sh
echo "$0 $*" >> {calls}
while [ "$1" != --output ]; do shift; done
echo measured > "$2"
exit {code}
"""
SCRIPT = "import sys; print('wrote', sys.argv[0], *sys.argv[1:])"


def module_file(module: str) -> Path:
    return CHECKOUT / "figures" / f"{module.replace('.', '/')}.py"


class Registry(unittest.TestCase):
    def test_names_what_there_is(self) -> None:
        for drawing in DRAWINGS:
            self.assertTrue(module_file(drawing.module).is_file(), drawing.module)
            for run in drawing.runs:
                self.assertTrue((CHECKOUT / "benchmarks" / "experiments" / run.program).is_dir(), run.program)

    def test_leaves_no_script_out(self) -> None:
        files = [file for room in ("plots", "tables") for file in (CHECKOUT / "figures" / room).glob("*.py")]
        drawn = {module_file(drawing.module) for drawing in DRAWINGS}
        self.assertEqual({file for file in files if "script.main(" in file.read_text()} - drawn, set())

    def test_one_result_is_of_one_run(self) -> None:
        runs = {run for drawing in DRAWINGS for run in drawing.runs}
        self.assertEqual(len({run.result("solutions", "quick") for run in runs}), len(runs))

    def test_a_stage_needs_its_own_programs_alone(self) -> None:
        ring = {run.program for drawing in DRAWINGS if deliverables.RING in drawing.stages for run in drawing.runs}
        self.assertEqual(ring, {"ring_all_reduce", "collectives", "all_reduce_algorithms"})

    def test_a_stage_has_what_its_questions_show(self) -> None:
        """By their names; those of two have others than their modules."""
        modules = {"bucketed_batch_size_2": "bucketed_ddp", "bucketed_batch_size_4": "bucketed_ddp"}
        for stage in stages.all_stages():
            questions = (CHECKOUT / "writeup" / "questions" / f"{stage.name}.typ").read_text()
            shown = {name.split(".")[0] for name in re.findall(r'-slot\("([^"]+)"', questions)}
            own = [drawing for drawing in DRAWINGS if drawing.is_asked_for_by([stage])]
            drawn = {drawing.module.split(".")[1].removesuffix("_published") for drawing in own}
            self.assertTrue(shown or drawn, stage.name)  # 07 draws what a question of 06 shows
            self.assertEqual({modules.get(name, name) for name in shown} - drawn, set(), stage.name)

    def test_stage_02_has_its_three_figures_and_no_more(self) -> None:
        own = [drawing for drawing in DRAWINGS if drawing.is_asked_for_by([OVERLAPPED])]
        self.assertEqual([drawing.module for drawing in own], ["plots.step_time", "plots.timeline"])
        self.assertEqual([run.label for run in own[1].runs], ["virtual", "real"])  # a figure each

    def test_times_are_those_of_runs_that_there_are(self) -> None:
        there = {run.name for drawing in DRAWINGS for run in drawing.runs}
        self.assertEqual({name.removesuffix(".published") for name in deliverables.SECONDS} - there, set())


class Stubs(unittest.TestCase):
    def test_what_is_handed_out_is_one_and_no_solution_is(self) -> None:
        for stage in stages.all_stages():
            self.assertTrue(stage.is_stub("assignments"), stage.name)
            self.assertFalse(stage.is_stub("solutions"), stage.name)

    def test_one_function_that_is_written_is_a_beginning(self) -> None:
        (source,) = NAIVE.sources("assignments")
        begun = source.read_text().replace("TORCH_CHECK_NOT_IMPLEMENTED", "return nullptr; /* ; */ //", 1)
        with mock.patch.object(Path, "read_text", return_value=begun):
            self.assertFalse(NAIVE.is_stub("assignments"))


class MakeFigures(unittest.TestCase):
    def setUp(self) -> None:
        self.calls = self.folder / "calls"
        for name in ("bin", "lib", "figures/data"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "figures" / "draw.py").write_text(SCRIPT)
        for name in ("ddp", "ddp_benchmarks", "measure_code"):
            self.touch(self.folder / "lib" / f"lib{name}.so", 100)
        self.library = self.folder / "libstage.so"
        self.touch(self.library, 100)
        self.broken: dict[str, str] = {}
        for module, name, value in (
            (deliverables, "DATA", self.folder / "figures" / "data"),
            (figures, "OUT", self.folder / "figures" / "out"),
            (figures, "ROOT", self.folder),
        ):
            self.enterContext(mock.patch.object(module, name, value))
        self.give_program()

    @staticmethod
    def touch(file: Path, seconds: int) -> None:
        file.touch()
        os.utime(file, (seconds, seconds))

    def give_program(self, code: int = 0) -> None:
        program = self.folder / "bin" / "measure"
        program.write_text(PROGRAM.format(calls=self.calls, code=code))
        program.chmod(0o755)

    def draw(self, *wanted: Drawing) -> figures.Summary:
        tools = Toolchain("", sys.executable, "", "", "", "", "", str(self.folder))
        self.builder = builder = mock.Mock()
        builder.build.side_effect = lambda *_: self.broken
        builder.library.side_effect = lambda *_: self.library
        with (
            mock.patch.object(figures, "Builder", return_value=builder),
            mock.patch.object(figures.toolchain, "load", return_value=tools),
            mock.patch.object(figures, "require_packages"),
            contextlib.redirect_stdout(io.StringIO()) as self.said,
        ):
            options = argparse.Namespace(impl="solutions", preset="quick")
            return figures.measure_and_draw(options, list(wanted) or [self.drawing()], "make figures")

    @staticmethod
    def drawing(*flags: str) -> Drawing:
        return Drawing("draw", (NAIVE,), (Run("measure", flags=flags),))

    def result(self) -> Path:
        return Run("measure").result("solutions", "quick")

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def test_measures_and_draws(self) -> None:
        summary = self.draw(self.drawing("--fast"))
        (call,) = self.called()
        output = self.result().relative_to(self.folder)
        self.assertTrue(call.endswith(f"bin/measure --impl solutions --preset quick --fast --output {output}"), call)
        (drawn,) = summary.drawn
        self.assertIn(f"--data {self.result()} --out {self.folder}/figures/out", drawn)

    def test_a_run_may_have_a_preset_of_its_own(self) -> None:
        constants = self.folder / "constants.json"
        run = Run("measure", preset="published", reads=(constants,))
        result = run.result("solutions", "quick")
        self.assertEqual(result.name, "measure.solutions.published.json")
        for changed, calls in ((100, 0), (300, 1)):
            self.touch(result, 200)
            self.touch(constants, changed)
            self.draw(Drawing("draw", (NAIVE,), (run,)))
            self.assertEqual(len(self.called()), calls)
        self.assertIn(" --preset published --output ", self.called()[0])

    def test_says_before_it_measures_how_long_it_takes(self) -> None:
        with mock.patch.object(deliverables, "SECONDS", {"measure": 100}):
            self.draw()
        said = self.said.getvalue()
        wanted = "To measure: 1 run, about 2 min on two cores; 0 of 1 results are up to date."
        self.assertLess(said.index(wanted), said.index("[1/1] measure"))
        self.touch(self.result(), 200)
        self.draw()
        self.assertIn("Nothing is to be measured: 1 of 1 results are up to date.", self.said.getvalue())

    def test_what_programs_print_goes_into_a_log(self) -> None:
        program = self.folder / "bin" / "measure"
        program.write_text(program.read_text().replace("exit", "seq 500; echo broken >&2; exit"))
        self.draw()
        self.assertLess(len(self.said.getvalue().splitlines()), 8)
        log = self.folder / "figures" / "measure.solutions.quick.log"
        self.assertIn("\n500\nbroken\n", log.read_text())
        self.result().unlink()
        program.write_text(program.read_text().replace("exit 0", "exit 1"))
        self.draw()
        self.assertRegex(self.said.getvalue(), rf"\| 500\n  \| broken\n  {log} has all that it said")
        self.assertNotIn("| 400", self.said.getvalue())

    def test_measures_once_for_two_drawings(self) -> None:
        summary = self.draw(self.drawing(), self.drawing())
        self.assertEqual((len(self.called()), len(summary.drawn)), (1, 2))

    def test_leaves_a_fresh_result_alone(self) -> None:
        self.touch(self.result(), 200)
        self.assertEqual((len(self.draw().drawn), self.called()), (1, []))

    def test_measures_anew_what_is_older_than_the_code(self) -> None:
        for file in (self.library, self.folder / "lib" / "libddp.so", self.folder / "lib" / "libmeasure_code.so"):
            self.touch(self.result(), 200)
            self.touch(file, 300)
            self.draw()
            self.assertEqual(len(self.called()), 1, file)
            self.calls.unlink()
            self.touch(file, 100)

    def test_goes_on_where_a_run_was_stopped(self) -> None:
        self.touch(self.result().with_name(self.result().name + ".partial"), 200)
        self.draw()
        self.assertIn(" --resume --output", self.called()[0])

    def test_does_not_go_on_with_what_other_code_has_measured(self) -> None:
        self.touch(self.result().with_name(self.result().name + ".partial"), 50)
        self.draw()
        self.assertNotIn("--resume", self.called()[0])

    def test_skips_what_is_unfinished_or_refused(self) -> None:
        for code, message in ((figures.UNFINISHED, "draw: unfinished (solutions): 01"), (figures.REFUSED, "hardware")):
            self.give_program(code)
            summary = self.draw()
            self.assertEqual((summary.drawn, summary.failed), ([], []))
            self.assertIn(message, summary.skipped[0])
            self.result().unlink()

    def untouched(self, *untouched: stages.Stage) -> None:
        """Nobody has written anything of these stages, and the others are finished."""
        self.enterContext(mock.patch.object(stages.Stage, "is_stub", lambda stage, _: stage in untouched))

    def test_nothing_is_built_for_stages_that_nobody_has_begun(self) -> None:
        self.untouched(NAIVE, OVERLAPPED)
        summary = self.draw(self.drawing(), Drawing("more", (NAIVE, OVERLAPPED), (Run("measure"),)))
        self.assertEqual([len(summary.skipped), summary.drawn, summary.failed, self.called()], [2, [], [], []])
        self.assertIn("draw: unfinished (solutions): 01", summary.skipped[0])
        self.assertEqual(self.builder.method_calls, [])

    def test_what_is_finished_is_drawn_and_says_what_it_waits_for(self) -> None:
        self.untouched(OVERLAPPED)
        summary = self.draw(Drawing("draw", (NAIVE, OVERLAPPED), (Run("measure"),)))
        self.assertEqual((len(summary.drawn), summary.skipped, summary.failed), (1, [], []))
        self.assertEqual(summary.waiting, ["draw: for 02 overlapped DDP (solutions), and shows the others"])

    def test_names_what_failed(self) -> None:
        self.give_program(code=1)
        summary = self.draw()
        self.assertEqual((summary.drawn, summary.skipped), ([], []))
        self.assertIn("measure ended with exit code 1", summary.failed[0])

    def test_what_failed_is_kept_until_it_is_made(self) -> None:
        self.give_program(code=1)
        failed = self.draw().failed
        with mock.patch.object(deliverables, "DRAWINGS", (self.drawing(),)):
            self.assertEqual(failures.of("solutions", "quick", [NAIVE]), failed)
            self.assertEqual(failures.of("solutions", "quick", [OVERLAPPED]), [])
            self.give_program()
            self.draw()
            self.assertEqual(failures.of("solutions", "quick", [NAIVE]), [])

    def test_names_a_script_that_fails(self) -> None:
        (self.folder / "figures" / "draw.py").write_text("raise SystemExit(1)")
        self.assertIn("draw: could not be drawn", self.draw().failed[0])

    def test_stage_that_does_not_compile_is_not_measured(self) -> None:
        self.broken = {NAIVE.name: "error"}
        summary = self.draw()
        self.assertIn("does not compile", summary.failed[0])
        self.assertEqual((summary.drawn, self.called(), self.library.exists()), ([], [], False))

    def test_other_stages_are_drawn_beside_one_that_does_not_compile(self) -> None:
        self.broken = {OVERLAPPED.name: "error"}
        summary = self.draw(Drawing("draw", (NAIVE, OVERLAPPED), (Run("measure"),)))
        self.assertEqual((len(summary.failed), len(summary.drawn)), (1, 1))
