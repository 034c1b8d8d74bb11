"""Would `make check` notice a mutant that survives, or dies for another reason?"""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path

from tests.tools.checking_test import AFTER, BEFORE, EDITS, HEADER, SPECS, Sums, context, mutant, report
from tools.checking import in_place, mutant_files, mutants, variants
from tools.checking.context import graded_stages
from tools.checking.edits import write_edited
from tools.grading.scoring.results import Status
from tools.setup.toolchain import LabError


class Mutated(unittest.TestCase):
    def write(self, edits: str, **contents: str) -> Path:
        folder = self.folder
        (folder / "mutant").mkdir(exist_ok=True)
        return write_edited(Sums(folder, **contents), mutant(edits=edits).edits, folder / "mutant")

    def test_edits_do_what_they_say(self) -> None:
        source = self.write(EDITS)
        self.assertEqual((source.name, source.read_text()), ("sum.cpp", AFTER))

    def test_edits_find_their_place_where_lines_moved(self) -> None:
        moved = ("line 9\n", "line 9\nnew\n\n")
        source = self.write(EDITS, sum_cpp=BEFORE.replace(*moved))
        self.assertEqual(source.read_text(), AFTER.replace(*moved))

    def test_what_is_found_never_or_twice_is_shown(self) -> None:
        for contents, times in ((BEFORE.replace("line 3", "line three"), 0), (BEFORE + BEFORE, 2)):
            said = f"(?s)no longer fits solutions/09_sums.*{times} times in sum.cpp.*line 2\nline 3"
            with self.assertRaisesRegex(LabError, said):
                self.write(EDITS, sum_cpp=contents)

    def test_any_files_of_the_solution_may_be_changed(self) -> None:
        source = self.write("@@ more.cpp\n-more\n+less\n@@ both.h\n-both\n+none\n")
        changed = [(source.parent / name).read_text() for name in ("sum.cpp", "more.cpp", "both.h")]
        self.assertEqual(changed, [BEFORE, "less\n", "none\n"])

    def test_a_file_that_is_not_there_is_named(self) -> None:
        with self.assertRaisesRegex(LabError, "no longer fits.*0 times in gone.cpp"):
            self.write("@@ gone.cpp\n-more\n")


class Compiled(unittest.TestCase):
    """What is compiled again: the compiler here is `echo`, and its log the command."""

    def setUp(self) -> None:
        self.stage = Sums(self.folder)
        self.solution = self.folder / "solutions" / "09_sums"
        commands = [
            {"file": str(self.solution / name), "command": f"echo -O3 -o {name}.o -c {self.solution / name}"}
            for name in ("more.cpp", "sum.cpp")
        ]
        (self.folder / "compile_commands.json").write_text(json.dumps(commands))

    def inputs(self, source: Path) -> list[str]:
        in_place.compile_stage(context(build_dir=str(self.folder)), self.stage, source, self.folder)
        words = (self.folder / "compiler.log").read_text().split()
        return [word.replace(f"{self.folder}/", "") for word in words[words.index("-o") + 2 :]]

    def copy(self, **contents: str) -> Path:
        copy = Sums(self.folder / "mutant", **contents)
        return copy.root / "solutions" / copy.name / "sum.cpp"

    def test_a_variant_stands_alone(self) -> None:
        variant = self.folder / "variant.cpp"
        self.assertEqual(self.inputs(variant), ["variant.cpp"])

    def test_only_the_changed_file_of_a_mutant(self) -> None:
        self.assertEqual(self.inputs(self.copy(sum_cpp=AFTER)), ["more.cpp.o", "mutant/solutions/09_sums/sum.cpp"])
        changed = self.inputs(self.copy(more_cpp="less\n"))
        self.assertEqual(changed, ["mutant/solutions/09_sums/more.cpp", "sum.cpp.o"])

    def test_all_files_with_a_changed_header(self) -> None:
        both = ["mutant/solutions/09_sums/more.cpp", "mutant/solutions/09_sums/sum.cpp"]
        self.assertEqual(self.inputs(self.copy(both_h="none\n")), both)


class Headers(unittest.TestCase):
    def test_all_of_it_is_read(self) -> None:
        read = mutant(HEADER + "Score: 0\n")
        self.assertEqual((read.killed_by, read.only, read.score), (("mean", "order"), False, 0))

    def test_mistakes_are_named(self) -> None:
        for header, message in [
            (HEADER.replace("Says: the sum, not .* mean\n", ""), "lacks the line 'Says"),
            (HEADER + "Kiled-by: order\n", "cannot read the line 'Kiled-by: order'"),
            (HEADER + "Only: no\n", "can only be yes"),
            (HEADER.replace(".* mean", "(mean"), "cannot read Says"),
            (HEADER + "Score: none\n", "cannot read Says, Score or Loses"),
            ("Mistake: frees twice\nSanitizer: double-free\nOnly: yes\n", "lacks the line 'Killed-by"),
        ]:
            with self.subTest(message), self.assertRaisesRegex(LabError, message.replace("(", r"\(")):
                mutant(header)

    def test_a_mutant_may_be_left_to_the_sanitizer(self) -> None:
        read = mutant("Mistake: frees twice\nSanitizer: double-free\n")
        self.assertEqual((read.sanitizer, read.killed_by), ("double-free", ()))
        self.assertEqual(mutant(HEADER + "Sanitizer: double-free\n").killed_by, ("mean", "order"))


