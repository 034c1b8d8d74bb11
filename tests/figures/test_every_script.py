"""Each script of plots/ and tables/ on small data: that it makes its files, and refuses others' results."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from figures.lib import result_files, tables
from tests.figures.figure_test import (
    OWN_LINK,
    ROOT,
    TEST_DATA,
    Document,
    ScriptTest,
    keep,
    overlapping,
    script_of,
    texts_drawn,
    unchanged,
    warm,
    with_parameters,
)

FIGURES = ROOT / "figures"
SCHEMAS = {name: json.loads((FIGURES / "lib" / name).read_text()) for name in ("schema.json", "table_schema.json")}
REGISTRY = Registry().with_resources([(name, Resource.from_contents(schema)) for name, schema in SCHEMAS.items()])
ENDINGS = {"plots": ("pdf", "png"), "tables": ("json", "txt")}


def one_rank(document: Document) -> None:
    keep(lambda labels: labels["world_size"] == 2)(document)
    for series in document["series"]:
        series["labels"]["world_size"] = 1


def of(name: str, *parts: str) -> list[str]:
    return [name, *(f"{name}.{part}" for part in parts)]


BOTH = ("Reducer", "bucketed")
# Module, result, what is changed in it, and the names of what is made, without implementation and preset.
MADE = (
    ("plots.all_reduce_algorithms", "all_reduce_algorithms", None, ["all_reduce_algorithms"]),
    ("plots.all_reduce_bandwidth", "collectives", None, ["all_reduce_bandwidth"]),
    ("plots.bucket_overhead", "bucket_overhead", None, ["bucket_overhead"]),
    ("plots.bucket_overhead", "bucket_overhead", keep(lambda of: of["quantity"] == "step"), ["bucket_overhead"]),
    ("plots.bucketed_ddp", "bucketed_ddp", None, ["bucketed_batch_size_2", "bucketed_batch_size_4"]),
    ("plots.bucketed_ddp_published", "bucketed_ddp.simulated", None, ["bucketed_batch_size_2"]),
    ("plots.collectives", "collectives", None, ["collectives"]),
    ("plots.collectives", "collectives", keep(lambda of: of["world_size"] != 4), ["collectives"]),
    ("plots.collectives", "collectives", one_rank, ["collectives"]),
    ("plots.compare_ddp", "compare_ddp", None, ["compare_ddp"]),
    ("plots.compare_ddp_published", "compare_ddp.simulated", None, ["compare_ddp"]),
    ("plots.ddp_suite", "ddp_suite", None, ["ddp_suite"]),
    ("plots.ddp_suite", "ddp_suite", keep(lambda of: of["model"] == "resnet101"), ["ddp_suite"]),
    ("plots.ddp_suite_published", "ddp_suite.simulated", None, ["ddp_suite"]),
    ("plots.memory_by_kind", "memory_per_gpu.kinds", None, ["memory_per_gpu.kinds"]),
    ("plots.memory_per_gpu", "memory_per_gpu", None, ["memory_per_gpu"]),
    ("plots.naive_vs_flat", "naive_vs_flat.own_link", None, ["naive_vs_flat"]),
    ("plots.ring_all_reduce", "ring_all_reduce", None, ["ring_all_reduce"]),
    ("plots.ring_all_reduce", "ring_all_reduce", warm, ["ring_all_reduce.warm"]),
    ("plots.ring_all_reduce", "ring_all_reduce", keep(lambda of: of["world_size"] == 32), ["ring_all_reduce"]),
    ("plots.scaling", "scaling", None, ["scaling"]),
    ("plots.scaling", "scaling", keep(lambda of: of["quantity"] == "step" and of["variant"] != "bucketed"),
     ["scaling"]),
    ("plots.sharded_scaling", "sharded_scaling", None, of("sharded_scaling", "prefetch")),
    ("plots.sharded_scaling", "sharded_scaling", keep(lambda of: "by link" not in of["quantity"]), ["sharded_scaling"]),
    ("plots.step_time", "step_time.own_link", None, ["step_time"]),
    ("plots.sync_batch_norm", "sync_batch_norm", None, ["sync_batch_norm"]),
    ("plots.timeline", "timeline.virtual", None, ["timeline.virtual"]),
    ("plots.timeline", "timeline.virtual", with_parameters(clock="real"), ["timeline.real"]),
    ("plots.timeline", "timeline.virtual",
     with_parameters(clock="cluster", model="xl", gpu="A100", link="pcie3", sequence_length=512), ["timeline.cluster"]),
    ("plots.train_cifar100", "train_cifar100", None, ["train_cifar100"]),
    ("plots.train_cifar100", "train_cifar100",
     keep(lambda of: (of["distributed_impl"], of["seed"]) == ("pytorch", 1)), ["train_cifar100"]),
    ("tables.bucketed_ddp", "bucketed_ddp", None, ["bucketed_ddp"]),
    ("tables.collectives", "collectives", None, ["collectives"]),
    ("tables.compare_ddp", "compare_ddp", None, of("compare_ddp", "beside")),
    ("tables.ddp_suite", "ddp_suite", None, [name for each in BOTH for name in of(f"ddp_suite.{each}", "beside")]),
    ("tables.ddp_suite", "ddp_suite.simulated", None, [name for each in BOTH for name in
     (f"ddp_suite.{each}_1MB", *of(f"ddp_suite.{each}_25MB", "beside"))]),
    ("tables.ddp_suite_ab", "ddp_suite.simulated", None,
     [name for each in BOTH for name in of(f"ddp_suite_ab.{each}", "beside")]),
    ("tables.ring_all_reduce", "ring_all_reduce", None,
     [name for each in ("butterfly", "torch") for name in of(f"ring_all_reduce.{each}", "beside")]),
    ("tables.ring_all_reduce", "ring_all_reduce", warm, [f"ring_all_reduce.warm.{each}" for each in
     ("butterfly", "torch")]),
    ("tables.ring_all_reduce", "ring_all_reduce", keep(lambda of: of["world_size"] == 32),
     of("ring_all_reduce.butterfly", "beside")),
    ("tables.sync_batch_norm", "sync_batch_norm", None,
     of("sync_batch_norm", "backward", "peer.beside", "stage.beside")),
    ("tables.train_cifar100", "train_cifar100", None, of("train_cifar100", "seeds")),
)  # fmt: skip
OF_SEVERAL = ("plots.held_out", "tables.predictions")  # test_published_scale.py
RESULTS = {module: sample for module, sample, _, _ in MADE}


def violations(document: Any, schema: str = "schema.json") -> list[str]:
    """Where `document` breaks the schema."""
    validator = Draft202012Validator(SCHEMAS[schema], registry=REGISTRY)
    return sorted(f"{error.json_path}: {error.message}" for error in validator.iter_errors(document))


class TestEveryScript(ScriptTest):
    def test_is_tried(self) -> None:
        there = {f"{room}.{file.stem}" for room in ENDINGS for file in (FIGURES / room).glob("*.py")}
        assert there == {*RESULTS, *OF_SEVERAL}

    @pytest.mark.parametrize(("module", "sample", "change", "names"), MADE)
    def test_makes_its_files(self, module: str, sample: str, change: Any, names: list[str]) -> None:
        """In figures no text lies on another; tables have their form."""
        shutil.copy(TEST_DATA / "timeline.virtual.trace.json", self.folder)
        file = self.changed(sample, change or unchanged)
        with texts_drawn() as texts:
            assert self.run(script_of(module), file) == (0, "")
        assert overlapping(texts) == []
        preset = json.loads(file.read_text())["provenance"]["preset"]
        made = {each.name: each for each in (self.folder / "out").iterdir()}
        endings = ENDINGS[module.partition(".")[0]]
        assert set(made) == {f"{name}.solutions.{preset}.{ending}" for name in names for ending in endings}
        for each in made.values():
            if each.suffix == ".png":
                assert each.stat().st_size > 10_000
            if each.suffix == ".json":
                table = json.loads(each.read_text())
                assert violations(table, "table_schema.json") == []
                assert {len(row) for row in table["rows"]} == {len(table["columns"])}

    @pytest.mark.parametrize(("module", "sample"), RESULTS.items())
    def test_refuses_what_it_cannot_use(self, module: str, sample: str) -> None:
        script = script_of(module)
        foreign = TEST_DATA / "scaling.json" if "naive" in module else OWN_LINK
        self.refuse(script, [foreign], "comes from the program")
        self.refuse(script, [self.folder / "none.json"], "none.json: there is no such file; run the benchmark")
        self.refuse(script, [self.changed(sample, lambda d: d["parameters"].clear())], "lacks the parameter")


class TestForms(ScriptTest):
    def test_schema_describes_the_test_data(self) -> None:
        documents = {file.name: json.loads(file.read_text()) for file in TEST_DATA.glob("*.json")}
        found = {name: violations(document) for name, document in documents.items() if "program" in document}
        assert len(found) > 10
        assert found == dict.fromkeys(found, [])

    def test_schemas_notice_what_is_wrong(self) -> None:
        document = json.loads(OWN_LINK.read_text())
        document["provenance"]["cores"] = 0
        document["series"][0]["values"] = []
        del document["provenance"]["host"]
        document["extra"] = 1
        assert len(violations(document)) == 4
        assert len(violations(self.save(rows=[]), "table_schema.json")) == 1

    def save(self, **changes: Any) -> Document:
        result = result_files.load(OWN_LINK, "naive_vs_flat")
        parts = {"title": "µs", "columns": ["a", "b"], "rows": [["1", "2"]], "text": "| a | b |\n", "results": [result]}
        self.files = tables.save(tables.Table(**(parts | changes)), self.folder / "new", "naive_vs_flat.new")
        return json.loads(self.files[1].read_text())

    def test_tables_are_written_as_text_and_as_json(self) -> None:
        document = self.save()
        assert [file.name for file in self.files] == ["naive_vs_flat.new.txt", "naive_vs_flat.new.json"]
        text, origin = self.files[0].read_text().split("\n\n")
        assert text == "| a | b |"
        assert "solutions, quick preset" in origin
        assert document["provenance"][0]["implementation"] == "solutions"
        assert len(list((self.folder / "new").iterdir())) == 2, "nothing temporary is left"
