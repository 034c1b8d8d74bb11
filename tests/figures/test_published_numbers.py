"""The published numbers stand beside own ones."""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd
import pytest

from figures.lib import result_files
from figures.lib.result_files import load_reference
from figures.lib.tables import Table, in_digits, side_by_side
from figures.plots import bucketed_ddp, compare_ddp, ddp_suite, ring_all_reduce, sync_batch_norm
from figures.plots.sync_batch_norm import PUBLISHED as BATCH_NORM
from tests.figures.figure_helpers import TEST_DATA, sample_of


def test_every_table_says_where_it_comes_from_and_its_setup_once() -> None:
    files = sorted(result_files.FOLDER.glob("*.csv"))
    assert len(files) > 10
    for file in files:
        source = load_reference(file.stem).attrs["source"]
        assert re.match(r"Source: (.*\barXiv:\d|.*\.md,|report on .* by )|Sources: ", source[0]), file
        due = 0 if source[0].startswith("Sources: ") else 1  # several have their set-ups in the rows
        assert sum(line.startswith("Setup: ") for line in source) == due, file


def test_published_claim_of_batch_norm() -> None:
    """ "in general, custom implementation is turned out to be faster but is has larger memory consumption" """
    tables = {variant: load_reference(name)[sync_batch_norm.COLUMNS] for variant, name in BATCH_NORM.items()}
    assert sync_batch_norm.takeaway(tables) == "The custom layer is faster in 8 of 8 cells, and takes more memory in 8."


# Every script that sets a published table, a result, and how many rows of the published tables it repeats.
BESIDE = (
    (bucketed_ddp.make, "bucketed_ddp.simulated", {"bucketed_ddp": 8}),
    (compare_ddp.make, "compare_ddp", {"compare_ddp": 8 * 2 * 3}),
    (ddp_suite.make, "ddp_suite", {"ddp_suite.bucketed": 48, "ddp_suite.Reducer": 48}),
    (
        ddp_suite.make,
        "ddp_suite.simulated",
        {
            "ddp_suite.bucketed_25MB": 96,
            "ddp_suite.Reducer_25MB": 96,
            "ddp_suite_ab.bucketed": 40,
            "ddp_suite_ab.Reducer": 40,
        },
    ),
    (sync_batch_norm.make, "sync_batch_norm", {"sync_batch_norm.stage": 4, "sync_batch_norm.baseline": 4}),
    (ring_all_reduce.make, "ring_all_reduce", {"ring_all_reduce.butterfly": 6, "ring_all_reduce.torch": 5}),
)


class TestBesideOwnNumbers:
    @pytest.mark.parametrize(("make", "sample", "expected"), BESIDE)
    def test_rows_and_columns_meet(self, make: Callable, sample: str, expected: dict[str, int]) -> None:
        tables = {name: table for name, table in make([TEST_DATA / f"{sample}.json"]) if ".beside." in name}
        assert {name.partition(".beside")[0]: len(table.rows) for name, table in tables.items()} == expected
        for row, column, place in (
            (row, column, place)
            for table in tables.values() for row in table.rows for place, column in enumerate(table.columns)
        ):  # fmt: skip
            if column == "ratio" and row[place] != "-":
                value, published = map(float, row[place - 2 : place])
                assert float(row[place]) == pytest.approx(value / published, rel=6e-3), row

    def table(self, *rows: tuple) -> Table | None:
        title = Table("Title", [], [], [sample_of("compare_ddp")], "Own set-up.")
        keys = ("model", "gpus", "percentile")
        own = pd.DataFrame(rows, columns=[*keys, "sec/iter", "diff"])
        return next((table for _, table in side_by_side("suite", title, "ddp_suite_diff", keys, own)), None)

    def test_value_published_and_ratio(self) -> None:
        table = self.table(("resnet50", 1, 75, 0.202, 1.0), ("resnet18", 1, 75, 1.0, 1.0))
        columns = ["model", "gpus", "percentile", "sec/iter", "published", "ratio", "diff", "published"]
        assert table.columns == columns
        assert table.rows == [["resnet50", "1", "75", "0.202", "0.101", "2", "1", "-0.3"]]
        assert table.note.startswith("Own set-up. Published: ")
        assert "on 8 DGX machines with V100 GPUs" in table.note
        assert "Of 40 published rows 1 were repeated." in table.note

    def test_there_is_none_without_a_row_in_common(self) -> None:
        assert self.table(("resnet18", 1, 75, 1.0, 1.0)) is None

    def test_digits(self) -> None:
        digits = ["0.0001234", "208.2", "170099200", "-0.3", "0"]
        assert [in_digits(n) for n in (0.00012345, 208.2214, 170099200.0, -0.3, -0.0)] == digits
