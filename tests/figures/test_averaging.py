"""The figures and tables of stages 01 to 03 on small data: timelines, step times, buckets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from figures.lib import trace_files
from figures.plots import bucket_overhead, step_time, timeline
from figures.tables import bucketed_ddp
from tests.figures.figure_test import TEST_DATA, Document, ScriptTest, keep, texts_of, unchanged, words_of


def test_speedups_are_medians_over_rounds() -> None:
    times = {"naive": [2.0, 30.0, 4.0], "flat": [1.0, 10.0, 8.0]}
    assert step_time.speedup(times, "flat", "naive") == 2.0
    assert step_time.speedup(times, "flat", "Reducer") is None


def test_overhead_is_the_handouts() -> None:
    """Its table of ResNet-50."""
    for cap, launches, last in ((0.25, 7.80, 0.05), (1, 1.95, 0.18), (3.26, 0.60, 0.60), (25, 0.08, 4.59)):
        terms = bucket_overhead.formula_seconds(cap * 2**20, 102_228_128, 20e-6, 1e9 / 0.175)
        assert [round(1e3 * term, 2) for term in terms] == [launches, last]


class TestTimeline(ScriptTest):
    @pytest.fixture(autouse=True)
    def copied(self) -> None:
        self.trace = self.folder / "timeline.virtual.trace.json"
        shutil.copy(TEST_DATA / self.trace.name, self.trace)

    def test_names_what_was_left_out(self) -> None:
        trace = json.loads(self.trace.read_text())
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event["pid"] <= 2]
        self.trace.write_text(json.dumps(trace))
        (figure,) = self.drawn(timeline, self.changed("timeline.virtual", keep(lambda of: of["variant"] == "naive")))
        assert "left out: unfinished: flat, overlapped, bucketed, Reducer" in words_of(figure)
        assert "flat" not in texts_of(figure)

    def test_operations_in_real_time_follow_each_other(self) -> None:
        times = [(0, 10), (1, 30), (2, 20), (40, 50)]  # launched, complete
        operations = [trace_files.Operation(str(begin), begin, end, begin, 4) for begin, end in times]
        shown = timeline.one_after_the_other(operations, launches_only=True)
        assert [(each.begin, each.end) for each in shown] == [(0, 10), (10, 20), (20, 30), (40, 50)]
        assert timeline.one_after_the_other(operations, launches_only=False) == operations

    def test_many_ranks_fit_on_a_page(self) -> None:
        for ranks in (1, 2, 8, 32):
            lanes, scale = timeline.heights(len(timeline.VARIANTS), ranks)
            assert lanes < timeline.TALLEST
            assert scale <= 1

    def refuse_timeline(self, message: str, change: Callable[[Document], object] = unchanged) -> None:
        self.refuse(timeline, [self.changed("timeline.virtual", change)], message)

    def test_missing_or_broken_trace(self) -> None:
        self.trace.write_text(self.trace.read_text()[:500])
        self.refuse_timeline("is not JSON")
        self.trace.unlink()
        self.refuse_timeline("trace.json: cannot be read: No such file")
        self.refuse_timeline("lacks the parameter 'slower'", lambda d: d["parameters"].pop("slower"))

    @pytest.mark.parametrize(("change", "message"), (
        (lambda events, span: events.clear(), "has 0 ranks of naive"),
        (lambda events, span: events[span].pop("ts"), "has a broken event, number "),
        (lambda events, span: events[span].update(dur=-1), "is no time"),
        (lambda events, span: events.append(7), "has a broken event, number "),
        (lambda events, span: events[span].update(pid=99), "process 99, whose name gives no rank"),
    ))  # fmt: skip
    def test_trace_with_a_broken_event(self, change: Callable[[list[Any], int], object], message: str) -> None:
        document = json.loads(self.trace.read_text())
        events = document["traceEvents"]
        change(events, next(index for index, event in enumerate(events) if event["ph"] == "X"))
        self.trace.write_text(json.dumps(document))
        self.refuse_timeline(message)

    @pytest.mark.parametrize(("condition", "message"), (
        (lambda event: event["pid"] != 1, "has ranks [1] of naive, and lacks others"),
        (lambda event: event["pid"] != 2, "has 1 ranks of naive"),
        (lambda event: event["ph"] != "i", "does not say when steps of naive end"),
    ))  # fmt: skip
    def test_trace_that_lacks_a_rank_or_a_step(self, condition: Callable[[Document], bool], message: str) -> None:
        events = json.loads(self.trace.read_text())["traceEvents"]
        self.trace.write_text(json.dumps({"traceEvents": [event for event in events if condition(event)]}))
        self.refuse_timeline(message)

    def test_other_traces(self) -> None:
        document = json.loads(self.trace.read_text())
        for event in document["traceEvents"]:
            event.update({"ts": event["ts"] + 10} if event["ph"] == "i" else {})
        self.trace.write_text(json.dumps(document))
        self.refuse_timeline("is of another run than")
        self.trace.write_text("{}")
        self.refuse_timeline("is not a Chrome trace")


UNBUCKETED_TABLE = """\
local_bs    seq_len    variant       total time train    total time grad all reduce    ratio
----------  ---------  ------------  ------------------  ----------------------------  -------
2           8          naive         2.0000              0.5000                        0.2500
2           8          flat          2.0000              0.5000                        0.2500
2           8          overlapped    2.0000              0.5000                        0.2500
2           8          Reducer*      2.0000              0.7500                        0.3750
2           8          compute only  1.0000              -                             -
"""


def simple(document: Document) -> None:
    """One row, with times that can be checked by eye. Rank 1 is the slower one."""
    keep(lambda of: (of["local_bs"], of["seq_len"]) == (2, 8))(document)
    for series in document["series"]:
        alone = series["labels"]["variant"] == "compute only"
        inside = series["labels"]["variant"] == "Reducer"
        times = {"train": 1.0 if alone else 2.0, "backward": 1.25 if inside else 0.5}
        mean = times.get(series["labels"]["part"], 0.0 if inside or alone else 0.5)
        series["values"] = [mean * 0.5, mean * 1.5] if series["labels"]["rank"] else [mean * 0.25, mean * 0.75]


def with_published_caps(document: Document) -> None:
    simple(document)
    for series in document["series"]:
        if "cap_bytes" in series["labels"]:
            series["labels"]["cap_bytes"] = series["labels"]["bucket_size_mb"] << 20


class TestBucketedDdpTable(ScriptTest):
    def table(self, change: Callable[[Document], object] = simple) -> Document:
        return self.made(bucketed_ddp, self.changed("bucketed_ddp", change))["bucketed_ddp"]

    def test_numbers_are_printed_as_torch_does(self) -> None:
        texts = {0.72934: "0.7293", 12.0: "12.", 0.0: "0.", 3.2e-5: "3.2000e-05", -0.25: "-0.2500"}
        for value, text in texts.items():
            assert bucketed_ddp.as_tensor(value, "cpu") == f"tensor([{text}])"
        assert bucketed_ddp.as_tensor(0.5, "cuda") == "tensor([0.5000], device='cuda:0')"

    def test_text_and_rows(self) -> None:
        made = self.table()
        first = (
            "#### Batch size 2\n"
            "Training DDP model, local_bs: 2, seq_len: 8, bucket_size_mb: 1 (of xl's gradients; here 421 bytes)\n"
            "total time train: tensor([2.])\n"
            "total time grad all reduce: tensor([0.5000])\n"
            "ratio grad all reduce to train time: tensor([0.2500])\n"
            "Training DDP model, local_bs: 2, seq_len: 8, bucket_size_mb: 10 (of xl's gradients; here 4210 bytes)\n"
        )
        assert made["text"].startswith(first)
        assert f"\n\n#### Without buckets\n\n{UNBUCKETED_TABLE}\n2 ranks, the machine's own link; " in made["text"]
        assert made["columns"][:6] == ["batch", "tokens", "1 MB", "10 MB", "100 MB", "1000 MB"]
        assert made["rows"][0][:3] == ["2", "8", "2000.0 (500.0)"]
        assert made["rows"][0][-2:] == ["2000.0 (750.0)", "1000.0"]
        assert "1 MB is 421 B, 10 MB is 4.11 KiB" in made["note"]

    def test_caps_of_the_published_size_are_said_once(self) -> None:
        made = self.table(with_published_caps)
        assert "seq_len: 8, bucket_size_mb: 1\ntotal" in made["text"]
        assert "of xl's" not in made["note"]

    def test_unfinished_variants_are_missing(self) -> None:
        made = self.table(keep(lambda of: of["variant"] not in ("naive", "flat")))
        assert made["columns"][6:] == ["overlapped", "Reducer*", "compute only"]
        of_stage_01 = self.table(keep(lambda of: of["variant"] not in ("overlapped", "bucketed")))
        assert of_stage_01["columns"] == ["batch", "tokens", "naive", "flat", "Reducer*", "compute only"]
        assert of_stage_01["text"].startswith("#### Without buckets\n")
