"""The figures and tables of sync_batch_norm and train_cifar100 on small data, and the test of their difference."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from figures.lib import train_cifar100_runs
from figures.plots import train_cifar100
from figures.tables import sync_batch_norm
from figures.tables import train_cifar100 as train_cifar100_table
from tests.figures.figure_test import Document, ScriptTest, keep, words_of


def medians(document: Document) -> None:
    for series in document["series"]:
        labels = series["labels"]
        factor = (1 if labels["variant"] == "stage" else 2) * (1 if labels["direction"] == "forward" else 3)
        series["values"] = [factor * value for value in (1e-4, 2e-4, 9)]
        if series["unit"] == "bytes":
            series["values"] = [factor * 1000]


class TestSyncBatchNormTable(ScriptTest):
    def test_each_direction_has_a_table_of_medians(self) -> None:
        made = self.made(sync_batch_norm, self.changed("sync_batch_norm", medians))
        for suffix, factor in (("", 1), (".backward", 3)):
            document = made[f"sync_batch_norm{suffix}"]
            assert document["columns"] == ["implementation", *sync_batch_norm.COLUMNS]
            assert len(document["rows"]) == 8
            peer, stage = document["rows"][0], document["rows"][4]
            assert peer == ["Pytorch BN", "32", "128", "2", f"{factor * 4e-4:.5f}", str(factor * 2000)]
            assert stage == ["Selfmade BN", "32", "128", "2", f"{factor * 2e-4:.5f}", str(factor * 1000)]
            assert "Selfmade is faster in 4 of 4 cells, and takes more memory in 0." in document["note"]
            assert f"\n\nto reproduce: `{document['provenance'][0]['command']}`\n" in document["text"]


GOLDEN_SEEDS = """\
Convergence over seeds (synthetic)
| implementation   | seeds   | loss            | accuracy        | validation      | time [s]    | memory [MiB]   |
|------------------|---------|-----------------|-----------------|-----------------|-------------|----------------|
| selfmade         | 3       | 2.0000 ± 1.0000 | 0.2000 ± 0.1000 | 0.4000 ± 0.2000 | 6.00 ± 1.00 | 2.00 ± 0.00    |
| pytorch          | 3       | 2.5000 ± 1.0000 | 0.2000 ± 0.1000 | 0.4000 ± 0.2000 | 6.00 ± 1.00 | 3.00 ± 0.00    |

