"""The writeup: its questions and points, what it shows and refuses, and its error messages.

Needs the figures' Python with typst. Each test works in a copy of the writeup's folders.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.figures.figure_helpers import ROOT, draw_figure, save_table
from tools.grading import stages
from tools.report import deliverables, figures, writeup
from tools.report.writeup import TypstFailure, Writeup, questions_of, run_typst

pytest.importorskip("typst", reason="skipped: this Python has no typst")
STAGES = stages.all_stages()


class WriteupTest:
    """A copy of the writeup's folders, so that answers can be written and figures drawn."""

    @pytest.fixture(autouse=True)
    def copied(self, tmp_path: Path) -> None:
        self.root = tmp_path
        for folder in ("writeup", "assignments", "solutions/writeup"):
            shutil.copytree(ROOT / folder, self.root / folder, ignore=shutil.ignore_patterns("out"))
        self.out = self.root / "figures" / "out"
        for stage in STAGES:  # as handed out, even if some are answered already
            questions = (ROOT / "writeup" / "questions" / f"{stage.name}.typ").read_text()
            ids = re.findall(r'question\(\s*"([\d.]+)"', questions)
            self.write("\n".join(f'#answer("{each}")[#todo]' for each in ids), stage.name)

    def writeup(self, impl: str = "assignments", stage: str = "", preset: str = "quick") -> Writeup:
        return Writeup(impl, preset, stages.find_stages(stage), root=self.root)

    def make(self, impl: str = "assignments", stage: str = "", preset: str = "quick") -> writeup.Summary:
        return writeup.make(self.writeup(impl, stage, preset))

    def write(self, answers: str, stage: str = "01_naive_ddp") -> Path:
        file = self.root / "writeup" / "answers" / f"{stage}.typ"
        file.write_text(f'#import "/writeup/answering.typ": *\n{answers}\n')
        return file

    def refuse(self, answers: str, message: str) -> None:
        """Fails with one line, which names the place in the answers, and keeps the existing PDF."""
        self.write(answers)
        old = self.writeup().output
        old.parent.mkdir(exist_ok=True)
        old.write_text("the older one")
        with pytest.raises(TypstFailure, match=message) as caught:
            self.make()
        assert "\n" not in str(caught.value)
        assert list(old.parent.glob(".*")) == []
        assert old.read_text() == "the older one"


class TestQuestions(WriteupTest):
    def questions(self) -> dict[str, list[dict[str, Any]]]:
        return questions_of(self.writeup())

    def test_ten_points_a_stage_fifty_in_all(self) -> None:
        questions = self.questions()
        assert list(questions) == [stage.name for stage in STAGES]
        for stage in STAGES:
            assert sum(question["points"] for question in questions[stage.name]) == 10, stage.name
            ids = [question["id"] for question in questions[stage.name]]
            assert ids == [f"{int(stage.number)}.{number}" for number in range(1, len(ids) + 1)]

    def test_rubrics_add_up_or_typst_says_so(self) -> None:
        file = self.root / "writeup" / "questions" / "01_naive_ddp.typ"
        file.write_text(file.read_text().replace('"1.1", points: 2', '"1.1", points: 3'))
        with pytest.raises(TypstFailure, match="question 1.1 is worth 3, its rubric adds up to 2"):
            self.questions()

    def test_published_question_is_quoted_with_its_deliverable(self) -> None:
        text = " ".join((ROOT / "writeup" / "questions" / "03_bucketed_ddp.typ").read_text().split())
        for quoted in (
            "Problem (ddp_bucketed_benchmarking)",
            "Benchmark your bucketed DDP implementation using the same config as the previous experiments (1 node, 2 "
            "GPUs, XL model size), varying the maximum bucket size (1, 10, 100, 1000 MB). Compare your results to the "
            "previous experiments without bucketing---do the results align with your expectations? If they don't "
            "align, why not? You may have to use the PyTorch profiler as necessary to better understand how "
            "communication calls are ordered and/or executed. What changes in the experimental setup would you expect "
            "to yield results that are aligned with your expectations?",
            "Measured time per training iteration for various bucket sizes. 3-4 sentence commentary about the results, "
            "your expectations, and potential reasons for any mismatch.",
        ):
            assert quoted in text

    def test_every_question_has_a_place_in_the_answers_and_a_reference_answer(self) -> None:
        ids = [question["id"] for each in self.questions().values() for question in each]
        for folder in ("writeup/answers", "solutions/writeup"):
            texts = [(ROOT / folder / f"{stage.name}.typ").read_text() for stage in STAGES]
            assert re.findall(r'^#answer\("([^"]+)"\)', "\n".join(texts), re.MULTILINE) == ids, folder


