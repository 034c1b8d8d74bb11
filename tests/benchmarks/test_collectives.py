"""Tests of stage 05's benchmarks collectives, ring_all_reduce and all_reduce_algorithms, run on the solution: what they
measure, what they refuse, and that their figures and tables can be made from it.
"""

from __future__ import annotations

from typing import Any

import pytest

from figures.lib.all_reduces import ALGORITHMS, formula_seconds
from figures.lib.reference_data import load_reference
from tests.benchmarks.program_test import SHARED_MEMORY, VALIDATION, MeasuringTest, launched, series, slow, values

STAGE = "05_ring_all_reduce"
ONE_WORLD = "--trace draws one world of ranks: choose it with --world-size"


def labels_of(document: dict[str, Any], name: str) -> set[object]:
    return {one["labels"][name] for one in document["series"]}


class TestCollectives(MeasuringTest):
    program, stage = "collectives", STAGE
    tiny = ("--repetitions", 2, "--warmup", 0, "--sizes", 1024, 65536)
    paper = "6 GPUs"
    described = ("--resume", "1 KiB to 16 MiB", "6 GPUs of any model")

    @pytest.mark.parametrize("backend", ["gloo", "shm"])
    def test_measures_each_size_with_each_all_reduce_in_all_worlds(self, backend: str) -> None:
        document = self.run_well(*self.tiny, "--backend", backend)
        beside = ["gloo all_reduce"] if backend == "shm" else []
        assert [one["labels"] for one in document["series"]] == [
            {"world_size": world, "bytes": size, "variant": variant}
            for world in (2, 4, 6)
            for size in (1024, 65536)
            for variant in ("ring", "pipelined ring", "butterfly", "all_reduce", *beside)
        ]
        for one in document["series"]:
            assert (one["unit"], len(one["values"])) == ("s", 2)
            assert min(one["values"]) > 0
        assert (document["provenance"]["world_size"], document["provenance"]["backend"]) == (6, backend)
        assert (document["parameters"]["worlds"], document["parameters"]["redop"]) == ("2, 4, 6", "sum")
        assert self.output.count(" pipelined ring ") == 6
        self.assert_drawn("plots.collectives", "plots.all_reduce_bandwidth", "tables.collectives")

    def test_large_tensors_and_worlds_are_measured_less_often(self) -> None:
        document = self.run_well("--world-size", 4, "--sizes", 1024, 4 << 20)
        assert [len(one["values"]) for one in document["series"]] == [20] * 4 + [4] * 4

    def test_sizes_need_not_be_divisible(self) -> None:
        document = self.run_well("--world-size", 3, "--repetitions", 1, "--sizes", 4, 28, 4 * 1001)
        assert labels_of(document, "bytes") == {4, 28, 4004}

    def test_launched_ranks_measure_their_own_world(self) -> None:
        assert labels_of(self.run_well(*self.tiny, **launched()), "world_size") == {1}

    def test_goes_on_where_it_was_stopped(self) -> None:
        """In the second world."""
        self.resume(4, "--repetitions", 10, "--sizes", 1024, 2048, 4096)

    def test_does_not_go_on_with_something_else(self) -> None:
        """Rows that were measured in another way are refused, and kept, as are those that cannot be read."""
        flags = ("--world-size", 2, "--repetitions", 200, "--sizes")
        sizes = (1024, 2048, 4096)
        self.stop_after(1, *flags, *sizes)
        saved = self.partial.read_bytes()
        for other, message in (
            ((*flags, 1024, 4096), 'was measured with sizes "1024, 2048, 4096", and this run has "1024, 4096"'),
            ((*flags[2:], *sizes), "was measured with world_size 2, and this run has 6"),
        ):
            self.assert_refused(message, *other, "--resume")
            assert self.partial.read_bytes() == saved
        self.partial.write_bytes(saved[:9])
        self.assert_refused(f"{self.partial} is corrupt", *flags, *sizes, "--resume")

    def test_refusals(self) -> None:
        self.assert_refused(ONE_WORLD, "--trace", "trace.json")
        self.assert_refused("--sizes", "--sizes", 3, code=VALIDATION)


