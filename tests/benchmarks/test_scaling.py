"""Tests of the benchmark scaling, run on the solutions: weak scaling in virtual time, always the same."""

from __future__ import annotations

import os
import subprocess

from tests.benchmarks.program_test import ProgramTest  # first: it finds the tools and the scripts

VARIANTS = ["naive", "flat", "overlapped", "bucketed", "Reducer"]
PAIR = ("--gpus", "1", "2", "--model", "small")


class Scaling(ProgramTest):
    program = "scaling"
    stage = "03_bucketed_ddp"

    def seconds(self, document: dict, **labels: object) -> float:
        (series,) = self.series(document, **labels)
        return series["values"][0]

    def test_is_the_same_in_every_run(self) -> None:
        first, second = (self.run_well(*PAIR) for _ in range(2))
        self.assertEqual(first["series"], second["series"])
        self.assertEqual(first["parameters"], second["parameters"])
        self.assertEqual(
            {one["labels"]["variant"] for one in self.series(first, quantity="step")}, {"compute only", *VARIANTS}
        )
        self.assert_drawn()

    def test_xl_on_4096_gpus(self) -> None:
        document = self.run_well("--gpus", "16", "4096")
        self.assertEqual(document["parameters"]["parameters"], 1_998_235_200)
        self.assertEqual(document["provenance"]["world_size"], 4096)
        steps = {name: self.seconds(document, quantity="step", variant=name, world_size=4096) for name in VARIANTS}
        # NCCL's all-reduces of one tensor cost so little that copying to buckets of 25 MB costs as much.
        self.assertLess(steps["bucketed"], 1.02 * steps["overlapped"])
        self.assertLess(steps["overlapped"], steps["flat"])
        self.assertLess(steps["flat"], steps["naive"])
        for name in VARIANTS:
            self.assertLess(self.seconds(document, quantity="step", variant=name, world_size=16), steps[name])

    def test_xl_takes_little_memory(self) -> None:
        """Two billion parameters have shapes alone."""
        with subprocess.Popen(self.command("--gpus", "4096"), cwd=self.folder, stdout=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        self.assertLess(usage.ru_maxrss, 1 << 20, "KiB")

    def test_best_cap_is_near_the_formula_where_communication_is_not_hidden(self) -> None:
        document = self.run_well("--gpus", "4096")
        caps = {one["labels"]["cap_bytes"]: one["values"][0] for one in self.series(document, quantity="step by cap")}
        (formula,) = self.series(document, quantity="best cap by formula")
        best = min(caps, key=caps.__getitem__)
        self.assertTrue(formula["values"][0] / 2 < best < 2 * formula["values"][0], (best, formula))
        self.assertLess(caps[best], caps[min(caps)])
        self.assertLess(caps[best], caps[max(caps)])

    def test_a_faster_link_hides_more(self) -> None:
        flags = ("--gpus", "64", "--model", "large")
        slow, fast = (self.run_well(*flags, "--link-between", link) for link in ("ethernet10", "infiniband4x100"))
        for name in VARIANTS:
            labels = {"quantity": "step", "variant": name, "world_size": 64}
            self.assertGreater(self.seconds(slow, **labels), 2 * self.seconds(fast, **labels))

    def test_mistakes_in_flags(self) -> None:
        for flags, message in (
            (("--gpus", "0"), "--gpus: Value 0 not in range"),
            (("--cap-bytes", "0"), "--cap-bytes: Value 0 not in range"),
            (("--gpu", "abacus"), "--gpu: abacus not in {V100,A100,H100,A4000,T4,"),
            (("--link", "string"), "--link: string not in {"),
            (("--efficiency", "-1"), "--efficiency"),
            (("--gpus-per-node", "0"), "--gpus-per-node: Value 0 not in range"),
        ):
            self.assert_refused(message, *flags, code=105)

    def test_stubs_are_named_and_left_out(self) -> None:
        ended = self.start(*PAIR, impl="assignments")
        self.assertEqual(ended.returncode, 3, ended.stderr)
        for name in VARIANTS[:-1]:
            self.assertIn(f"{name} is left out: TODO(student)", ended.stderr)
        self.assertFalse(self.result.exists())

    def test_presets_are_described(self) -> None:
        self.assert_presets_are_described("1 to 4,096 GPUs in powers of two", "nothing was published")

    def test_output_is_checked(self) -> None:
        self.assert_output_is_checked(*PAIR)
