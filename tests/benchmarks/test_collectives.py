"""Tests of the benchmark collectives, run on the solution: what it measures, what it refuses, and that its figures and
its table can be made from it.
"""

from __future__ import annotations

from tests.benchmarks.program_test import ProgramTest  # first: it finds the tools and the scripts
from tests.harness.test_launch import free_port

VARIANTS = ("ring", "pipelined ring", "butterfly", "all_reduce")
WORLDS = (2, 4, 6)


class Collectives(ProgramTest):
    program = "collectives"
    stage = "05_ring_all_reduce"
    tiny = ("--repetitions", 2, "--warmup", 0, "--sizes", 1024, 65536)

    def test_measures_each_size_with_each_all_reduce_in_all_worlds(self) -> None:
        document = self.run_well(*self.tiny)
        found = [tuple(one["labels"].items()) for one in document["series"]]
        expected = [
            (("world_size", world), ("bytes", size), ("variant", variant))
            for world in WORLDS
            for size in (1024, 65536)
            for variant in VARIANTS
        ]
        self.assertEqual(found, expected)
        for one in document["series"]:
            self.assertEqual((one["unit"], len(one["values"])), ("s", 2))
            self.assertGreater(min(one["values"]), 0)
        self.assertEqual(document["provenance"]["world_size"], 6)
        self.assertEqual((document["parameters"]["worlds"], document["parameters"]["redop"]), ("2, 4, 6", "sum"))
        self.assertEqual(self.output.count(" pipelined ring "), 6)
        self.assert_drawn("plots.collectives", "plots.all_reduce_bandwidth", "tables.collectives")

    def test_shared_memory_is_measured_beside_gloo(self) -> None:
        document = self.run_well(*self.tiny, "--backend", "shm")
        self.assertEqual({one["labels"]["variant"] for one in document["series"]}, {*VARIANTS, "gloo all_reduce"})
        self.assertEqual({one["labels"]["world_size"] for one in document["series"]}, set(WORLDS))
        self.assertEqual(document["provenance"]["backend"], "shm")
        self.assert_drawn("plots.collectives", "plots.all_reduce_bandwidth", "tables.collectives")

    def test_large_tensors_and_worlds_are_measured_less_often(self) -> None:
        document = self.run_well("--world-size", 4, "--sizes", 1024, 4 << 20)
        counts = [len(one["values"]) for one in document["series"]]
        self.assertEqual(counts, [20] * 4 + [4] * 4)
        self.assertEqual({one["labels"]["world_size"] for one in document["series"]}, {4})

    def test_sizes_need_not_be_divisible(self) -> None:
        document = self.run_well("--world-size", 3, "--repetitions", 1, "--sizes", 4, 28, 4 * 1001)
        self.assertEqual({one["labels"]["bytes"] for one in document["series"]}, {4, 28, 4004})

    def test_launched_ranks_measure_their_own_world(self) -> None:
        launched = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        document = self.run_well(*self.tiny, **launched)
        self.assertEqual({one["labels"]["world_size"] for one in document["series"]}, {1})

    def test_goes_on_where_it_was_stopped(self) -> None:
        """In the second world."""
        self.resume(4, "--repetitions", 10, "--sizes", 1024, 2048, 4096)

    def test_does_not_go_on_with_something_else(self) -> None:
        flags = ("--world-size", 2, "--repetitions", 200, "--sizes", 1024, 2048, 4096)
        other = ("--world-size", 2, "--repetitions", 200, "--sizes", 1024, 4096)
        message = 'was measured with sizes "1024, 2048, 4096", and this run has "1024, 4096"'
        self.assert_not_resumed_otherwise(flags, other, message)

    def test_presets(self) -> None:
        self.assert_presets_are_described("--resume", "1 KiB to 16 MiB", "6 GPUs of any model")
        self.assert_paper_needs("6 GPUs")

    def test_refusals(self) -> None:
        self.assert_unfinished(*self.tiny)
        self.assert_refused("--trace draws one world of ranks: choose it with --world-size", "--trace", "trace.json")
        self.assertEqual(self.start("--sizes", 3).returncode, 105)
        self.assert_output_is_checked("--world-size", 2, *self.tiny)