class RingTest(MeasuringTest):
    program, stage = "ring_all_reduce", STAGE
    described = ("--resume", "10,000 calls", "so no GPU is needed")
    quantities: int
    tables: int

    def test_measures_all_worlds_in_one_run(self) -> None:
        document = self.run_well(*self.tiny)
        cells = {tuple(one["labels"][name] for name in ("peer", "world_size", "tensor_size"))
                 for one in document["series"]}  # fmt: skip
        beside = {1: 1024, 2: 2048, 4: 4096, 8: 16384, 16: 131072}
        assert cells == {
            *(("butterfly", world, world) for world in (1, 2, 4, 8, 16, 32)),
            *(("all_reduce", *pair) for pair in beside.items()),
        }
        assert len(document["series"]) == len(cells) * 2 * self.quantities
        self.check(document)
        self.assert_drawn()
        self.assert_drawn("tables.ring_all_reduce", files=self.tables)

    def check(self, document: dict[str, Any]) -> None:
        raise NotImplementedError


class TestFirstCalls(RingTest):
    """The published procedure."""

    tiny = ("--repetitions", 1)
    quantities, tables = 3, 8

    def check(self, document: dict[str, Any]) -> None:
        """Equal inputs, summed up in the same order, against the same mean: equal errors, digit for digit."""
        assert document["parameters"]["procedure"] == "published"
        assert document["provenance"]["backend"] == "gloo"
        published = load_reference("ring_all_reduce.torch")
        for world, diff in zip(published.numbers("world_size"), published.numbers("diff_torch")):
            labels = {"peer": "all_reduce", "variant": "all_reduce", "world_size": int(world), "quantity": "diff"}
            assert values(document, **labels)[0] == pytest.approx(diff, rel=1e-3)

    def test_every_repeat_begins_anew(self) -> None:
        """New ranks draw the same input again, so they make the same error; ranks that stay draw another."""
        flags = ("--world-size", 4, "--repetitions", 3)
        for more, errors in (((), 1), (("--warmup", 0, "--procedure", "warm"), 3)):
            diff = values(self.run_well(*flags, *more), peer="all_reduce", variant="ring", quantity="diff")
            assert (len(diff), len(set(diff))) == (3, errors)

    @slow
    def test_goes_on_where_it_was_stopped(self) -> None:
        resumed, whole = self.resume(1, "--repetitions", 20, "--world-size", 1)
        assert series(resumed, quantity="diff") == series(whole, quantity="diff")

    def test_refusals(self) -> None:
        instead = "; give --procedure warm"
        for flags, problem in (
            (("--device", "cuda"), "the published procedure is on the CPU, not --device cuda"),
            (("--warmup", "1"), "measures first calls, without --warmup"),
            (("--trace", "trace.json"), "forks new ones for each call"),
        ):
            self.assert_refused(problem + instead, *flags, code=VALIDATION)
        self.assert_refused("which torchrun, mpirun and srun do not" + instead, **launched())