class TestAnswers(WriteupTest):
    def test_lists_what_is_unanswered_and_missing(self) -> None:
        summary = self.make()
        assert len(summary.unanswered) == summary.total
        assert {"1.1 (2 points)", "1.5 (1 point)"} <= {*summary.unanswered}
        assert "1.3: figure naive_vs_flat: not there yet. It is made by: make figures STAGE=01" in summary.missing
        assert "your name, in writeup/answers/about.typ" in summary.other
        assert self.writeup().output.read_bytes().startswith(b"%PDF-")

    def test_what_counts_as_answered(self) -> None:
        answers = {
            "Because of $x^2$.": True, "$x$": True, "#image(\"/dot.svg\")": True, "#table([1])": True, "": False,
            " \n ": False, "// not yet": False, "#todo": False, "Half of it. #todo": False, "*#todo*": False,
            "- #todo": False, "~": False, "#strong[ ]": False, "#set text(red)\n": False, "#set text(red)\n Red.": True,
        }  # fmt: skip
        (self.root / "dot.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>')
        self.write("\n".join(f'#answer("1.1")[{body}\n]' for body in answers))
        found = run_typst(self.writeup(stage="01"), {}, ["answer"])[1]["answer"]
        assert dict(zip(answers, [each["answered"] for each in found])) == answers

    def test_removed_doubled_and_unfinished_answers_are_named(self) -> None:
        self.write('#answer("1.1")[A]\n#answer("1.1")[It is #todo-number("α in ms").]')
        summary = self.make(stage="01")
        assert '1.2 (2 points), writeup/answers has no #answer("1.2")[...]' in summary.unanswered
        assert {"1.1 is answered 2 times", "numbers to fill in: α in ms"} <= {*summary.other}

    def test_one_stage_alone(self) -> None:
        summary = self.make(stage="4")
        assert {line[0] for line in summary.unanswered + summary.missing} == {"4"}
        self.write('#answer("4.1")[See @figure.step_time.]', "04_sync_batch_norm")
        self.make(stage="4")
        assert self.writeup(stage="4").output.name == "writeup.04_sync_batch_norm.assignments.quick.pdf"

    def test_figures_and_tables_are_shown_with_where_they_come_from(self) -> None:
        draw_figure(self.out, "naive_vs_flat.assignments.quick.png")
        save_table(self.out)
        summary = self.make()
        shown = [one.file.name for one in summary.shown]
        assert shown == ["naive_vs_flat.assignments.quick.png", "sync_batch_norm.assignments.quick.json"]
        assert not any("naive_vs_flat" in line for line in summary.missing)
        assert "Measured on AMD EPYC, 2 cores (example)." in writeup.head(self.writeup(), summary)
        first = self.writeup().output.read_bytes()
        self.make()
        assert self.writeup().output.read_bytes() == first, "the same answers give the same bytes"
        assert str(self.root).encode() not in first

    def test_another_implementations_figure_is_no_figure(self) -> None:
        draw_figure(self.out, "naive_vs_flat.assignments.quick.png", "solutions")
        draw_figure(self.out, "naive_vs_flat.solutions.quick.png", "solutions")
        summary = self.make(stage="01")
        assert summary.shown == []
        (missing,) = summary.missing
        assert "naive_vs_flat.assignments.quick.png has numbers of solutions, quick preset" in missing

    def test_cells_of_tables(self) -> None:
        save_table(self.out)
        good = (
            'assert.eq(cell("sync_batch_norm", "time", where: own), "1.50 ms")',
            'assert.eq(number("sync_batch_norm", "time", where: own), 1.5)',
            'assert.eq(number("sync_batch_norm", "time", nth: 1), 3.0)',
            'assert(number("ring_all_reduce.torch", "time").is-nan())',
            "assert.eq(repr(show-number(-1.996)), repr(show-number(-2.0)))",
            'show-number(number("ring_all_reduce.torch", "time") * 2)',
        )
        own = '#let own = (implementation: "own")\n'
        self.write(own + '#answer("1.1")[' + "\n".join(f"#{{{each}}}" for each in good) + "]")
        self.make(stage="01")
        self.refuse(
            own + '#answer("1.1")[#cell("sync_batch_norm", "tim")]',
            r"^writeup/answers/01_naive_ddp.typ:3:\d+: table sync_batch_norm has no column tim, but implementation",
        )

    def test_answers_may_show_other_figures(self) -> None:
        draw_figure(self.out, "my_own.assignments.quick.png", drawn_as="my_own.assignments.quick")
        self.write('#answer("1.1")[#show-slot(figure-slot("my_own")[A]) #show-slot(figure-slot("none")[B])]')
        other = self.make(stage="01").other
        assert "an answer shows the figure none, which is not there" in other
        assert not any("my_own" in line for line in other)


class TestFailures(WriteupTest):
    @pytest.mark.parametrize(("answers", "place", "message"), (
        ('#answer("1.1")[\n  An #unknown word.\n]', 3, "unknown variable: unknown"),
        ('#answer("1.1")[ok]\n#answer("9.9")[What?]', 3, 'there is no question "9.9"; see writeup/questions'),
        ('#answer("1.1")[\n  #image("none.png")\n]', 3, "file not found"),
        ('#answer("1.1")[\n  See @figure.none.\n]', 3, "label `<figure.none>` does not exist"),
        ('#answer("1.1")[ (no end', 2, "unclosed delimiter"),
    ))  # fmt: skip
    def test_typst_errors_name_file_and_line(self, answers: str, place: int, message: str) -> None:
        self.refuse(answers, rf"^writeup/answers/01_naive_ddp.typ:{place}:\d+: {message}")

    def test_a_name_that_is_no_text(self) -> None:
        (self.root / "writeup" / "answers" / "about.typ").write_text("#let name = 3")
        with pytest.raises(TypstFailure, match="writeup/answers/about.typ: name is to be text in quotes"):
            self.make()


class TestCommand(WriteupTest):
    @pytest.fixture(autouse=True)
    def captured(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def run_main(self, *arguments: str) -> tuple[int, str]:
        with (
            mock.patch.object(sys, "argv", ["writeup.py", *arguments]),
            mock.patch.object(writeup, "Writeup", lambda *a, **k: Writeup(*a, **{**k, "root": self.root})),
        ):
            return writeup.main(), self.capsys.readouterr().err

    @pytest.mark.slow
    def test_figures_that_failed_are_no_success(self) -> None:
        own = ["--stage", "02"]  # its questions ask for the timeline
        with mock.patch.object(deliverables, "DATA", self.root / "figures" / "data"):
            figures.keep_failures("assignments", "quick", {"plots.timeline"}, ["plots.timeline: could not be drawn"])
            assert self.run_main(*own) == (1, "make figures has failed: plots.timeline: could not be drawn\n")
            for others in (["--stage", "05"], [*own, "--preset", "full"], [*own, "--impl", "solutions"]):
                assert self.run_main(*others) == (0, ""), others
            figures.keep_failures("assignments", "quick", {"plots.scaling"}, [])
            assert self.run_main(*own)[0] == 1, "another figure was made"
            figures.keep_failures("assignments", "quick", {"plots.timeline"}, [])
            assert self.run_main(*own) == (0, "")

    def test_reference_answers_are_of_quick_results(self) -> None:
        code, errors = self.run_main("--impl", "solutions", "--preset", "full")
        assert code == 2 and "reference answers speak of the quick results" in errors


class TestReference(WriteupTest):
    def test_looks_for_figures_in_the_gallery(self) -> None:
        gallery = self.root / "figures" / "gallery"
        draw_figure(gallery, "naive_vs_flat.png", "solutions")
        draw_figure(gallery, "step_time.png", drawn_as="step_time.assignments.quick")
        summary = self.make("solutions")
        assert [shown.file.name for shown in summary.shown] == ["naive_vs_flat.png"]
        assert any("step_time.png has numbers of assignments" in line for line in summary.missing)
        assert any("read off figure naive_vs_flat" in line for line in summary.other)

    @pytest.mark.slow
    def test_answers_every_question_and_speaks_of_the_gallery_as_it_is(self) -> None:
        """Nothing is missing, and no figure was redrawn since its numbers were read off."""
        shutil.copytree(ROOT / "figures" / "gallery", self.root / "figures" / "gallery")
        summary = self.make("solutions")
        assert summary.total > 20
        assert summary.unanswered == summary.missing == summary.other == []
        assert self.writeup("solutions").output.read_bytes().startswith(b"%PDF-")
