"""Published and own numbers in one table: that rows and columns meet, for every published table."""

from __future__ import annotations

import unittest

from figures.lib import reference_data, result_files
from figures.lib.side_by_side import Quantity, in_digits, side_by_side
from figures.lib.tables import Table
from figures.tables import bucketed_ddp, compare_ddp, ddp_suite, ddp_suite_ab, ring_all_reduce, sync_batch_norm
from tests.figures.figure_test import TEST_DATA

# Every script that sets a published table, a result, and how many rows of the published tables it repeats.
BESIDE = (
    (bucketed_ddp.make, "bucketed_ddp.simulated", {"bucketed_ddp.beside": 8}),
    (compare_ddp.make, "compare_ddp", {"compare_ddp.beside": 8 * 2 * 3}),
    (ddp_suite.tables, "ddp_suite", {"ddp_suite.bucketed.beside": 48, "ddp_suite.Reducer.beside": 48}),
    (ddp_suite.tables, "ddp_suite.simulated",
     {"ddp_suite.bucketed_25MB.beside": 96, "ddp_suite.Reducer_25MB.beside": 96}),
    (ddp_suite_ab.tables, "ddp_suite.ab", {"ddp_suite_ab.bucketed.beside": 4, "ddp_suite_ab.Reducer.beside": 4}),
    (sync_batch_norm.tables, "sync_batch_norm", {"sync_batch_norm.stage.beside": 4, "sync_batch_norm.peer.beside": 4}),
    (ring_all_reduce.tables, "ring_all_reduce",
     {"ring_all_reduce.butterfly.beside": 6, "ring_all_reduce.torch.beside": 5}),
)  # fmt: skip


class EveryPublishedTable(unittest.TestCase):
    def test_stands_beside_own_numbers(self) -> None:
        for make, sample, expected in BESIDE:
            with self.subTest(sample):
                tables = {name: table for name, table in make([TEST_DATA / f"{sample}.json"]) if ".beside." in name}
                rows = {name.partition(".beside")[0] + ".beside": len(table.rows) for name, table in tables.items()}
                self.assertEqual(rows, expected)
                for table in tables.values():
                    self.check_ratios(table)

    def check_ratios(self, table: Table) -> None:
        for row in table.rows:
            for place, column in enumerate(table.columns):
                if column == "ratio" and row[place] != "-":
                    value, published = map(float, row[place - 2 : place])
                    ratio = value / published
                    self.assertAlmostEqual(float(row[place]), ratio, delta=6e-3 * ratio, msg=row)


class SideBySide(unittest.TestCase):
    def setUp(self) -> None:
        result = result_files.load(TEST_DATA / "compare_ddp.json", "compare_ddp")
        self.own = Table("Title", [], [], "", [result], "Own set-up.")

    def table(self, own: dict[tuple[str, ...], tuple[float, ...]], *quantities: Quantity) -> Table | None:
        made = list(side_by_side("suite", self.own, "ddp_suite_diff", ("model", "gpus", "percentile"), quantities, own))
        return made[0][1] if made else None

    def test_value_published_and_ratio(self) -> None:
        own = {("resnet50", "1", "75"): (0.202, 1.0), ("resnet18", "1", "75"): (1.0, 1.0)}
        table = self.table(own, Quantity("sec/iter"), Quantity("diff", has_ratio=False))
        columns = ["model", "gpus", "percentile", "sec/iter", "published", "ratio", "diff", "published"]
        self.assertEqual(table.columns, columns)
        self.assertEqual(table.rows, [["resnet50", "1", "75", "0.202", "0.101", "2", "1", "-0.3"]])
        self.assertTrue(table.note.startswith("Own set-up. Published: "))
        self.assertIn("on 8 DGX machines with V100 GPUs", table.note)
        self.assertIn("Of 40 published rows 1 were repeated.", table.note)

    def test_there_is_none_without_a_row_in_common(self) -> None:
        self.assertIsNone(self.table({("resnet18", "1", "75"): (1.0,)}, Quantity("sec/iter")))

    def test_zero_has_no_ratio(self) -> None:
        own = {("1", "1"): (0.5,)}
        keys = ("world_size", "tensor_size")
        made = side_by_side("ring", self.own, "ring_all_reduce.butterfly", keys, [Quantity("diff_ring")], own)
        self.assertEqual(next(made)[1].rows, [["1", "1", "0.5", "0.0000", "-"]])

    def test_refuses_too_few_numbers(self) -> None:
        with self.assertRaises(ValueError):
            self.table({("resnet50", "1", "75"): (0.1,)}, Quantity("sec/iter"), Quantity("diff"))

    def test_digits(self) -> None:
        self.assertEqual([in_digits(n) for n in (0.00012345, 208.2214, 170099200.0, -0.3, -0.0)],
                         ["0.0001234", "208.2", "170099200", "-0.3", "0"])  # fmt: skip

    def test_every_reference_says_its_setup_once(self) -> None:
        for file in reference_data.FOLDER.glob("*.csv"):
            lines = reference_data.load_reference(file.stem).source
            due = 0 if lines[0].startswith("Sources: ") else 1  # several have their set-ups in the rows
            self.assertEqual(sum(line.startswith("Setup: ") for line in lines), due, file)
