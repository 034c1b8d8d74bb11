"""Tests of the benchmark sharded_scaling, run on the solutions: steps and bytes in virtual time, always the same."""

from __future__ import annotations

from tests.benchmarks.program_test import ProgramTest  # first: it finds the tools and the scripts

AVERAGING = ("naive", "flat", "overlapped", "bucketed")
SHARDED = ("sharded", "fully sharded")
CARD = 80e9
FEW = ("--gpus", "1", "8", "64", "4096")


class ShardedScaling(ProgramTest):
    program = "sharded_scaling"
    stage = "07_fully_sharded"

    def values(self, document: dict, quantity: str, *labels: str) -> dict[tuple, float]:
        return {
            tuple(series["labels"][label] for label in labels): series["values"][0]
            for series in self.series(document, quantity=quantity)
        }

    def test_steps_and_bytes_from_naive_to_fully_sharded(self) -> None:
        document = self.run_well(*FEW)
        self.assertEqual(document, {**self.run_well(*FEW), "provenance": document["provenance"]})
        steps = self.values(document, "step", "model", "variant", "world_size")
        most = self.values(document, "most", "model", "variant", "world_size")
        self.assertEqual(len(steps), 2 * 7 * 4)
        for (model, variant, gpus), step in steps.items():
            self.assertGreaterEqual(step, steps[model, "compute only", 1], (model, variant, gpus))
        for model in ("xl", "7.5b"):
            for variant in AVERAGING:  # whole replicas: parameters and state, whatever N is
                self.assertGreater(steps[model, variant, 4096], steps[model, variant, 8])
                self.assertEqual(most[model, variant, 4096], most[model, variant, 8])
            self.assertGreater(steps[model, "naive", 64], steps[model, "bucketed", 64])
            held = [most[model, variant, 64] for variant in ("bucketed", *SHARDED)]
            self.assertEqual(held, sorted(held, reverse=True), model)
            for variant in SHARDED:  # an N-th of the update
                self.assertLess(steps[model, variant, 8], steps[model, variant, 1])
        for gpus, fitting in ((1, set()), (64, set(SHARDED))):
            found = {name for name in (*AVERAGING, *SHARDED) if most["7.5b", name, gpus] < CARD}
            self.assertEqual(found, fitting, gpus)
        self.assert_drawn(files=4)

    def test_prefetch_hides_what_the_shorter_of_both_takes(self) -> None:
        document = self.run_well("--gpus", "1")
        steps = self.values(document, "step by link", "model", "link_gb_per_s", "prefetch")
        computing = self.values(document, "computing by link", "model", "link_gb_per_s")
        communication = self.values(document, "communication by link", "model", "link_gb_per_s")
        for model, link in computing:
            longer, both = (choose((computing[model, link], communication[model, link])) for choose in (max, sum))
            none, one, two = (steps[model, link, prefetch] for prefetch in range(3))
            self.assertGreater(none, 1.02 * one, (model, link))
            self.assertLessEqual(two, 1.001 * one, (model, link))
            self.assertLessEqual(longer, two, (model, link))
            self.assertLess(one, longer + 0.7 * (both - longer), (model, link))
        slowest, fastest = min(link for _, link in computing), max(link for _, link in computing)
        self.assertLess(steps["xl", slowest, 1], 1.1 * communication["xl", slowest])
        self.assertGreater(computing["xl", fastest], communication["xl", fastest])

    def test_stubs_are_named_and_left_out(self) -> None:
        ended = self.start(*FEW, impl="assignments")
        self.assertEqual(ended.returncode, 3, ended.stderr)
        for name in (*AVERAGING, *SHARDED):
            self.assertIn(f"{name} is left out: TODO(student)", ended.stderr)
