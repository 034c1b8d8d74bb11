"""The numbers that figures and tables show: formulas, fits, means, shares, and the test of a difference."""

from __future__ import annotations

import pandas as pd
import pytest

from figures.lib import all_reduces, training_times
from figures.plots import (
    all_reduce_algorithms,
    bucket_overhead,
    collectives,
    memory_per_gpu,
    ring_all_reduce,
    scaling,
    sharded_scaling,
    step_time,
    timeline,
)
from figures.schemes import curves, reductions, steps
from tests.figures.figure_helpers import sample_of

NETWORK = {"alpha_ns": 10_000, "beta_ns_per_byte": 1.0}


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
def test_costs_of_all_reduces_are_those_of_the_literature(algorithm: str, world: int, nanoseconds: float) -> None:
    seconds = all_reduce_algorithms.formula_seconds(algorithm, world, 8_192, NETWORK)
    assert seconds == pytest.approx(1e-9 * nanoseconds)


def test_crossovers_are_where_times_are_equal() -> None:
    pair = ("ring", "recursive doubling")
    for world in (3, 4, 8, 16):
        size = all_reduce_algorithms.crossover(*pair, world, NETWORK)
        one, other = (all_reduce_algorithms.formula_seconds(algorithm, world, size, NETWORK) for algorithm in pair)
        assert one == pytest.approx(other)
    assert all_reduce_algorithms.crossover(*pair, 8, NETWORK) == pytest.approx(88_000)
    assert all_reduce_algorithms.crossover(*pair, 2, NETWORK) is None
    assert all_reduce_algorithms.crossover("ring", "butterfly", 8, NETWORK) is None


def test_simulated_all_reduces_and_formulas_agree() -> None:
    exact, uneven = all_reduce_algorithms.differences(sample_of("all_reduce_algorithms"), NETWORK)
    assert exact < 1e-9
    assert 0 < uneven < 1e-2


@pytest.mark.parametrize(("ranks", "alpha", "beta"), ((2, 20e-6, 1e-9), (5, 1e-3, 3e-11), (3, 0, 1e-9), (3, 1e-5, 0)))
def test_fit_finds_the_alpha_and_beta_of_exact_times(ranks: int, alpha: float, beta: float) -> None:
    times = pd.Series({size: collectives.model_seconds(size, ranks, alpha, beta) for size in (4096, 2**20)})
    assert collectives.fit(times, ranks) == (pytest.approx(alpha, abs=1e-12), pytest.approx(beta, abs=1e-15))


def test_fitted_numbers_are_never_negative() -> None:
    for times in ({1024: 1e-6, 2048: 4e-6, 4096: 16e-6}, {1024: 4e-6, 2048: 2e-6, 4096: 1e-6}):
        fitted = collectives.fit(pd.Series(times), 2)
        assert min(fitted) == 0
        assert max(fitted) > 0


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    assert all_reduces.bus_bandwidth(4e9, 2, 4) == pytest.approx(3)
    assert all_reduces.bus_bandwidth(4e9, 2, 1) == 0


def test_small_times_of_the_ring_show_two_digits() -> None:
    texts = {0.0: "0.000", 12.3456: "12.346", 0.02: "0.020", 2.44e-4: "0.00024", 7e-6: "0.0000070"}
    assert {seconds: ring_all_reduce.seconds_text(seconds) for seconds in texts} == texts


def test_speedups_are_medians_over_rounds() -> None:
    times = pd.DataFrame({"naive": [2.0, 30.0, 4.0], "flat": [1.0, 10.0, 8.0]})
    assert step_time.speedup(times, "flat", "naive") == 2.0
    assert step_time.speedup(times, "flat", "Reducer") is None


def test_bucket_overhead_is_the_handouts() -> None:
    """Its table of ResNet-50, and its picture."""
    for cap, launches, last in ((0.25, 7.80, 0.05), (1, 1.95, 0.18), (3.26, 0.60, 0.60), (25, 0.08, 4.59)):
        terms = bucket_overhead.formula_seconds(cap * 2**20, 102_228_128, 20e-6, 1e9 / 0.175)
        assert [round(1e3 * term, 2) for term in terms] == [launches, last]
        assert 1e3 * sum(curves.overhead_s(cap * curves.MIB)) == pytest.approx(launches + last, abs=0.011)


