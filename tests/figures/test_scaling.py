"""The figures of the simulated cluster on small data: weak scaling, with and without shards, and memory."""

from __future__ import annotations

import pytest

from figures.lib.result_files import Result, load
from figures.plots import memory_by_kind, memory_per_gpu, scaling, sharded_scaling
from tests.figures.figure_test import TEST_DATA


def result_of(name: str) -> Result:
    return load(TEST_DATA / f"{name}.json", name.partition(".")[0])


class TestScaling:
    def test_efficiency_is_computing_alone_over_the_step(self) -> None:
        result = result_of("scaling")
        steps, efficiencies = scaling.steps_of(result), scaling.efficiencies(result)
        assert list(efficiencies) == ["naive", "flat", "overlapped", "bucketed", "Reducer"]
        for name, values in efficiencies.items():
            assert sorted(values) == [1, 2, 64, 4096], name
            for gpus, value in values.items():
                assert value == pytest.approx(100 * steps["compute only"][1] / steps[name][gpus])
                assert value < 100, name

    def test_best_caps_and_those_nearly_as_good(self) -> None:
        assert scaling.best_caps({1: 2.0, 2: 1.004, 4: 1.0, 8: 1.0049, 16: 1.006}) == (4, 2, 8)
        assert scaling.best_caps({1: 1.0, 2: 1.0}) == (1, 1, 2)
        by_gpus = scaling.steps_by_cap(result_of("scaling"))
        assert sorted(by_gpus) == [2, 64, 4096]
        assert all(len(steps) > 5 for steps in by_gpus.values())


class TestShardedScaling:
    def test_efficiency_is_forward_and_backward_alone_over_the_step(self) -> None:
        steps = sharded_scaling.values_of(result_of("sharded_scaling"), "step", "s")
        for model, variants in steps.items():
            for name, values in sharded_scaling.efficiencies(variants).items():
                for gpus, percent in values.items():
                    alone = variants["compute only"][1]
                    assert percent == pytest.approx(100 * alone / variants[name][gpus]), (model, name, gpus)
                    assert percent <= 100, (model, name, gpus)

    def test_what_does_not_fit_is_said(self) -> None:
        most = sharded_scaling.values_of(result_of("sharded_scaling"), "most", "bytes")["7.5b"]
        assert not sharded_scaling.fits(most["bucketed"][64])
        assert sharded_scaling.fits(most["fully sharded"][64])

    def test_no_step_is_shorter_than_the_bound(self) -> None:
        for model, lines in sharded_scaling.by_link(result_of("sharded_scaling")).items():
            for speed, seconds in sharded_scaling.bound(lines).items():
                for ahead in range(3):
                    assert lines[sharded_scaling.STEP, ahead][speed] >= seconds, (model, speed, ahead)
            assert sharded_scaling.most_saved(lines)[1] > 10, model


class TestMemory:
    def test_what_is_published_is_found_again(self) -> None:
        held = memory_per_gpu.held_by(result_of("memory_per_gpu"))
        assert sorted(held) == [7_500_000_000, 128_000_000_000, 1_000_000_000_000]
        small = held[7_500_000_000]
        assert [round(small[stage][64], 1) for stage in memory_per_gpu.LOOKS] == [120.0, 16.6, 1.9]
        assert memory_per_gpu.published(7_500_000_000)["os+g"][64] == 16.6
        assert memory_per_gpu.largest_error(held) < 0.5, "percent"
        assert memory_per_gpu.published(1)["os"] == {}

    def test_the_largest_model_is_that_of_a_steps_peak(self) -> None:
        largest = memory_per_gpu.largest_model(memory_per_gpu.held_by(result_of("memory_per_gpu"), "most"))
        # 18 bytes a parameter: its own 2, 2 of the gradient, 2 in buckets, 12 of state.
        assert largest["03_bucketed_ddp"][64] == pytest.approx(80 / 18, abs=0.01)
        assert largest["06_sharded_optimizer"][64] > 2 * largest["03_bucketed_ddp"][64]

    def test_kinds_add_up_to_the_most(self) -> None:
        result = result_of("memory_per_gpu.kinds")
        for stage, by_gpus in memory_by_kind.bars(result).items():
            for gpus, (moment, kinds) in by_gpus.items():
                most = result.values("bytes", quantity="most", stage=stage, parameters=7_500_000_000, world_size=gpus)
                assert 1e9 * sum(kinds.values()) == pytest.approx(most[0], abs=1)
                assert list(kinds) == list(memory_by_kind.KINDS)
                assert moment in ("forward", "backward", "finish", "update")
