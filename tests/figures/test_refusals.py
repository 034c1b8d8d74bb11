"""What the scripts say of results that are damaged, incomplete or do not fit together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from figures.plots import naive_vs_flat
from tests.figures.figure_test import OWN_LINK, TEST_DATA, Document, ScriptTest, drop, first, keep, script_of, unchanged


def labelled(**labels: Any) -> Callable[[Document], object]:
    return lambda document: document["series"][0]["labels"].update(labels)


def unlabelled(label: str) -> Callable[[Document], object]:
    return lambda document: document["series"][0]["labels"].pop(label)


def without(name: str) -> Callable[[Document], object]:
    return lambda document: document["parameters"].pop(name)


def shorter(document: Document) -> None:
    document["series"][0]["values"].pop()


def one_rank(document: Document) -> None:
    document["series"] = document["series"][:16]
    for series in document["series"]:
        series["labels"]["world_size"] = 1


NO_COMPUTE = keep(lambda of: of.get("variant") != "compute only")
OTHER = "has series of something else"
MEASURED = "was measured, not simulated; run its program with --preset published"
REFUSED: dict[tuple[str, str], list[tuple[Callable[[Document], object], str]]] = {
    ("plots.naive_vs_flat", "naive_vs_flat.own_link"): [
        (lambda d: d.update(schema_version=2), "has schema version 2, not 1"),
        (lambda d: d.clear(), "is not a result of a benchmark"),
        (lambda d: d["series"].clear(), "is empty: it has no series"),
        (lambda d: d["provenance"].pop("commit"), "lacks provenance: commit"),
        (lambda d: d["series"][0].pop("unit"), "has a series without labels, unit or values"),
        (lambda d: d.pop("series"), "lacks 'series'"),
        (without("model"), "lacks the parameter 'model'"),
        (drop(-1), "has 0 series of variant flat, phase"),
        (first(unit="ms"), "in 'ms', not in 's'"),
        (first(values=[]), "has no values of"),
        (first(values=[None]), "that is not a number"),
        (shorter, "differ in their number of steps"),
    ],
    ("plots.step_time", "step_time.own_link"): [
        (NO_COMPUTE, "lacks the variant 'compute only'"),
        (shorter, "the variants differ in their number of steps"),
    ],
    ("tables.bucketed_ddp", "bucketed_ddp"): [
        (drop(0), "lacks a part or a rank of bucketed of 1 MB, batch 2, sequence 8"),
        (shorter, "the number of iterations differs"),
        (first(values=[0, 0]), "has an iteration of bucketed of 1 MB, batch 2, sequence 8 that took no time"),
        (unlabelled("seq_len"), "has a series without seq_len"),
        (unlabelled("cap_bytes"), "has a series without cap_bytes"),
        (NO_COMPUTE, "lacks compute only, batch 2, sequence 8"),
    ],
    ("plots.bucket_overhead", "bucket_overhead"): [
        (keep(lambda of: of.get("cap_bytes", 3209344) == 3209344), "needs buckets of two sizes or more"),
        (lambda d: next(s for s in d["series"] if "cap_bytes" in s["labels"])["values"].pop(),
         "its series differ in their number of steps"),
    ],
    ("tables.compare_ddp", "compare_ddp"): [
        (drop(0), "lacks forward of core at 3M"),
        (labelled(variant="other"), "has a series of something else"),
        (first(values=[0.0]), "takes no time"),
        (without("times_of"), "lacks the parameter 'times_of'"),
        (lambda d: d["series"].append(d["series"][0]), "has 2 series of"),
    ],
    ("plots.ddp_suite", "ddp_suite"): [
        (drop(0), "lacks resnet50 without DDP, or with bucketed, 25 MB"),
        (unlabelled("round"), "has a series without the label 'round'"),
        (first(values=[1, 0]), "that is not above zero"),
        (lambda d: d.update(series=d["series"][:1]), "has no round with DDP"),
    ],
    ("plots.ddp_suite", "ddp_suite.simulated"): [
        (unchanged, "has several bucket sizes; draw it with figures.plots.ddp_suite_ab"),
    ],
    ("plots.ddp_suite_ab", "ddp_suite"): [(unchanged, "has 1 bucket sizes, not two; run ddp_suite --bucket-size 25 1")],
    ("plots.ddp_suite_ab", "ddp_suite.simulated"): [(drop(-1), "on other ranks with one bucket size than with the")],
    ("plots.scaling", "scaling"): [(NO_COMPUTE, "lacks compute only; run the benchmark scaling again")],
    ("plots.sharded_scaling", "sharded_scaling"): [(NO_COMPUTE, "lacks compute only; run the benchmark sharded")],
    ("plots.memory_per_gpu", "memory_per_gpu"): [
        (keep(lambda of: of["quantity"] != "held"), "lacks what is held; run the benchmark memory_per_gpu again"),
    ],
    ("plots.memory_by_kind", "memory_per_gpu.kinds"): [
        (keep(lambda of: of["quantity"] == "most"), "lacks what is held by kind; run the benchmark memory_per_gpu"),
    ],
    ("plots.sync_batch_norm", "sync_batch_norm"): [
        (drop(0), "has 0 series of batch_size 32, hidden_dim 128"),
        (shorter, "its series differ in their number of calls"),
        (unlabelled("hidden_dim"), "has a series without batch_size or hidden_dim"),
    ],
    ("plots.train_cifar100", "train_cifar100"): [
        (shorter, "has 4 epochs of selfmade, seed 0, not 5"),
        (labelled(distributed_impl="other"), "has unknown implementations: other"),
        (unlabelled("seed"), "has a series without distributed_impl, seed or quantity"),
    ],
    ("plots.ring_all_reduce", "ring_all_reduce"): [
        (lambda d: d["parameters"].update(procedure="cold"), "its procedure is 'cold', which no benchmark has"),
        (unlabelled("tensor_size"), "has a series without world_size and tensor_size"),
        (lambda d: d.update(series=[{"labels": {"a": 1}, "unit": "s", "values": [1]}]),
         "has no series beside butterfly or all_reduce"),
    ],
    ("plots.all_reduce_algorithms", "all_reduce_algorithms"): [(labelled(more=1), OTHER)],
    ("plots.collectives", "collectives"): [
        (keep(lambda of: of["variant"] != "ring"), "lacks the variant 'ring'"),
        (drop(-1), "6 ranks have not measured each variant at the same sizes"),
        (labelled(more=1), OTHER),
        (labelled(variant="telepathy"), OTHER),
    ],
    ("plots.all_reduce_bandwidth", "collectives"): [
        (one_rank, "one rank has no bus"),
        (keep(lambda of: of["bytes"] == 1024), "needs two sizes or more"),
    ],
    ("plots.compare_ddp_published", "compare_ddp"): [(unchanged, MEASURED)],
    ("plots.bucketed_ddp_published", "bucketed_ddp"): [(unchanged, MEASURED)],
    ("plots.ddp_suite_published", "ddp_suite"): [(unchanged, MEASURED)],
}  # fmt: skip
CASES = [(*key, *case) for key, cases in REFUSED.items() for case in cases]


class TestRefusals(ScriptTest):
    @pytest.mark.parametrize(("script", "sample", "change", "message"), CASES, ids=[case[-1] for case in CASES])
    def test_says_what_is_wrong(self, script: str, sample: str, change: Any, message: str) -> None:
        self.refuse(script_of(script), [self.changed(sample, change)], message)

    def test_predictions_are_of_simulated_results(self) -> None:
        self.refuse(script_of("tables.predictions"), [TEST_DATA / "ddp_suite.json"], MEASURED)
        self.refuse(
            script_of("tables.predictions"), [OWN_LINK], "is named after none of compare_ddp, bucketed_ddp, ddp_suite"
        )

    def test_results_that_do_not_fit_together(self) -> None:
        for change, message in (
            (lambda d: d["provenance"].update(implementation="assignments"), "mix implementation"),
            (lambda d: d["provenance"].update(preset="full"), "mix preset: quick, full"),
            (lambda d: d["parameters"].update(model="resnet101"), "mix model: resnet50, resnet101"),
        ):
            self.refuse(naive_vs_flat, [OWN_LINK, self.changed(OWN_LINK.stem, change)], message)
        same = [TEST_DATA / "step_time.own_link.json", self.changed("step_time.own_link", unchanged)]
        self.refuse(script_of("plots.step_time"), same, "are of the same workload and link")

    def test_files_that_cannot_be_read(self) -> None:
        file = self.folder / "half.json"
        for content, message in (
            (OWN_LINK.read_bytes()[:500], "is not JSON"),
            (b"\xff\xfe", "is not JSON"),
            (b"[]", "is not a result of a benchmark"),
        ):
            file.write_bytes(content)
            self.refuse(naive_vs_flat, [file], message)
        self.refuse(naive_vs_flat, [self.folder], "cannot be read")

    def test_a_folder_that_cannot_be_written(self) -> None:
        (self.folder / "file").touch()
        code, errors = self.run(naive_vs_flat, OWN_LINK, out=self.folder / "file" / "out")
        assert code == 1
        assert "choose another folder with --out" in errors
