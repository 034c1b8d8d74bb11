"""The figures and tables of stage 05 on small data: formulas, fits, means, bandwidths."""

from __future__ import annotations

import pytest

from figures.lib import all_reduces, result_files
from figures.plots import all_reduce_algorithms, all_reduce_bandwidth, ring_all_reduce
from figures.tables import collectives
from figures.tables import ring_all_reduce as ring_all_reduce_table
from tests.figures.figure_test import TEST_DATA, Document, ScriptTest, unchanged, warm

NETWORK = {"alpha_ns": 10_000, "beta_ns_per_byte": 1.0}


class TestAlgorithms:
    @pytest.mark.parametrize(("algorithm", "world", "nanoseconds"), (
        ("ring", 8, 14 * (10_000 + 1_024)),
        ("butterfly", 2, 2 * (10_000 + 4_096)),
        ("butterfly", 8, 14 * (10_000 + 1_024)),
        ("recursive doubling", 8, 3 * (10_000 + 8_192)),
        ("recursive doubling", 7, 4 * (10_000 + 8_192)),
        ("tree", 8, 6 * (10_000 + 8_192)),
        ("tree", 5, 6 * (10_000 + 8_192)),
        ("tree", 1, 0),
    ))  # fmt: skip
    def test_formulas_are_those_of_the_literature(self, algorithm: str, world: int, nanoseconds: float) -> None:
        seconds = all_reduces.formula_seconds(algorithm, world, 8_192, NETWORK)
        assert seconds == pytest.approx(1e-9 * nanoseconds)

    def test_crossovers_are_where_times_are_equal(self) -> None:
        pair = ("ring", "recursive doubling")
        for world in (3, 4, 8, 16):
            size = all_reduces.crossover(*pair, world, NETWORK)
            one, other = (all_reduces.formula_seconds(algorithm, world, size, NETWORK) for algorithm in pair)
            assert one == pytest.approx(other)
        assert all_reduces.crossover(*pair, 8, NETWORK) == pytest.approx(88_000)
        assert all_reduces.crossover(*pair, 2, NETWORK) is None
        assert all_reduces.crossover("ring", "butterfly", 8, NETWORK) is None

    def test_simulation_and_formulas_agree(self) -> None:
        sample = result_files.load(TEST_DATA / "all_reduce_algorithms.json", "all_reduce_algorithms")
        times = all_reduce_algorithms.times_of(sample)
        assert all_reduce_algorithms.largest_difference(times, NETWORK, divisible=True) < 1e-9
        assert all_reduce_algorithms.largest_difference(times, NETWORK, divisible=False) < 1e-2


class TestBandwidth:
    @pytest.mark.parametrize(
        ("ranks", "alpha", "beta"), ((2, 20e-6, 1e-9), (5, 1e-3, 3e-11), (3, 0, 1e-9), (3, 1e-5, 0))
    )
    def test_fit_finds_the_alpha_and_beta_of_exact_times(self, ranks: int, alpha: float, beta: float) -> None:
        times = {size: all_reduce_bandwidth.model_seconds(size, ranks, alpha, beta) for size in (4096, 2**20)}
        fitted = all_reduce_bandwidth.fit(times, ranks)
        assert fitted == (pytest.approx(alpha, abs=1e-12), pytest.approx(beta, abs=1e-15))

    def test_fitted_numbers_are_never_negative(self) -> None:
        for times in ({1024: 1e-6, 2048: 4e-6, 4096: 16e-6}, {1024: 4e-6, 2048: 2e-6, 4096: 1e-6}):
            fitted = all_reduce_bandwidth.fit(times, 2)
            assert min(fitted) == 0
            assert max(fitted) > 0

    def test_is_that_of_nccl_tests(self) -> None:
        assert all_reduces.bus_bandwidth(4e9, 2, 4) == pytest.approx(3)
        assert all_reduces.bus_bandwidth(4e9, 2, 1) == 0


def alike(document: Document) -> None:
    values = {"time": [1.0, 2.0], "maxrss": [1000, 1001], "diff": [0, 2e-15], "allocated": [1, 1]}
    for series in document["series"]:
        series["values"] = values[series["labels"]["quantity"]]


