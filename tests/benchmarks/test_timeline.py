"""Tests of the benchmark timeline, run on the solutions: its traces are valid and, in virtual time, exact."""

from __future__ import annotations

import json
import os
import subprocess
import unittest
from collections import Counter

from figures.lib.trace_files import Operation, RankTimeline, load_trace
from tests.benchmarks.program_test import BUILD, SECONDS, ProgramTest
from tests.harness.test_launch import free_port

VARIANTS = ["naive", "flat", "overlapped", "bucketed", "Reducer"]
SHARDED = ["bucketed", "sharded", "no prefetch", "fully sharded"]
GRADED = BUILD / "bin" / "tests_01_naive_ddp"
SOLUTION = BUILD / "stages" / "solutions" / "01_naive_ddp" / "libstage.so"


class TimelineTest(ProgramTest):
    program = "timeline"
    stages = ("01_naive_ddp", "02_overlapped_ddp", "03_bucketed_ddp")

    def setUp(self) -> None:
        super().setUp()
        self.trace = self.folder / "result.trace.json"

    def drawn(self, *flags: object) -> dict[str, list[RankTimeline]]:
        self.document = self.run_well("--steps", 1, *flags)
        return load_trace(self.trace)

    def assert_row_is_legal(self, spans: list[tuple[float, float]]) -> None:
        """Any two spans of a row are nested or disjoint: viewers do not draw others."""
        open_until: list[float] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            self.assertTrue(not open_until or end <= open_until[-1], (begin, end, open_until))
            open_until.append(end)

    def assert_valid(self, ranks: int) -> None:
        document = json.loads(self.trace.read_text())
        named, rows = set(), {}
        for event in document["traceEvents"]:
            self.assertLessEqual({"ph", "pid", "tid", "name"}, event.keys())
            if event["ph"] == "M":
                named.add((event["name"], event["pid"], event["tid"]))
            elif event["ph"] == "X":
                nanoseconds = [round(1e3 * event[key]) for key in ("ts", "dur")]
                self.assertGreaterEqual(min(nanoseconds), 0)
                row = rows.setdefault((event["pid"], event["tid"]), [])
                row.append((nanoseconds[0], sum(nanoseconds)))
        self.assertEqual(len([name for name in named if name[0] == "process_name"]), ranks * len(VARIANTS))
        for (process, thread), spans in rows.items():
            self.assertIn(("thread_name", process, thread), named)
            self.assert_row_is_legal(spans)

    def test_virtual_trace_is_valid_and_always_the_same(self) -> None:
        trace = self.drawn("--world-size", 3)
        self.assertEqual(list(trace), VARIANTS)
        self.assert_valid(ranks=3)
        text = self.trace.read_text()
        self.drawn("--world-size", 3, "--trace", self.trace)
        self.assertEqual(self.trace.read_text(), text)

    def test_virtual_times_follow_from_the_flags(self) -> None:
        alpha, beta, launch, forward, backward = 20_000, 0.5, 1_000, 100, 200
        trace = self.drawn(
            f"--alpha-ns={alpha}", f"--beta-ns-per-byte={beta}", f"--launch-overhead-ns={launch}", "--slower=0.5",
            "--forward-us", *["100"] * 5, "--backward-us", *["200"] * 5,
        )  # fmt: skip
        compute = 1.5 * 5 * (forward + backward) * 1e-3  # of rank 1, in milliseconds

        def cost(operation: Operation) -> float:  # of an all-reduce between 2 ranks
            return (2 * alpha + operation.bytes * beta) * 1e-6

        for variant, ranks in trace.items():
            operations = [timeline.communication for timeline in ranks]
            self.assertEqual(
                [(o.name, o.begin, o.end) for o in operations[0]],
                [(o.name, o.begin, o.end) for o in operations[1]],
                variant,
            )
            free = 0.0
            for both in zip(*operations):
                begin = max(free, *(operation.launched for operation in both))
                free = begin + cost(both[0])
                self.assertAlmostEqual(both[0].begin, begin, places=5, msg=variant)
                self.assertAlmostEqual(both[0].end, free, places=5, msg=variant)
            for timeline in ranks:
                end = max(timeline.compute[-1].end, free)
                self.assertAlmostEqual(timeline.moments["step end"], end, places=5, msg=variant)
        naive = trace["naive"][0].communication
        self.assertEqual(len(naive), 10)
        expected = compute + sum(cost(operation) + launch * 1e-6 for operation in naive)
        self.assertAlmostEqual(trace["naive"][0].moments["step end"], expected, places=5)

    def test_real_trace_is_valid(self) -> None:
        trace = self.drawn("--clock", "real")
        self.assert_valid(ranks=2)
        for variant, ranks in trace.items():
            for timeline in ranks:
                names = {span.name for span in timeline.compute}
                for part in ("forward", "backward", "finish", "launch", "forward conv1", "backward conv1"):
                    self.assertIn(part, names, variant)
                for operation in timeline.communication:
                    self.assertEqual(operation.begin, operation.launched)
                    self.assertLess(operation.begin, timeline.moments["step end"], variant)
                count = len(timeline.communication)
                self.assertEqual(count, {"naive": 10, "flat": 1, "overlapped": 10}.get(variant, 3), variant)

    def test_virtual_clock_needs_forked_ranks(self) -> None:
        launched = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        self.assert_refused("the simulated network is this program's own, with ranks that it forks", **launched)
        self.assertFalse(self.trace.exists())

    def test_cluster_draws_a_model_that_no_machine_here_can_hold(self) -> None:
        trace = self.drawn("--clock", "cluster")
        self.assertEqual(self.document["parameters"]["parameters"], 1_998_235_200)
        self.assertEqual(list(trace), VARIANTS)
        self.assert_valid(ranks=2)
        counts = {variant: len(ranks[0].communication) for variant, ranks in trace.items()}
        self.assertEqual(counts, {"naive": 435, "flat": 1, "overlapped": 435, "bucketed": 65, "Reducer": 66})
        for variant, ranks in trace.items():
            first, second = ranks  # which do the same
            self.assertEqual(first, second, variant)
            self.assertEqual(sum(operation.bytes for operation in first.communication), 4 * 1_998_235_200, variant)
            names = [span.name for span in first.compute]
            layers = {name.removeprefix("forward ") for name in names if name.startswith("forward ")}
            self.assertGreaterEqual(len(layers), 435)
            self.assertLessEqual({f"backward {layer}" for layer in layers}, set(names), variant)
            free = 0.0
            for operation in first.communication:
                self.assertAlmostEqual(operation.begin, max(free, operation.launched), places=5, msg=variant)
                free = operation.end
        text = self.trace.read_text()
        self.drawn("--clock", "cluster")
        self.assertEqual(self.trace.read_text(), text)

    def test_sharded_stages_are_drawn_by_both_simulated_clocks(self) -> None:
        ranks, units = 2, {"virtual": 5, "cluster": 50}
        for clock, count in units.items():
            trace = self.drawn("--clock", clock, "--variants", *SHARDED)
            self.assertEqual(list(trace), SHARDED)
            sent = {}  # of whole tensors, by how an operation's name begins; the whole model is 1
            for variant, timelines in trace.items():
                operations = timelines[0].communication
                sizes = Counter()
                for operation in operations:
                    kind = operation.name.split(" ")[0]
                    sizes[kind] += operation.bytes * (ranks if kind == "all-gather" else 1)
                whole = 4 * self.document["parameters"]["parameters"]
                sent[variant] = {kind: round(size / whole, 3) for kind, size in sizes.items()}
                if variant not in ("bucketed", "sharded"):
                    self.assertEqual(len(operations), 3 * count, (clock, variant))
            halves = {"reduce-scatter": 1, "all-gather": 1}
            self.assertEqual(sent["bucketed"], {"all-reduce": 1}, clock)
            self.assertEqual(sent["sharded"], halves, clock)  # of an all-reduce
            for variant in SHARDED[2:]:
                self.assertEqual(sent[variant], {**halves, "all-gather": 2}, clock)
            ends = {variant: ranks[0].moments["step end"] for variant, ranks in trace.items()}
            self.assertLess(ends["fully sharded"], ends["no prefetch"], clock)

    def test_unwritable_trace(self) -> None:
        (self.folder / "file").touch()
        ended = self.start("--steps", 1, "--trace", "file/trace.json")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("cannot write file/trace.json: Not a directory; choose another place with --trace", ended.stderr)