loss: selfmade - pytorch = -0.5000, within what the spread over seeds allows (Welch's t = -0.61, p = 0.57).
accuracy: selfmade - pytorch = +0.0000, within what the spread over seeds allows (Welch's t = 0.00, p = 1.00).
validation: selfmade - pytorch = +0.0000, within what the spread over seeds allows (Welch's t = 0.00, p = 1.00).
pytorch against selfmade, here: time +0.0 %, memory +50.0 %.
pytorch against selfmade, published: time -1.2 %, memory +2.3 %.
"""

GOLDEN_BESIDE = """\
Beside the published numbers
| implementation   | quantity               | here      | published   | here / published   |
|------------------|------------------------|-----------|-------------|--------------------|
| selfmade         | rank 0: time [s]       | 6.000     | 29.588      | 0.203              |
| selfmade         | rank 0: memory [bytes] | 2097152   | 170099200   | 0.0123             |
| selfmade         | rank 1: time [s]       | 6.000     | 29.632      | 0.202              |
| selfmade         | rank 1: memory [bytes] | 2097152   | 170098688   | 0.0123             |
| selfmade         | loss                   | 2.0000    | 3.2136      | 0.622              |
| selfmade         | accuracy               | 0.2000000 | 0.2734375   | 0.731              |
"""

GOLDEN_LOOP = """\
Selfmade distributed training (synthetic)
| Rank   | Time          | Max Memory Allocated   |
|--------|---------------|------------------------|
| 0      | 6.000 seconds | 2097152 bytes          |
| 1      | 6.000 seconds | 2097152 bytes          |
loss: 2.0000, acc: 0.2000000
"""


def simplify(document: Document) -> None:
    """Values that can be checked by mental arithmetic; those of validation are twice the training's."""
    for series in document["series"]:
        labels, count = series["labels"], len(series["values"])
        own, seed = labels["distributed_impl"] == "selfmade", labels["seed"]
        value = {
            "loss": (1.0 if own else 1.5) + seed,
            "accuracy": 0.1 + 0.1 * seed,
            "time": (5.0 + seed) / count,
            "memory": (2 if own else 3) * 2**20,
        }[labels["quantity"].split()[-1]]
        factor = 2 if labels["quantity"].startswith("validation") else 1
        series["values"] = [factor * value] * count


class TestTrainCifar100(ScriptTest):
    def real(self, **parameters: object) -> Path:
        """The sample as if it were of the published training, but for some parameters."""

        def change(document: Document) -> None:
            document["parameters"].update(train_cifar100_runs.PUBLISHED_RUN, **parameters)
            for series in document["series"]:
                series["values"] = (series["values"] * 16)[: max(1, 16 * (len(series["values"]) > 1))]

        return self.changed("train_cifar100", change)

    def test_published_ends_stand_on_the_published_quantities_alone(self) -> None:
        (figure,) = self.drawn(train_cifar100, self.real())
        words = words_of(figure)
        assert "CIFAR-100 data" in words
        assert "published, of the same colour (2 GPUs)" in words
        assert "not drawn" not in words
        marker = train_cifar100.PUBLISHED["marker"]
        ends = {
            panel.get_title(loc="left"): [tuple(line.get_xydata()[0]) for line in panel.lines
                                          if line.get_marker() == marker]
            for panel in figure.axes
        }  # fmt: skip
        assert ends == {
            "running training loss": [(16, 3.2136), (16, 3.2149)],
            "last batch's accuracy [%]": [(16, 27.34375), (16, 27.734375)],
            "validation accuracy [%]": [],
        }

    def test_published_ends_are_not_drawn_beside_another_training(self) -> None:
        for other in ({"data": "synthetic"}, {"batch_size": 64}, {"learning_rate": 0.1}, {"train_size": 49_999}):
            (figure,) = self.drawn(train_cifar100, self.real(**other))
            assert "not drawn" in words_of(figure), other

    def tables(self, change: Any) -> dict[str, Document]:
        return self.made(train_cifar100_table, self.changed("train_cifar100", change))

    def test_text_is_golden(self) -> None:
        made = self.tables(simplify)
        assert made["train_cifar100.seeds"]["text"].startswith(GOLDEN_SEEDS)
        document = made["train_cifar100"]
        for part in ("# Experimental setup", "* data: synthetic, 256 images", "under the other one's name",
                     GOLDEN_BESIDE, GOLDEN_LOOP):  # fmt: skip
            assert part in document["text"]
        assert document["rows"][0] == ["selfmade", "rank 0: time [s]", "6.000", "29.588", "0.203"]
        assert len(document["rows"]) == 12
        assert "synthetic" in document["title"]
        assert "another training than the published one" in document["note"]

    def test_a_rank_that_was_not_published_has_nothing_beside_it(self) -> None:
        block = train_cifar100_runs.Printed([("2", "6.000", "2097152")], "2.0000", "0.2000000")
        published = train_cifar100_runs.load_published()["selfmade"]
        rows = train_cifar100_table.beside_published("selfmade", block, published)
        assert rows[0] == ["selfmade", "rank 2: time [s]", "6.000", "", ""]

    def test_one_seed_or_implementation_is_not_compared(self) -> None:
        seeds = "train_cifar100.seeds"
        assert "one seed has no spread" in self.tables(keep(lambda of: of["seed"] == 0))[seeds]["text"]
        alone = self.tables(keep(lambda of: of["distributed_impl"] == "pytorch"))[seeds]["text"]
        assert "selfmade" not in alone


class TestWelch:
    def test_agrees_with_tables_of_students_t(self) -> None:
        for t, freedom, p in ((12.7062, 1, 0.05), (2.77645, 4, 0.05), (4.60409, 4, 0.01), (2.22814, 10, 0.05)):
            assert train_cifar100_runs.two_sided_p(t, freedom) == pytest.approx(p, abs=2e-5)

    def test_compares_means_by_their_spread(self) -> None:
        # Variances 1 and 4 over 3 values each: 2.94 degrees of freedom; 3 would give p = 0.1027.
        found = train_cifar100_runs.compare([1, 2, 3], [3, 5, 7])
        assert found.t == pytest.approx(-3 / math.sqrt(5 / 3))
        assert found.p == pytest.approx(0.1045, abs=1e-3)
        assert found.within_spread()
        assert not train_cifar100_runs.compare([1, 1.01, 1.02], [2, 2.01, 2.02]).within_spread()
        assert train_cifar100_runs.compare([1, 1], [1, 1]).within_spread()
        assert not train_cifar100_runs.compare([1, 1], [2, 2]).within_spread()
        assert math.isnan(train_cifar100_runs.compare([1], [2]).p)