class TestRing(ScriptTest):
    def test_draws_means_beside_the_published_numbers(self) -> None:
        result = result_files.load(TEST_DATA / "ring_all_reduce.json", "ring_all_reduce")
        table, time = ring_all_reduce.TABLES[0], ring_all_reduce.QUANTITIES[0]
        first = [series for series in result.series if series["labels"]["quantity"] == "time"][0]
        own = ring_all_reduce.measured(result, table, "ring", time)
        assert [world for world, _ in own] == [1, 2, 4, 8, 16, 32]
        assert own[0][1] == pytest.approx(1e3 * sum(first["values"]) / len(first["values"]))
        assert ring_all_reduce.published(table, "butterfly", time)[1] == (2, 26.0)

    def test_warm_calls_are_not_drawn_beside_published_numbers(self) -> None:
        # Memory's zero is a line, too.
        for change, lines in ((unchanged, [4, 4, 5, 5, 4, 4]), (warm, [2, 2, 3, 3, 2, 2, 2, 2])):
            (figure,) = self.drawn(ring_all_reduce, self.changed("ring_all_reduce", change))
            assert [len(axes.get_lines()) for axes in figure.axes] == lines

    def test_small_times_show_two_digits(self) -> None:
        texts = {0.0: "0.000", 12.3456: "12.346", 0.02: "0.020", 2.44e-4: "0.00024", 7e-6: "0.0000070"}
        assert {seconds: ring_all_reduce_table.seconds_text(seconds) for seconds in texts} == texts

    def test_warm_calls_have_tables_of_their_own(self) -> None:
        tables = self.made(ring_all_reduce_table, self.changed("ring_all_reduce", warm))
        for table in tables.values():
            assert table["title"].endswith(": warm calls")
            assert "of a warm call alone" in table["note"]

    def test_rows_are_means_of_all_worlds(self) -> None:
        made = self.made(ring_all_reduce_table, self.changed("ring_all_reduce", alike))
        butterfly, torch = (made[f"ring_all_reduce.{part}"] for part in ("butterfly", "torch"))
        assert [row[0] for row in butterfly["rows"]] == ["1", "2", "4", "8", "16", "32"]
        assert butterfly["rows"][1] == ["2", "2", *["1.500"] * 2, *["1000.5"] * 2, *["1.0000e-15"] * 2]
        assert torch["rows"][4][:2] == ["16", "131072"]
        assert torch["columns"][3] == "torch_max_time_consumed"
        assert "torch: Gloo's all_reduce." in torch["note"]
        for document in (butterfly, torch):
            assert "| 1.500 | 1.500 | 1000.5 |" in document["text"]
            assert document["text"].endswith(f"to reproduce: `{document['provenance'][0]['command']}`\n")


# The columns of nccl-tests' all_reduce_perf, doc/PERFORMANCE.md, without its second half for calls in place.
GOLDEN = """\
# 4 ranks, ring
#       size         count      type   redop        time     algbw     busbw
#        (B)    (elements)                          (us)    (GB/s)    (GB/s)
        1024           256     float     sum        10.0    0.1024    0.1536
    16777216       4194304     float     sum      1000.0   16.7772   25.1658
# Avg bus bandwidth    : 12.6597"""


def two_sizes(document: Document) -> None:
    document["series"] = [
        {"labels": {"world_size": 4, "bytes": size, "variant": "ring"}, "unit": "s", "values": values}
        for size, values in {1024: [10e-6, 9e-6, 1], 16 << 20: [1e-3]}.items()
    ]


class TestCollectivesTable(ScriptTest):
    def test_columns_are_those_of_nccl_tests(self) -> None:
        made = self.made(collectives, self.changed("collectives", two_sizes))
        assert made["collectives"]["text"] == GOLDEN

    def test_has_every_world_variant_and_size(self) -> None:
        document = self.made(collectives, TEST_DATA / "collectives.json")["collectives"]
        text = document["text"]
        assert document["columns"] == ["ranks", "size", "ring", "pipelined ring", "butterfly", "Gloo's all_reduce"]
        assert len(document["rows"]) == 3 * 4
        assert text.count("Avg bus bandwidth") == 3 * 4
        assert len([line for line in text.splitlines() if not line.startswith("#")]) == 3 * 4 * 4
        for world in (2, 4, 6):
            assert f"# {world} ranks, Gloo's all_reduce\n" in text
        assert "The ranks share 2 cores." in document["note"]