@unittest.skipUnless(GRADED.exists() and SOLUTION.exists(), f"skipped: {GRADED} or its solution is not built")
class GradedTestsTrace(unittest.TestCase):
    def test_every_body_of_a_graded_test_is_a_group(self) -> None:
        file = self.folder / "trace.json"
        test = "step_time_is_compute_plus_communication"
        command = [GRADED, "--stage-library", SOLUTION, "--test", test]
        env = {**os.environ, "DDP_LAB_TRACE": str(file)}
        ended = subprocess.run(command, env=env, text=True, capture_output=True, timeout=SECONDS, check=False)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        trace = load_trace(file)
        self.assertEqual(len(trace["flat: float64, five ranks"]), 5)
        body = trace["three layers, three steps"]
        self.assertEqual(len(body), 2)
        for timeline in body:
            self.assertIn("backward layer 2", {span.name for span in timeline.compute})
            names = [operation.name for operation in timeline.communication]
            self.assertEqual(sum("all-reduce" in name and "the gradient of layer 2" in name for name in names), 3)

    def test_place_that_cannot_be_written_changes_no_verdict(self) -> None:
        command = [GRADED, "--stage-library", SOLUTION, "--test", "step_time_is_compute_plus_communication"]
        ended = subprocess.run(
            command, env={"DDP_LAB_TRACE": "/dev/null/trace.json"}, text=True, capture_output=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip
        self.assertEqual(ended.returncode, 0, ended.stdout)
        self.assertIn("cannot write /dev/null/trace.json", ended.stderr)
