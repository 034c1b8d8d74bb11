"""The published numbers: they come out as they were printed, and stand beside own ones."""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd
import pytest

from figures.lib import ddp_comparison, result_files, suite_data, training_times
from figures.lib.result_files import load_reference
from figures.lib.tables import Table, in_digits, side_by_side
from figures.plots import bucketed_ddp, compare_ddp, ddp_suite, ring_all_reduce, sync_batch_norm, train_cifar100
from figures.plots.sync_batch_norm import PUBLISHED as BATCH_NORM
from tests.figures.figure_helpers import TEST_DATA, sample_of


def test_every_table_says_where_it_comes_from_and_its_setup_once() -> None:
    files = sorted(result_files.FOLDER.glob("*.csv"))
    assert len(files) > 10
    for file in files:
        source = load_reference(file.stem).attrs["source"]
        assert re.match(r"Source: (\S+\.txt|.*\barXiv:\d|.*/README\.md,)|Sources: ", source[0]), file
        due = 0 if source[0].startswith("Sources: ") else 1  # several have their set-ups in the rows
        assert sum(line.startswith("Setup: ") for line in source) == due, file


def compare_ddp_text() -> str:
    return compare_ddp.summary(ddp_comparison.published(), 3)


def bucketed_ddp_text() -> str:
    return bucketed_ddp.published_form(training_times.published_times(), "cuda")


def ddp_suite_text() -> str:
    return ddp_suite.blocks(ddp_suite.published(), suite_data.PUBLISHED_BATCH)


def batch_norm_tables() -> dict[str, pd.DataFrame]:
    return {variant: load_reference(name)[sync_batch_norm.COLUMNS] for variant, name in BATCH_NORM.items()}


def sync_batch_norm_text() -> str:
    return sync_batch_norm.text_of(batch_norm_tables(), 10_000, "CUDA_VISIBLE_DEVICES=X,Y python syncbn_benchmark.py")


def ring_text(baseline: str) -> str:
    table = load_reference(ring_all_reduce.REFERENCES[baseline]).set_index(ring_all_reduce.CELL)
    return ring_all_reduce.text_of(baseline, table, "python allredce.py")


def train_cifar100_text() -> str:
    text = train_cifar100.text_of(load_reference("train_cifar100", as_printed=True))
    return re.sub(r"-+", "-", re.sub(r" +", " ", text))  # the published headers were made wider than their rows


# The beginnings of the published texts, byte for byte, and how many lines they have in all. Of the ring's, the line of
# dashes was typed by hand, and some are shorter.
AS_PRINTED: tuple[tuple[Callable[[], str], str, int], ...] = (
    (compare_ddp_text, """\
=== Summary for buffer_size: 3M ===
DDP: [forward]                           Mean     delta%     mean     delta%      p90    delta%      p95    delta%%      p99    delta%
------------------------------------  -------  ---------  -------  ---------  -------  --------  -------  ---------  -------  --------
DDPOption.DDP_CPP_CORE                210.141   0         210.042   0         210.64    0        210.728    0        212.782   0
DDPOption.PYTHON_DDP_ASYNC_REDUCTION  208.221  -0.913365  208.235  -0.860175  208.376  -1.07512  208.418   -1.09622  208.503  -2.01078
DDPOption.PYTHON_DDP_SYNC_REDUCTION   208.272  -0.889167  208.269  -0.843666  208.399  -1.06421  208.441   -1.08532  208.526  -2.00021
""", 13),  # noqa: E501
    (bucketed_ddp_text, """\
#### Batch size 2
Training DDP model, local_bs: 2, seq_len: 128, bucket_size_mb: 1
total time train: tensor([0.7293], device='cuda:0')
total time grad all reduce: tensor([0.2165], device='cuda:0')
ratio grad all reduce to train time: tensor([0.2969], device='cuda:0')
""", 99),
    (ddp_suite_text, """\
Benchmark: resnet50 with batch size 32

                            sec/iter    ex/sec      sec/iter    ex/sec      sec/iter    ex/sec      sec/iter    ex/sec
   1 GPUs --   no ddp:  p50:  0.097s     329/s  p75:  0.097s     329/s  p90:  0.097s     329/s  p95:  0.097s     329/s
""", 39),
    (sync_batch_norm_text, """\
10000 runs for each parameter set

Pytorch BN
| batch_size | hidden_dim | num_workers | median time | max memory allocated |
|------------|------------|-------------|-------------|----------------------|
| 32         | 128        | 2           | 0.00052     | 41984                |
| 32         | 256        | 2           | 0.00047     | 80896                |
""", 28),
    (lambda: ring_text("butterfly"), """\
Comprasion with given butterfly all reduce

| world_size | tensor_size | ring_max_time_consumed | butterfly_max_time_consumed | ring_max_memory | butterfly_max_memory | diff_ring | diff_butterfly |
|------------|-------------|------------------------|-----------------------------|-----------------|----------------------|-----------|----------------|
| 1 | 1 | 0.017 | 0.012 | 379424.0 | 379424.0 | 0.0000 | 0.0000 |
| 2 | 2 | 0.024 | 0.026 | 380787.2 | 380966.4 | 0.0000 | 0.0000 |
| 4 | 4 | 0.026 | 0.027 | 380989.6 | 380996.0 | 2.3592e-16 | 0.0000 |
""", 12),  # noqa: E501
    (lambda: ring_text("all_reduce"), """\
Comprasion with pytorch all reduce

| world_size | tensor_size | ring_max_time_consumed | torch_max_time_consumed | ring_max_memory | torch_max_memory | diff_ring | diff_torch |
|------------|-------------|------------------------|-------------------------|-----------------|------------------|-----------|------------|
| 1 | 1024 | 0.015 | 0.020 | 382460.0 | 382460.0 | 0.0000 | 0.0000 |
""", 11),  # noqa: E501
    (train_cifar100_text, """\
# Training loop benchmark
Selfmade distributed training
| Rank | Time | Max Memory Allocated |
|-|-|-|
| 0 | 29.588 seconds | 170099200 bytes |
| 1 | 29.632 seconds | 170098688 bytes |
loss: 3.2136, acc: 0.2734375
""", 15),
)  # fmt: skip


class TestAsPrinted:
    @pytest.mark.parametrize(("text_of", "beginning", "lines"), AS_PRINTED)
    def test_published_numbers_give_the_published_text(
        self, text_of: Callable[[], str], beginning: str, lines: int
    ) -> None:
        text = text_of()
        assert text[: len(beginning)] == beginning
        assert len(text.splitlines()) == lines

    def test_published_claim_of_batch_norm(self) -> None:
        """ "in general, custom implementation is turned out to be faster but is has larger memory consumption" """
        assert (
            sync_batch_norm.takeaway(batch_norm_tables())
            == "Selfmade is faster in 8 of 8 cells, and takes more memory in 8."
        )


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
        title = Table("Title", [], [], "", [sample_of("compare_ddp")], "Own set-up.")
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