def test_the_handouts_chain_and_ring() -> None:
    overlapped = [end for _, end in steps.chain(steps.layers(), overlap=True)]
    assert overlapped == pytest.approx((3.66, 5.26, 6.52, 6.73))
    assert steps.chain(steps.layers(), overlap=False)[-1][1] == pytest.approx(9.39)
    sums = [sum(rank[chunk] for rank in reductions.RING) for chunk in range(3)]
    assert reductions.ring_states()[-1] == [sums] * 3


def test_operations_in_real_time_follow_each_other() -> None:
    operations = pd.DataFrame({"group": "naive", "rank": 0, "launched": [0, 1, 2, 40], "end": [10, 30, 20, 50]})
    shown = timeline.one_after_the_other(operations)
    assert list(zip(shown["begin"], shown["end"])) == [(0, 10), (10, 20), (20, 30), (40, 50)]


def test_times_are_means_of_the_slowest_rank_and_the_reducer_waits_inside_backward() -> None:
    result = sample_of("bucketed_ddp")
    rank = result["rank"] + 1
    seconds = {"train": 2.0, "backward": 1.0, "all-reduce": 0.5}
    slower = rank * result["part"].map(seconds) * (result["variant"] == "compute only").map({True: 0.5, False: 1.0})
    times = training_times.times(result.assign(value=slower.astype(float))).set_index("variant")
    assert set(times.loc["naive", "train"]) == {4.0}
    assert set(times.loc["naive", "ratio"]) == {0.25}
    assert set(times.loc["Reducer", "all-reduce"]) == {2.0 - 1.0}


class TestScaling:
    def test_efficiency_is_computing_alone_over_the_step(self) -> None:
        result = sample_of("scaling")
        shown = scaling.efficiencies(result)
        steps = result[result["quantity"] == "step"].set_index(["variant", "world_size"])["value"]
        assert set(shown) == set(scaling.LOOKS)
        assert sorted(shown.index) == [1, 2, 64, 4096]
        for name in shown:
            assert list(shown[name]) == pytest.approx(list(100 * steps["compute only", 1] / steps[name].sort_index()))
        assert shown.max().max() < 100

    def test_best_caps_and_those_nearly_as_good(self) -> None:
        assert scaling.best_caps(pd.Series({1: 2.0, 2: 1.004, 4: 1.0, 8: 1.0049, 16: 1.006})) == (4, 2, 8)
        assert scaling.best_caps(pd.Series({1: 1.0, 2: 1.0})) == (1, 1, 2)

    def test_no_step_is_shorter_than_the_bound(self) -> None:
        result = sample_of("sharded_scaling")
        for model in result["model"].unique():
            seconds = sharded_scaling.by_link(result, model)
            for ahead in range(3):
                assert (seconds[sharded_scaling.STEP, ahead] >= sharded_scaling.bound(seconds)).all(), (model, ahead)
            assert sharded_scaling.most_saved(seconds)[1] > 10, model


class TestMemory:
    def test_what_is_published_is_found_again(self) -> None:
        held = memory_per_gpu.gigabytes(sample_of("memory_per_gpu"), "held")
        assert list(held.index.unique("parameters")) == [7_500_000_000, 128_000_000_000, 1_000_000_000_000]
        assert [round(gb, 1) for gb in held.loc[7_500_000_000, 64]] == [120.0, 16.6, 1.9]
        assert memory_per_gpu.published(7_500_000_000).loc[64, "os+g"] == 16.6
        assert memory_per_gpu.largest_error(held) < 0.5, "percent"
        assert memory_per_gpu.published(1).empty

    def test_the_largest_model_is_that_of_a_steps_peak(self) -> None:
        largest = memory_per_gpu.largest_model(memory_per_gpu.gigabytes(sample_of("memory_per_gpu"), "most")).loc[64]
        # 18 bytes a parameter: its own 2, 2 of the gradient, 2 in buckets, 12 of state.
        assert largest["03_bucketed_ddp"] == pytest.approx(80 / 18, abs=0.01)
        assert largest["06_sharded_optimizer"] > 2 * largest["03_bucketed_ddp"]

    def test_kinds_add_up_to_the_most(self) -> None:
        result = sample_of("memory_per_gpu.kinds")
        kinds = memory_per_gpu.by_kind(result).droplevel("moment").sum(axis="columns")
        most = memory_per_gpu.gigabytes(result, "most").loc[7_500_000_000]
        assert dict(kinds) == pytest.approx(dict(most.T.stack()))
