"""Tests of the benchmark timeline, run on the solutions: its traces are valid and, in virtual time, exact."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter

import pytest

from figures.lib.trace_files import Operation, RankTimeline, load_trace
from tests.benchmarks.program_test import AVERAGING, BUILD, SECONDS, ProgramTest, launched

VARIANTS = ["naive", "flat", "overlapped", "bucketed", "Reducer"]
SHARDED = ["bucketed", "sharded", "no prefetch", "fully sharded"]


class TestTimeline(ProgramTest):
    program, stages = "timeline", AVERAGING

    @pytest.fixture(autouse=True)
    def place(self, set_up: None) -> None:
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
            assert not open_until or end <= open_until[-1], (begin, end, open_until)
            open_until.append(end)

    def assert_valid(self, ranks: int) -> None:
        document = json.loads(self.trace.read_text())
        named, rows = set(), {}
        for event in document["traceEvents"]:
            assert {"ph", "pid", "tid", "name"} <= event.keys()
            if event["ph"] == "M":
                named.add((event["name"], event["pid"], event["tid"]))
            elif event["ph"] == "X":
                nanoseconds = [round(1e3 * event[key]) for key in ("ts", "dur")]
                assert min(nanoseconds) >= 0
                row = rows.setdefault((event["pid"], event["tid"]), [])
                row.append((nanoseconds[0], sum(nanoseconds)))
        assert len([name for name in named if name[0] == "process_name"]) == ranks * len(VARIANTS)
        for (process, thread), spans in rows.items():
            assert ("thread_name", process, thread) in named
            self.assert_row_is_legal(spans)

    def test_virtual_trace_is_valid_and_always_the_same(self) -> None:
        trace = self.drawn("--world-size", 3)
        assert list(trace) == VARIANTS
        self.assert_valid(ranks=3)
        text = self.trace.read_text()
        self.drawn("--world-size", 3, "--trace", self.trace)
        assert self.trace.read_text() == text

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
            first, second = ([(o.name, o.begin, o.end) for o in own] for own in operations)
            assert first == second, variant
            free = 0.0
            for both in zip(*operations):
                begin = max(free, *(operation.launched for operation in both))
                free = begin + cost(both[0])
                assert both[0].begin == pytest.approx(begin, abs=5e-6), variant
                assert both[0].end == pytest.approx(free, abs=5e-6), variant
            for timeline in ranks:
                end = max(timeline.compute[-1].end, free)
                assert timeline.moments["step end"] == pytest.approx(end, abs=5e-6), variant
        naive = trace["naive"][0].communication
        assert len(naive) == 10
        expected = compute + sum(cost(operation) + launch * 1e-6 for operation in naive)
        assert trace["naive"][0].moments["step end"] == pytest.approx(expected, abs=5e-6)

    def test_real_trace_is_valid(self) -> None:
        trace = self.drawn("--clock", "real")
        self.assert_valid(ranks=2)
        for variant, ranks in trace.items():
            for timeline in ranks:
                names = {span.name for span in timeline.compute}
                for part in ("forward", "backward", "finish", "launch", "forward conv1", "backward conv1"):
                    assert part in names, variant
                for operation in timeline.communication:
                    assert operation.begin == operation.launched
                    assert operation.begin < timeline.moments["step end"], variant
                count = len(timeline.communication)
                assert count == {"naive": 10, "flat": 1, "overlapped": 10}.get(variant, 3), variant

    def test_virtual_clock_needs_forked_ranks(self) -> None:
        self.assert_refused("the simulated network is this program's own, with ranks that it forks", **launched())
        assert not self.trace.exists()

    def test_cluster_draws_a_model_that_no_machine_here_can_hold(self) -> None:
        trace = self.drawn("--clock", "cluster")
        assert self.document["parameters"]["parameters"] == 1_998_235_200
        assert list(trace) == VARIANTS
        self.assert_valid(ranks=2)
        counts = {variant: len(ranks[0].communication) for variant, ranks in trace.items()}
        assert counts == {"naive": 435, "flat": 1, "overlapped": 435, "bucketed": 65, "Reducer": 66}
        for variant, ranks in trace.items():
            first, second = ranks  # which do the same
            assert first == second, variant
            assert sum(operation.bytes for operation in first.communication) == 4 * 1_998_235_200, variant
            names = [span.name for span in first.compute]
            layers = {name.removeprefix("forward ") for name in names if name.startswith("forward ")}
            assert len(layers) >= 435
            assert {f"backward {layer}" for layer in layers} <= set(names), variant
            free = 0.0
            for operation in first.communication:
                assert operation.begin == pytest.approx(max(free, operation.launched), abs=5e-6), variant
                free = operation.end
        text = self.trace.read_text()
        self.drawn("--clock", "cluster")
        assert self.trace.read_text() == text

    def test_sharded_stages_are_drawn_by_both_simulated_clocks(self) -> None:
        ranks, units = 2, {"virtual": 5, "cluster": 50}
        for clock, count in units.items():
            trace = self.drawn("--clock", clock, "--variants", *SHARDED)
            assert list(trace) == SHARDED
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
                    assert len(operations) == 3 * count, (clock, variant)
            halves = {"reduce-scatter": 1, "all-gather": 1}
            assert sent["bucketed"] == {"all-reduce": 1}, clock
            assert sent["sharded"] == halves, clock  # of an all-reduce
            for variant in SHARDED[2:]:
                assert sent[variant] == {**halves, "all-gather": 2}, clock
            ends = {variant: ranks[0].moments["step end"] for variant, ranks in trace.items()}
            assert ends["fully sharded"] < ends["no prefetch"], clock

    def test_is_measured_and_drawn(self) -> None:
        self.run_well()
        self.assert_drawn()

    def test_unwritable_trace(self) -> None:
        (self.folder / "file").touch()
        message = "cannot write file/trace.json: Not a directory; choose another place with --trace"
        ended = self.start("--steps", 1, "--trace", "file/trace.json")
        assert (ended.returncode, message in ended.stderr) == (1, True), ended.stderr


class TestTraceOfGradedTests(ProgramTest):
    program, stage = "tests_01_naive_ddp", "01_naive_ddp"

    def graded(self, trace: object) -> subprocess.CompletedProcess[str]:
        library = BUILD / "stages" / "solutions" / self.stage / "libstage.so"
        command = [BUILD / "bin" / self.program, "--stage-library", library, "--test",
                   "step_time_is_compute_plus_communication"]  # fmt: skip
        env = {**os.environ, "DDP_LAB_TRACE": str(trace)}
        return subprocess.run(command, env=env, text=True, capture_output=True, timeout=SECONDS, check=True)

    def test_every_body_of_a_graded_test_is_a_group(self) -> None:
        file = self.folder / "trace.json"
        self.graded(file)
        trace = load_trace(file)
        assert len(trace["flat: float64, five ranks"]) == 5
        body = trace["three layers, three steps"]
        assert len(body) == 2
        for timeline in body:
            assert "backward layer 2" in {span.name for span in timeline.compute}
            names = [operation.name for operation in timeline.communication]
            assert sum("all-reduce" in name and "the gradient of layer 2" in name for name in names) == 3

    def test_place_that_cannot_be_written_changes_no_verdict(self) -> None:
        assert "cannot write /dev/null/trace.json" in self.graded("/dev/null/trace.json").stderr