class Verdicts(unittest.TestCase):
    DUE = {"mean": "diagnosis: the sum, not the mean", "order": "wrong order"}

    def faults(self, header: str = HEADER, **failures: str) -> str:
        return "; ".join(mutants.faults(mutant(header), report(**failures)))

    def test_a_mutant_that_dies_as_it_should_has_no_fault(self) -> None:
        self.assertEqual(self.faults(**self.DUE), "")

    def test_a_survivor_is_found(self) -> None:
        self.assertIn("survives", self.faults())

    def test_a_test_that_should_fail_and_does_not_is_found(self) -> None:
        self.assertIn("should fail order", self.faults(mean=self.DUE["mean"]))

    def test_a_crash_is_no_diagnosis(self) -> None:
        self.assertIn("without saying", self.faults(mean="rank 0 died: SIGSEGV", order="wrong order"))

    def test_a_mutant_of_one_test_must_not_fail_others(self) -> None:
        found = self.faults(HEADER + "Only: yes\n", bitwise="x", **self.DUE)
        self.assertIn("no other test should fail, but bitwise", found)
        self.assertEqual(self.faults(HEADER, bitwise="x", **self.DUE), "")

    def test_a_misspelled_test_is_found(self) -> None:
        self.assertIn("no test of the stage: means", self.faults(HEADER.replace("mean,", "means,"), **self.DUE))

    def test_a_run_that_broke_off_is_found(self) -> None:
        broken = report(**self.DUE)
        broken.results[1].status = Status.NOT_RUN
        self.assertIn("no verdict on bitwise", "".join(mutants.faults(mutant(), broken)))

    def test_an_empty_solution_must_have_no_points(self) -> None:
        self.assertIn("should get 0 points, and gets 1", self.faults(HEADER + "Score: 0\n", **self.DUE))

    def test_a_test_without_a_mutant_of_its_own_is_found(self) -> None:
        only = HEADER.replace("mean, order", "mean") + "Only: yes\n"
        self.assertEqual(mutants.not_needed(SPECS, [mutant(), mutant(only)]), ["bitwise", "order"])

    def test_only_tests_that_matter_are_run(self) -> None:
        def names(header: str, everything: bool = True) -> list[str]:
            return [spec.name for spec in mutants.needed(mutant(header), SPECS, everything)]

        everything = [spec.name for spec in SPECS]
        self.assertEqual(names(HEADER), ["mean", "order"])
        for about_all in ("Only: yes\n", "Score: 0\n"):
            self.assertEqual(names(HEADER + about_all), everything)
        self.assertEqual(names(HEADER.replace("mean,", "means,")), everything)  # so that its fault can be told
        self.assertEqual(names(HEADER + "Only: yes\n", everything=False), ["mean", "order"])
        self.assertEqual(names(HEADER + "Score: 0\n", everything=False), everything)


class ThisRepository(unittest.TestCase):
    """Checks of the mutants that need no build."""

    def test_every_mutant_fits_its_solution_and_changes_it(self) -> None:
        for stage in graded_stages():
            solution = in_place.solution_of(stage).parent
            for name, text in mutant_files.entries(stage).items():
                with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                    write_edited(stage, mutant_files.parse(name, text).edits, Path(folder))
                    same = [copy.read_bytes() == (solution / copy.name).read_bytes() for copy in Path(folder).iterdir()]
                    self.assertFalse(all(same))

    def test_every_variant_made_by_edits_fits_its_solution(self) -> None:
        edited = [(stage, each) for stage in graded_stages() for each in variants.variants_of(stage) if each.edits]
        self.assertTrue(edited)
        for stage, variant in edited:
            with self.subTest(variant.title()), tempfile.TemporaryDirectory() as folder:
                source = variant.source(stage, Path(folder))
                self.assertNotEqual(source.read_text(), in_place.solution_of(stage).read_text())

    def test_every_stage_has_an_empty_solution_among_them(self) -> None:
        for stage in graded_stages():
            scores = [mutant_files.parse(*entry).score for entry in mutant_files.entries(stage).items()]
            self.assertIn(0, scores, stage.name)
