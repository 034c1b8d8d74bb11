"""Tests of stage 05's benchmarks ring_all_reduce and all_reduce_algorithms, run on the solution: what they measure,
what they refuse, and that their figures and tables can be made from it.
"""

from __future__ import annotations

from figures.lib.all_reduces import ALGORITHMS, formula_seconds
from figures.lib.reference_data import load_reference
from tests.benchmarks.program_test import SHARED_MEMORY, ProgramTest, slow  # first: it finds the tools and the scripts
from tests.harness.test_launch import free_port

STAGE = "05_ring_all_reduce"
VALIDATION = 105  # CLI11's exit code for flags that do not go together


CELLS = {("butterfly", world, world) for world in (1, 2, 4, 8, 16, 32)} | {
    ("all_reduce", *pair) for pair in ((1, 1024), (2, 2048), (4, 4096), (8, 16384), (16, 131072))
}


class FirstCalls(ProgramTest):
    """The published procedure."""

    program = "ring_all_reduce"
    stage = STAGE

    def test_measures_all_worlds_in_one_run(self) -> None:
        document = self.run_well("--repetitions", "1")
        cells = {
            tuple(one["labels"][name] for name in ("peer", "world_size", "tensor_size")) for one in document["series"]
        }
        self.assertEqual(cells, CELLS)
        self.assertEqual(len(document["series"]), len(cells) * 2 * 3)
        self.assertEqual(document["parameters"]["procedure"], "published")
        self.assertEqual(document["provenance"]["backend"], "gloo")
        self.assert_drawn()
        self.assert_drawn("tables.ring_all_reduce", files=8)
        published = load_reference("ring_all_reduce.torch")
        for world, diff in zip(published.numbers("world_size"), published.numbers("diff_torch")):
            (own,) = self.series(
                document, peer="all_reduce", variant="all_reduce", world_size=int(world), quantity="diff"
            )  # fmt: skip
            # Equal inputs, summed up in the same order, against the same mean: equal errors, digit for digit.
            self.assertAlmostEqual(own["values"][0], diff, delta=1e-3 * diff)

    def test_every_repeat_begins_anew(self) -> None:
        """New ranks draw the same input again, so they make the same error; ranks that stay draw another."""
        document = self.run_well("--world-size", "4", "--repetitions", "3")
        (diff,) = self.series(document, peer="all_reduce", variant="ring", quantity="diff")
        self.assertEqual(len(diff["values"]), 3)
        self.assertEqual(len(set(diff["values"])), 1)
        (warm,) = self.series(
            self.run_well("--world-size", "4", "--repetitions", "3", "--warmup", "0", "--procedure", "warm"),
            peer="all_reduce", variant="ring", quantity="diff",
        )  # fmt: skip
        self.assertEqual(len(set(warm["values"])), 3)

    @slow
    def test_goes_on_where_it_was_stopped(self) -> None:
        resumed, whole = self.resume(1, "--repetitions", 20, "--world-size", 1)
        for documents in zip(*(self.series(d, quantity="diff") for d in (resumed, whole))):
            self.assertEqual(*(one["values"] for one in documents))

    def test_refusals(self) -> None:
        self.assert_unfinished("--repetitions", "1")
        instead = "; give --procedure warm"
        for flags, problem in (
            (("--device", "cuda"), "the published procedure is on the CPU, not --device cuda"),
            (("--warmup", "1"), "measures first calls, without --warmup"),
            (("--trace", "trace.json"), "forks new ones for each call"),
        ):
            self.assert_refused(problem + instead, *flags, code=VALIDATION)
        launched = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        self.assert_refused("which torchrun, mpirun and srun do not" + instead, **launched)

    def test_presets(self) -> None:
        self.assert_presets_are_described("--resume", "10,000 calls", "so no GPU is needed")


