"""The provenance that figures and tables carry, and how the writeup uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from matplotlib import pyplot as plt

from figures.lib import result_files, script, style, tables
from figures.plots import naive_vs_flat
from tests.figures.figure_test import OWN_LINK, ScriptTest, draw_figure, result_of, save_table, words_of
from tools.grading import stages
from tools.report.writeup_results import Origin, Unusable, find

FILE = "naive_vs_flat.assignments.quick.png"


class TestProvenance(ScriptTest):
    @pytest.fixture(autouse=True)
    def wanted(self) -> None:
        self.origin = Origin(self.folder, "assignments", "quick", in_gallery=False)

    def refuse_shown(self, message: str, kind: str = "figure", name: str = "naive_vs_flat") -> None:
        with pytest.raises(Unusable, match=message):
            find(kind, name, self.origin)

    def test_figure_says_whose_it_is_and_of_which_machine(self) -> None:
        file = draw_figure(self.folder, FILE)
        shown = find("figure", "naive_vs_flat", self.origin)
        (line,) = shown.lines
        for part in ("assignments, quick preset", "AMD EPYC, 2 cores, host example", "2 ranks, gloo", "commit 0123456"):
            assert part in line
        assert (len(shown.machines), shown.commits) == (1, {"0123456789abcdef"})
        assert b"build/bin" not in file.read_bytes(), "a path of the machine"

    def test_published_scale_is_the_same_with_every_preset(self) -> None:
        draw_figure(self.folder, "a.assignments.published.png", preset="published", drawn_as="a.assignments.published")
        draw_figure(self.folder, "b.assignments.published.png", preset="quick", drawn_as="b.assignments.published")
        draw_figure(self.folder, "c.assignments.full.png", preset="full", drawn_as="c.assignments.full")
        self.origin = Origin(self.folder, "assignments", "full", in_gallery=False)
        assert self.origin.names("png") == ["a.published", "b.published", "c"]
        assert find("figure", "a.published", self.origin).file.name == "a.assignments.published.png"
        message = "numbers of assignments, quick preset, not of assignments, published"
        self.refuse_shown(message, name="b.published")

    def test_the_same_data_give_the_same_bytes(self) -> None:
        first, second = (draw_figure(self.folder, f"{number}.png") for number in range(2))
        assert first.read_bytes() == second.read_bytes()

    def test_results_of_several_machines_are_all_named(self) -> None:
        results = [result_of(OWN_LINK, "naive_vs_flat", "solutions", "quick") for _ in range(2)]
        results[1].provenance.update(cpu="Another CPU", host="another")
        figure = naive_vs_flat.draw(results)
        assert "AMD EPYC, 2 cores and Another CPU" in words_of(figure)
        style.save(figure, self.folder, "naive_vs_flat.solutions.quick")
        shown = find("figure", "naive_vs_flat", Origin(self.folder, "solutions", "quick", in_gallery=False))
        assert (len(shown.lines), len(shown.machines)) == (2, 2)

    def test_results_of_two_implementations_make_no_figure(self) -> None:
        results = [result_of(OWN_LINK, "naive_vs_flat", impl, "quick") for impl in stages.IMPLEMENTATIONS]
        with pytest.raises(result_files.ResultError, match="mix implementation: assignments, solutions"):
            naive_vs_flat.draw(results)

    def test_scripts_make_figures_and_tables(self, capsys: pytest.CaptureFixture[str]) -> None:
        def make(files: list[Path]) -> Iterator[tuple[str, Any]]:
            result = result_of(files[0], "naive_vs_flat", "assignments", "quick")
            figure = plt.figure(figsize=(1, 1))
            style.add_provenance(figure, [result])
            yield script.name_of("naive_vs_flat", result), figure
            yield script.name_of("numbers", result), tables.Table("Numbers", ["a"], [["1"]], "a\n1", [result])

        assert script.run("Makes both", make, ["--data", str(OWN_LINK), "--out", str(self.folder)]) == 0
        made = {f"naive_vs_flat.assignments.quick.{ending}" for ending in ("pdf", "png")}
        made |= {f"numbers.assignments.quick.{ending}" for ending in ("json", "txt")}
        assert {file.name for file in self.folder.iterdir()} == made
        assert capsys.readouterr().out.count("wrote ") == 4
        for kind, name in (("figure", "naive_vs_flat"), ("table", "numbers")):
            assert "assignments, quick preset" in find(kind, name, self.origin).lines[0]

    def test_missing(self) -> None:
        self.refuse_shown("not there yet")

    def test_renamed_from_another_implementation_or_preset(self) -> None:
        for impl, preset in (("solutions", "quick"), ("assignments", "full")):
            draw_figure(self.folder, FILE, impl, preset)
            self.refuse_shown(f"has numbers of {impl}, {preset} preset, not of assignments, quick preset")
        save_table(self.folder, impl="solutions").replace(self.folder / "sync_batch_norm.assignments.quick.json")
        self.refuse_shown("has numbers of solutions, quick preset", "table", "sync_batch_norm")

    def test_renamed_from_another_figure(self) -> None:
        draw_figure(self.folder, "step_time.assignments.quick.png")
        self.refuse_shown("was drawn as naive_vs_flat.assignments.quick, so it shows something else", name="step_time")

    def test_drawn_before_figures_said_it(self) -> None:
        with mock.patch.object(style, "METADATA_KEY", "Comment"):
            draw_figure(self.folder, FILE)
        self.refuse_shown("does not say where its numbers come from; draw it again")

    def test_damaged_figure(self) -> None:
        file = draw_figure(self.folder, FILE)
        content = file.read_bytes()
        half = len(content) // 2
        flipped = content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]
        for damaged in (content[:half], flipped, b"", b"<svg/>"):
            file.write_bytes(damaged)
            self.refuse_shown("is not a whole PNG; draw it again")
        file.unlink()
        file.mkdir()
        self.refuse_shown("cannot be read: Is a directory")

    @pytest.mark.parametrize(
        ("provenance", "message"),
        ((None, "does not say where"), ([{}], "not say of which program, implementation")),
    )
    def test_broken_metadata(self, provenance: Any, message: str) -> None:
        document = {"kind": "figure", "name": "naive_vs_flat.assignments.quick", "provenance": provenance}
        with mock.patch.object(style.json, "dumps", return_value=json.dumps(document)):
            draw_figure(self.folder, FILE)
        self.refuse_shown(message)

    @pytest.mark.parametrize(("fields", "message"), (
        ({"kind": "figure"}, "is not a table"),
        ({"rows": []}, "has no columns or no rows"),
        ({"rows": [["only one cell"]]}, "has a row that does not fit its columns"),
        ({"rows": [["a number", 1.5]]}, "has a row that does not fit its columns"),
        ({"provenance": []}, "does not say where its numbers come from"),
        ({"name": "ring.assignments.quick"}, "was drawn as ring.assignments.quick"),
    ))  # fmt: skip
    def test_broken_table(self, fields: dict[str, Any], message: str) -> None:
        file = save_table(self.folder)
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
        self.refuse_shown(message, "table", "sync_batch_norm")
        file.write_text("{")
        self.refuse_shown("is not JSON", "table", "sync_batch_norm")

    def test_a_table_that_the_gallery_lacks(self) -> None:
        (self.folder / "tables.json").write_text("{}")
        self.origin = Origin(self.folder, "solutions", "quick", in_gallery=True)
        self.refuse_shown("not there yet", "table", "sync_batch_norm")