class TestWarmCalls(RingTest):
    flags = SHARED_MEMORY
    tiny = ("--procedure", "warm", "--repetitions", 1, "--warmup", 0)
    quantities, tables = 4, 4

    def check(self, document: dict[str, Any]) -> None:
        assert document["provenance"]["world_size"] == 32
        limits = {"s": (0, 60), "KiB": (1 << 10, 1 << 25), "bytes": (0, 1 << 20), "1": (0, 1e-8)}
        for one in document["series"]:
            least, most = limits[one["unit"]]
            assert least <= one["values"][0] <= most, one

    def test_quantities_are_what_they_say(self) -> None:
        document = self.run_well(*self.tiny, "--world-size", 4)
        chunk = 4096 // 4 * 4
        (ring,) = values(document, peer="all_reduce", variant="ring", quantity="allocated")
        assert chunk <= ring <= 1.1 * chunk
        (butterfly,) = values(document, peer="butterfly", variant="butterfly", quantity="allocated")
        assert 4 * 4 <= butterfly <= 100
        # float32 averages are off by about 1e-8, and there are 4096 of them.
        for variant in ("ring", "all_reduce"):
            (error,) = values(document, peer="all_reduce", variant=variant, quantity="diff")
            assert 1e-14 < error < 1e-10

    def test_other_worlds_have_no_published_pair(self) -> None:
        assert labels_of(self.run_well("--world-size", 3, *self.tiny), "peer") == {"butterfly"}

    def test_launched_ranks_measure_their_own_world(self) -> None:
        assert labels_of(self.run_well(*self.tiny, **launched()), "world_size") == {1}

    @slow
    def test_goes_on_where_it_was_stopped(self) -> None:
        flags = ("--procedure", "warm", "--repetitions", 200, "--warmup", 0, "--world-size", 2)
        resumed, whole = self.resume(1, *flags)
        for quantity in ("diff", "allocated"):  # which depend on the seed, and not on time
            assert series(resumed, quantity=quantity, variant="ring") == series(
                whole, quantity=quantity, variant="ring"
            )

    def test_refuses_a_trace_of_several_worlds(self) -> None:
        self.assert_refused(ONE_WORLD, *self.tiny, "--trace", "trace.json")


class TestAllReduceAlgorithms(MeasuringTest):
    program, stage = "all_reduce_algorithms", STAGE
    tiny = ("--world-size", 2, "--sizes", 64)
    described = ("virtual time",)

    def test_virtual_times_are_those_of_the_formulas(self) -> None:
        network = {"alpha_ns": 7_000, "beta_ns_per_byte": 0.5}
        flags = ("--alpha-ns", 7_000, "--beta-ns-per-byte", 0.5, "--sizes", 120, 12_000)  # 2 to 6 ranks divide these
        for world in (2, 3, 5, 6):
            document = self.run_well("--world-size", world, *flags)
            assert len(document["series"]) == 2 * len(ALGORITHMS)
            for size in (120, 12_000):
                for algorithm in ALGORITHMS:
                    (found,) = values(document, algorithm=algorithm, bytes=size, world_size=world)
                    expected = formula_seconds(algorithm, world, size, network)
                    assert found == pytest.approx(expected, abs=1e-12), f"{algorithm}, {world} ranks"

    def test_measures_all_worlds_in_one_run(self) -> None:
        document = self.run_well("--sizes", 1 << 12, 1 << 18)
        worlds = {2, 3, 4, 5, 6, 7, 8, 12, 16}
        on_cluster = {32, 64, 128, 256, 512, 1024, 2048, 4096}
        assert labels_of(document, "world_size") == worlds | on_cluster
        small = {one["labels"]["world_size"] for one in series(document, bytes=1 << 12)}
        assert small == worlds | on_cluster - {2048, 4096}, "ranks that divide the elements"
        for one in document["series"]:
            labels, network = one["labels"], {"alpha_ns": 10_000, "beta_ns_per_byte": 1}
            expected = formula_seconds(labels["algorithm"], labels["world_size"], labels["bytes"], network)
            divides = labels["bytes"] // 4 % labels["world_size"] == 0
            assert one["values"][0] == pytest.approx(expected, abs=1e-12 if divides else 1e-3 * expected), labels
        self.assert_drawn()

    def test_refusals(self) -> None:
        self.assert_refused("the simulated network moves CPU tensors only", *self.tiny, "--device", "cuda")
        self.assert_refused("this program draws no trace", *self.tiny, "--trace", "trace.json")
        self.assert_refused("the simulated network is this program's own, with ranks that it forks", **launched())