class WarmCalls(ProgramTest):
    program = "ring_all_reduce"
    stage = STAGE
    flags = SHARED_MEMORY
    tiny = ("--procedure", "warm", "--repetitions", "1", "--warmup", "0")

    def test_measures_all_worlds_in_one_run(self) -> None:
        document = self.run_well(*self.tiny)
        cells = {
            tuple(one["labels"][name] for name in ("peer", "world_size", "tensor_size")) for one in document["series"]
        }
        self.assertEqual(cells, CELLS)
        self.assertEqual(len(document["series"]), len(cells) * 2 * 4)
        self.assertEqual(document["provenance"]["world_size"], 32)
        for unit, least, most in (("s", 0, 60), ("KiB", 1 << 10, 1 << 25), ("bytes", 0, 1 << 20), ("1", 0, 1e-8)):
            for one in self.series(document):
                if one["unit"] == unit:
                    self.assertTrue(least <= one["values"][0] <= most, one)
        self.assert_drawn()
        self.assert_drawn("tables.ring_all_reduce", files=4)

    def test_quantities_are_what_they_say(self) -> None:
        document = self.run_well("--world-size", "4", "--procedure", "warm", "--repetitions", "3", "--warmup", "0")

        def values(**labels: object) -> list[float]:
            (one,) = self.series(document, **labels)
            self.assertEqual(len(one["values"]), 3)
            return one["values"]

        chunk = 4096 // 4 * 4
        ring = values(peer="all_reduce", variant="ring", quantity="allocated")
        self.assertTrue(all(chunk <= value <= 1.1 * chunk for value in ring), ring)
        butterfly = values(peer="butterfly", variant="butterfly", quantity="allocated")
        self.assertTrue(all(4 * 4 <= value <= 100 for value in butterfly), butterfly)
        # float32 averages are off by about 1e-8, and there are 4096 of them.
        for variant in ("ring", "all_reduce"):
            errors = values(peer="all_reduce", variant=variant, quantity="diff")
            self.assertTrue(all(1e-14 < value < 1e-10 for value in errors), errors)
        self.assertEqual(document["provenance"]["world_size"], 4)

    def test_other_worlds_have_no_published_pair(self) -> None:
        document = self.run_well("--world-size", "3", *self.tiny)
        self.assertEqual({one["labels"]["peer"] for one in document["series"]}, {"butterfly"})

    def test_launched_ranks_measure_their_own_world(self) -> None:
        document = self.run_well(
            *self.tiny, RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port()
        )  # fmt: skip
        self.assertEqual({one["labels"]["world_size"] for one in document["series"]}, {1})

    def test_goes_on_where_it_was_stopped(self) -> None:
        flags = ("--procedure", "warm", "--repetitions", 200, "--warmup", 0, "--world-size", 2)
        resumed, whole = self.resume(1, *flags)
        for quantity in ("diff", "allocated"):  # which depend on the seed, and not on time
            for one, other in zip(*(self.series(d, quantity=quantity, variant="ring") for d in (resumed, whole))):
                self.assertEqual(one["values"], other["values"], one["labels"])

    def test_does_not_go_on_with_something_else(self) -> None:
        warm = ("--procedure", "warm", "--warmup", 0)
        flags = (*warm, "--world-size", 2, "--repetitions")
        self.assert_not_resumed_otherwise((*flags, 200), (*flags, 3), "was measured with repetitions 200")
        # The measurements of other worlds are not part of this run.
        self.assert_not_resumed_otherwise(
            (*flags, 200), (*warm, "--repetitions", 200), "was measured with world_size 2, and this run has 32"
        )

    def test_refusals(self) -> None:
        self.assert_unfinished(*self.tiny)
        self.assert_refused(
            "--trace draws one world of ranks: choose it with --world-size", *self.tiny, "--trace", "trace.json"
        )
        self.assert_output_is_checked("--world-size", "1", *self.tiny)


class AllReduceAlgorithms(ProgramTest):
    program = "all_reduce_algorithms"
    stage = STAGE

    def test_virtual_times_are_those_of_the_formulas(self) -> None:
        network = {"alpha_ns": 7_000, "beta_ns_per_byte": 0.5}
        flags = ("--alpha-ns", 7_000, "--beta-ns-per-byte", 0.5, "--sizes", 120, 12_000)  # 2 to 6 ranks divide these
        for world in (2, 3, 5, 6):
            document = self.run_well("--world-size", world, *flags)
            self.assertEqual(len(document["series"]), 2 * len(ALGORITHMS))
            for size in (120, 12_000):
                for algorithm in ALGORITHMS:
                    (one,) = self.series(document, algorithm=algorithm, bytes=size, world_size=world)
                    expected = formula_seconds(algorithm, world, size, network)
                    self.assertAlmostEqual(one["values"][0], expected, delta=1e-12, msg=f"{algorithm}, {world} ranks")

    def test_measures_all_worlds_in_one_run(self) -> None:
        document = self.run_well("--sizes", 1 << 12, 1 << 18)
        worlds = {2, 3, 4, 5, 6, 7, 8, 12, 16}
        on_cluster = {32, 64, 128, 256, 512, 1024, 2048, 4096}
        self.assertEqual({one["labels"]["world_size"] for one in document["series"]}, worlds | on_cluster)
        small = {one["labels"]["world_size"] for one in self.series(document, bytes=1 << 12)}
        self.assertEqual(small, worlds | on_cluster - {2048, 4096}, "ranks that divide the elements")
        for one in document["series"]:
            labels, network = one["labels"], {"alpha_ns": 10_000, "beta_ns_per_byte": 1}
            expected = formula_seconds(labels["algorithm"], labels["world_size"], labels["bytes"], network)
            divides = labels["bytes"] // 4 % labels["world_size"] == 0
            self.assertAlmostEqual(one["values"][0], expected, delta=1e-12 if divides else 1e-3 * expected, msg=labels)
        self.assert_drawn()

    def test_presets(self) -> None:
        self.assert_presets_are_described("virtual time")

    def test_refusals(self) -> None:
        self.assert_unfinished()
        tiny = ("--world-size", "2", "--sizes", "64")
        self.assert_refused("the simulated network moves CPU tensors only", *tiny, "--device", "cuda")
        self.assert_refused("this program draws no trace", *tiny, "--trace", "trace.json")
        launched = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        self.assert_refused("the simulated network is this program's own, with ranks that it forks", **launched)
        self.assert_output_is_checked(*tiny)
