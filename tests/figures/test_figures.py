"""The figure scripts of stages 01 to 03, on small data, good and bad."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.text import Text

from figures.lib import result_files, trace_files
from figures.plots import naive_vs_flat, step_time, timeline
from tests.figures.figure_test import OWN_LINK, TEST_DATA, FigureTest, texts_of  # first: it finds the scripts

LIMITED_LINK = TEST_DATA / "naive_vs_flat.limited_link.json"


class NaiveVsFlat(FigureTest):
    script = naive_vs_flat
    sample = OWN_LINK

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([OWN_LINK, LIMITED_LINK], "naive_vs_flat.solutions.quick")

    def test_labels_have_units_shares_and_provenance(self) -> None:
        results = result_files.load_group(
            [OWN_LINK], "naive_vs_flat", shared=naive_vs_flat.SHARED_PARAMETERS, own=naive_vs_flat.PANEL_PARAMETERS
        )
        figure = naive_vs_flat.draw(results)
        texts = [text.get_text() for text in figure.texts + figure.axes[0].texts]
        self.assertTrue(any("commit 01234567" in text and "solutions" in text for text in texts), texts)
        self.assertTrue(any(re.fullmatch(r"\d+ ms\n\d+%", text) for text in texts), texts)
        self.assertIn("[ms]", figure.axes[0].get_xlabel())

    def test_missing_file(self) -> None:
        self.assert_refused([self.folder / "none.json"], "none.json: there is no such file; run the benchmark")

    def test_corrupt_file(self) -> None:
        file = self.folder / "half.json"
        file.write_text(OWN_LINK.read_text()[:500])
        self.assert_refused([file], "is not JSON")
        file.write_bytes(b"\xff\xfe")
        self.assert_refused([file], "is not JSON")
        file.write_text("[]")
        self.assert_refused([file], "is not a result of a benchmark")

    def test_folder_instead_of_a_file(self) -> None:
        self.assert_refused([self.folder], "cannot be read")

    def test_other_program_or_schema(self) -> None:
        self.assert_refused([self.changed(lambda d: d.update(program="ring"))], "comes from the program 'ring'")
        self.assert_refused([self.changed(lambda d: d.update(schema_version=2))], "schema version 2, not 1")

    def test_empty_data(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"].clear())], "is empty")
        self.assert_refused([self.changed(lambda d: d["series"][0]["values"].clear())], "has no values of")

    def test_missing_series(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"].pop())], "has 0 series of variant flat, phase")

    def test_missing_parts(self) -> None:
        self.assert_refused([self.changed(lambda d: d["provenance"].pop("commit"))], "lacks provenance: commit")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("model"))], "lacks the parameter 'model'")
        self.assert_refused([self.changed(lambda d: d["series"][0].pop("unit"))], "without labels, unit or values")

    def test_wrong_unit(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"][0].update(unit="ms"))], "in 'ms', not in 's'")

    def test_values_that_are_not_numbers(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"][0].update(values=[None]))], "that is not a number")

    def test_uneven_steps(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"][0]["values"].pop())], "number of steps")

    def test_mixed_data(self) -> None:
        for change, message in (
            (lambda d: d["provenance"].update(implementation="assignments"), "mix implementation"),
            (lambda d: d["provenance"].update(preset="full"), "mix preset: quick, full"),
            (lambda d: d["parameters"].update(model="resnet101"), "mix model: resnet50, resnet101"),
        ):
            self.assert_refused([OWN_LINK, self.changed(change)], message)

    def test_folder_that_cannot_be_written(self) -> None:
        (self.folder / "file").touch()
        code, errors = self.draw(OWN_LINK, out=self.folder / "file" / "out")
        self.assertEqual(code, 1)
        self.assertIn("choose another folder with --out", errors)


class StepTime(FigureTest):
    script = step_time
    sample = TEST_DATA / "step_time.own_link.json"
    limited_link = TEST_DATA / "step_time.limited_link.json"

    def texts(self, *files: Path) -> list[str]:
        """All text in the figure."""
        results = [result_files.load(file, "step_time") for file in files]
        return texts_of(step_time.draw(results))

    def without(self, *variants: str) -> Path:
        def change(document: dict[str, Any]) -> None:
            document["series"] = [one for one in document["series"] if one["labels"]["variant"] not in variants]

        return self.changed(change, "without.json")

    def test_writes_png_and_pdf(self) -> None:
        other = self.changed(lambda d: d["parameters"].update(batch_size=8))
        self.assert_drawn([self.sample, self.limited_link, other], "step_time.solutions.quick")

    def test_says_what_was_measured_and_where(self) -> None:
        texts = self.texts(self.sample, self.limited_link)
        for expected in (
            "mlp, 8.4 M parameters, 64 samples a rank, buckets of 25 MiB",
            "the machine's own link",
            "a link limited to 3 Gbit/s",
            "time of a step [ms]",
        ):
            self.assertIn(expected, texts)
        self.assertTrue(any("commit 01234567" in text and "solutions" in text for text in texts), texts)
        self.assertTrue(any(text.startswith("2 ranks; medians of 4 repetitions") for text in texts), texts)

    def test_ratios_are_medians_over_rounds(self) -> None:
        times = {"naive": [2.0, 30.0, 4.0], "flat": [1.0, 10.0, 8.0]}
        self.assertEqual(step_time.speedup(times, "flat", "naive"), 2.0)
        self.assertIsNone(step_time.speedup(times, "flat", "Reducer"))

    def test_images_and_zeroed_gradients_are_named(self) -> None:
        changes = {"model": "resnet50", "image_size": 32, "zero_gradients": 1}
        texts = self.texts(self.changed(lambda d: d["parameters"].update(changes)))
        title = "resnet50, 8.4 M parameters, 64 images of 32×32 a rank, buckets of 25 MiB, gradients zeroed"
        self.assertIn(title, texts)

    def test_says_what_was_left_out(self) -> None:
        self.assertNotIn("left out: unfinished", self.texts(self.sample))
        self.assertEqual(self.texts(self.without("naive", "bucketed")).count("left out: unfinished"), 2)

    def test_refuses_what_is_missing(self) -> None:
        self.assert_refused([self.without("compute only")], "lacks the variant 'compute only'")
        without_step = self.changed(lambda d: d["series"].pop(0))
        self.assert_refused([without_step], "has 0 series of variant compute only, part step")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("cap_bytes"))], "lacks the parameter")
        self.assert_refused([self.folder / "none.json"], "none.json: there is no such file; run the benchmark")

    def test_uneven_steps(self) -> None:
        self.assert_refused([self.changed(lambda d: d["series"][0]["values"].pop())], "number of steps")

    def test_mixed_or_equal_data(self) -> None:
        self.assert_refused([self.sample, self.changed(lambda d: d["parameters"].update(steps=5))], "mix steps: 4, 5")
        self.assert_refused([self.sample, self.changed(lambda d: None)], "are of the same workload and link")


class Timeline(FigureTest):
    script = timeline
    sample = TEST_DATA / "timeline.virtual.json"
    real = TEST_DATA / "timeline.real.json"

    def setUp(self) -> None:
        super().setUp()
        self.trace = self.folder / "timeline.virtual.trace.json"
        shutil.copy(TEST_DATA / self.trace.name, self.trace)

    def refuse_trace(self, change: Callable[[dict[str, Any]], None], message: str) -> None:
        document = json.loads((TEST_DATA / self.trace.name).read_text())
        change(document)
        self.trace.write_text(json.dumps(document))
        self.assert_refused([self.changed(lambda d: None)], message)

    def texts(self, *files: Path) -> list[str]:
        figures = [timeline.draw(*timeline.load(file)) for file in files]
        return [text.get_text() for figure in figures for text in figure.findobj(Text)]

    def test_writes_png_and_pdf(self) -> None:
        self.assert_drawn([self.sample], "timeline.virtual.solutions.quick")

    def test_draws_each_file(self) -> None:
        self.assertEqual(self.draw(self.sample, self.real), (0, ""))
        self.assertEqual(len(list((self.folder / "out").iterdir())), 4)

    def test_says_what_happened_and_when(self) -> None:
        texts = self.texts(self.sample)
        for expected in (
            *timeline.VARIANTS,
            "10 all-reduces",
            "1 all-reduce",
            "31.9 ms",
            "rank 1",
            "conv3",
            "fc1.weight, 8.0 MiB",
            "bucket 2, 8.0 MiB",
            "all gradients, 10.2 MiB",
        ):
            self.assertIn(expected, texts)
        self.assertTrue(any("α = 150 µs, β = 1 ns a byte" in text for text in texts), texts)
        self.assertTrue(any("commit 01234567" in text for text in texts), texts)
        real = self.texts(self.real)
        self.assertTrue(any("gloo on a link limited to 3 Gbit/s" in text for text in real), real)

    def test_says_what_the_cluster_is(self) -> None:
        cluster = {"clock": "cluster", "model": "xl", "gpu": "A100", "link": "pcie3", "sequence_length": 512}
        file = self.changed(lambda d: d["parameters"].update(cluster))
        self.assert_drawn([file], "timeline.cluster.solutions.quick")
        texts = self.texts(file)
        self.assertTrue(any("simulated cluster: xl, 8 sequences of 512 tokens" in text for text in texts), texts)
        self.assertIn("around the layers", texts)
        self.assert_missing_is_refused(cluster)

    def assert_missing_is_refused(self, cluster: dict[str, Any]) -> None:
        del cluster["link"]
        shutil.rmtree(self.folder / "out")
        file = self.changed(lambda d: d["parameters"].update(cluster))
        self.assert_refused([file], "lacks the parameter 'link'")

    def test_names_what_was_left_out(self) -> None:
        trace = json.loads(self.trace.read_text())
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event["pid"] <= 2]
        self.trace.write_text(json.dumps(trace))
        texts = self.texts(self.kept(lambda labels: labels["variant"] == "naive"))
        self.assertTrue(any("left out: unfinished: flat, overlapped, bucketed, Reducer" in text for text in texts))
        self.assertNotIn("flat", texts)

    def test_operations_in_real_time_follow_each_other(self) -> None:
        times = [(0, 10), (1, 30), (2, 20), (40, 50)]  # launched, complete
        operations = [trace_files.Operation(str(begin), begin, end, begin, 4) for begin, end in times]
        shown = timeline.one_after_the_other(operations, launches_only=True)
        self.assertEqual([(each.begin, each.end) for each in shown], [(0, 10), (10, 20), (20, 30), (40, 50)])
        self.assertEqual(timeline.one_after_the_other(operations, launches_only=False), operations)

    def test_many_ranks_fit_on_a_page(self) -> None:
        for ranks in (1, 2, 8, 32):
            lanes, scale = timeline.heights(len(timeline.VARIANTS), ranks)
            self.assertLess(lanes, timeline.TALLEST)
            self.assertLessEqual(scale, 1)

    def test_missing_or_broken_trace(self) -> None:
        self.trace.write_text(self.trace.read_text()[:500])
        self.assert_refused([self.changed(lambda d: None)], "is not JSON")
        self.trace.unlink()
        self.assert_refused([self.changed(lambda d: None)], "trace.json: cannot be read: No such file")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("trace"))], "lacks the parameter 'trace'")
        self.assert_refused([self.changed(lambda d: d["parameters"].pop("slower"))], "lacks the parameter 'slower'")

    def test_trace_without_what_is_needed(self) -> None:
        events = json.loads(self.trace.read_text())["traceEvents"]
        span = next(index for index, event in enumerate(events) if event["ph"] == "X")
        self.refuse_trace(lambda d: d.pop("traceEvents"), "is not a Chrome trace")
        self.refuse_trace(lambda d: d["traceEvents"][span].pop("ts"), f"has a broken event, number {span}")
        self.refuse_trace(lambda d: d["traceEvents"][span].update(dur=-1), "is no time")
        self.refuse_trace(lambda d: d["traceEvents"].append(7), f"has a broken event, number {len(events)}")
        self.refuse_trace(lambda d: d["traceEvents"][span].update(pid=99), "process 99, whose name gives no rank")

    def test_trace_that_lacks_a_rank_or_a_step(self) -> None:
        def keep(condition: Callable[[dict[str, Any]], bool]) -> Callable[[dict[str, Any]], None]:
            return lambda d: d.update(traceEvents=[event for event in d["traceEvents"] if condition(event)])

        self.refuse_trace(keep(lambda event: event["pid"] != 1), "has ranks [1] of naive, and lacks others")
        self.refuse_trace(keep(lambda event: event["pid"] != 2), "has 1 ranks of naive")
        self.refuse_trace(keep(lambda event: event["pid"] > 2), "has 0 ranks of naive")
        self.refuse_trace(keep(lambda event: event["ph"] != "i"), "does not say when steps of naive end")

    def test_trace_of_another_run(self) -> None:
        def later(document: dict[str, Any]) -> None:
            for event in document["traceEvents"]:
                event.update({"ts": event["ts"] + 10} if event["ph"] == "i" else {})

        self.refuse_trace(later, "is of another run than")
