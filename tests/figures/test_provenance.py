"""The provenance that figures and tables carry, and how the writeup uses it."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from matplotlib import pyplot as plt

from figures.lib import result_files, script, style, tables
from figures.plots import naive_vs_flat
from tests.figures.drawn_test import OWN_LINK, draw_figure, result_of, save_table
from tests.figures.figure_test import FigureTest  # first: it finds the scripts
from tools.grading import stages
from tools.report.writeup_results import Origin, Unusable, find


class Provenance(FigureTest):
    """The provenance that figures carry, and how it is used."""

    def setUp(self) -> None:
        super().setUp()
        self.origin = Origin(self.folder, "assignments", "quick", in_gallery=False)

    def refuse(self, message: str, kind: str = "figure", name: str = "naive_vs_flat") -> None:
        with self.assertRaisesRegex(Unusable, message):
            find(kind, name, self.origin)

    def change_table(self, **fields: Any) -> None:
        file = save_table(self.folder)
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    def test_figure_says_whose_it_is_and_of_which_machine(self) -> None:
        draw_figure(self.folder, "naive_vs_flat.assignments.quick.png")
        shown = find("figure", "naive_vs_flat", self.origin)
        (line,) = shown.lines
        for part in ("assignments, quick preset", "AMD EPYC, 2 cores, host example", "2 ranks, gloo", "commit 0123456"):
            self.assertIn(part, line)
        self.assertEqual((len(shown.machines), shown.commits), (1, {"0123456789abcdef"}))

    def test_published_scale_is_the_same_with_every_preset(self) -> None:
        draw_figure(self.folder, "a.assignments.published.png", preset="published", drawn_as="a.assignments.published")
        draw_figure(self.folder, "b.assignments.published.png", preset="quick", drawn_as="b.assignments.published")
        draw_figure(self.folder, "c.assignments.full.png", preset="full", drawn_as="c.assignments.full")
        origin = Origin(self.folder, "assignments", "full", in_gallery=False)
        self.assertEqual(origin.names("png"), ["a.published", "b.published", "c"])
        self.assertEqual(find("figure", "a.published", origin).file.name, "a.assignments.published.png")
        with self.assertRaisesRegex(Unusable, "numbers of assignments, quick preset, not of assignments, published"):
            find("figure", "b.published", origin)

    def test_metadata_has_no_paths_of_the_machine(self) -> None:
        file = draw_figure(self.folder, "naive_vs_flat.assignments.quick.png")
        self.assertNotIn(b"build/bin", file.read_bytes())

    def test_the_same_data_give_the_same_bytes(self) -> None:
        first, second = (draw_figure(self.folder, f"{number}.png") for number in range(2))
        self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_a_commit_with_changed_files_says_so(self) -> None:
        result = result_of(OWN_LINK, "naive_vs_flat", "solutions", "quick")
        result.provenance.update(commit="0123456789ab-dirty")
        texts = [text.get_text() for text in naive_vs_flat.draw([result]).texts]
        self.assertTrue(any("commit 01234567-dirty" in text for text in texts), texts)

    def test_results_of_several_machines_are_all_named(self) -> None:
        results = [result_of(OWN_LINK, "naive_vs_flat", "solutions", "quick") for _ in range(2)]
        results[1].provenance.update(cpu="Another CPU", host="another")
        figure = naive_vs_flat.draw(results)
        texts = [text.get_text() for text in figure.texts]
        self.assertTrue(any("AMD EPYC, 2 cores and Another CPU" in text for text in texts), texts)
        style.save(figure, self.folder, "naive_vs_flat.solutions.quick")
        shown = find("figure", "naive_vs_flat", Origin(self.folder, "solutions", "quick", in_gallery=False))
        self.assertEqual((len(shown.lines), len(shown.machines)), (2, 2))

    def test_results_of_two_implementations_make_no_figure(self) -> None:
        results = [result_of(OWN_LINK, "naive_vs_flat", impl, "quick") for impl in stages.IMPLEMENTATIONS]
        with self.assertRaisesRegex(result_files.ResultError, "mix implementation: assignments, solutions"):
            naive_vs_flat.draw(results)

    def test_scripts_make_figures_and_tables(self) -> None:
        def make(files: list[Path]) -> Iterator[tuple[str, Any]]:
            result = result_of(files[0], "naive_vs_flat", "assignments", "quick")
            figure = plt.figure(figsize=(1, 1))
            style.add_provenance(figure, [result])
            yield script.name_of("naive_vs_flat", result), figure
            yield script.name_of("numbers", result), tables.Table("Numbers", ["a"], [["1"]], "a\n1", [result])

        arguments = ["--data", str(OWN_LINK), "--out", str(self.folder / "out")]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(script.run("Makes both", make, arguments), 0)
        self.assertEqual(
            sorted(file.name for file in (self.folder / "out").iterdir()),
            [f"{name}.assignments.quick.{ending}" for name in ("naive_vs_flat", "numbers")
             for ending in (("pdf", "png") if name == "naive_vs_flat" else ("json", "txt"))],
        )  # fmt: skip
        self.assertEqual(said.getvalue().count("wrote "), 4)
        origin = Origin(self.folder / "out", "assignments", "quick", in_gallery=False)
        for kind, name in (("figure", "naive_vs_flat"), ("table", "numbers")):
            self.assertIn("assignments, quick preset", find(kind, name, origin).lines[0])

    def test_missing(self) -> None:
        self.refuse("not there yet")

    def test_renamed_from_another_implementation_or_preset(self) -> None:
        for impl, preset in (("solutions", "quick"), ("assignments", "full")):
            draw_figure(self.folder, "naive_vs_flat.assignments.quick.png", impl, preset)
            self.refuse(f"has numbers of {impl}, {preset} preset, not of assignments, quick preset")
        save_table(self.folder, impl="solutions").replace(self.folder / "sync_batch_norm.assignments.quick.json")
        self.refuse("has numbers of solutions, quick preset", "table", "sync_batch_norm")

    def test_renamed_from_another_figure(self) -> None:
        draw_figure(self.folder, "step_time.assignments.quick.png")
        self.refuse("was drawn as naive_vs_flat.assignments.quick, so it shows something else", name="step_time")

    def test_drawn_before_figures_said_it(self) -> None:
        with mock.patch.object(style, "METADATA_KEY", "Comment"):
            draw_figure(self.folder, "naive_vs_flat.assignments.quick.png")
        self.refuse("does not say where its numbers come from; draw it again")

    def test_damaged_figure(self) -> None:
        file = draw_figure(self.folder, "naive_vs_flat.assignments.quick.png")
        content = file.read_bytes()
        half, flipped = len(content) // 2, bytes([content[len(content) // 2] ^ 1])
        for damaged in (content[:half], content[:half] + flipped + content[half + 1 :], b"", b"<svg/>"):
            file.write_bytes(damaged)
            self.refuse("is not a whole PNG; draw it again")
        file.unlink()
        file.mkdir()
        self.refuse("cannot be read: Is a directory")

    def test_broken_metadata(self) -> None:
        for provenance, message in (
            (None, "does not say where"),
            ([{}], "not say of which program, implementation"),
        ):
            document = {"kind": "figure", "name": "naive_vs_flat.assignments.quick", "provenance": provenance}
            with mock.patch.object(style.json, "dumps", return_value=json.dumps(document)):
                draw_figure(self.folder, "naive_vs_flat.assignments.quick.png")
            self.refuse(message)

    def test_broken_table(self) -> None:
        for fields, message in (
            ({"kind": "figure"}, "is not a table"),
            ({"rows": []}, "has no columns or no rows"),
            ({"rows": [["only one cell"]]}, "has a row that does not fit its columns"),
            ({"rows": [["a number", 1.5]]}, "has a row that does not fit its columns"),
            ({"provenance": []}, "does not say where its numbers come from"),
            ({"name": "ring.assignments.quick"}, "was drawn as ring.assignments.quick"),
        ):
            self.change_table(**fields)
            self.refuse(message, "table", "sync_batch_norm")
        (self.folder / "sync_batch_norm.assignments.quick.json").write_text("{")
        self.refuse("is not JSON", "table", "sync_batch_norm")
