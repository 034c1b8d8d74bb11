"""Each script of plots/ on small data: that it makes its files, and refuses others' results."""

from __future__ import annotations

import importlib
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from matplotlib import pyplot as plt
from matplotlib.text import Text
from referencing import Registry, Resource

from figures.schemes import draw as schemes
from tests.figures.figure_helpers import ROOT, TEST_DATA, Document, changed, keep

FIGURES = ROOT / "figures"
SCHEMAS = {name: json.loads((FIGURES / "lib" / name).read_text()) for name in ("schema.json", "table_schema.json")}
REGISTRY = Registry().with_resources([(name, Resource.from_contents(schema)) for name, schema in SCHEMAS.items()])
TABLE = Draft202012Validator(SCHEMAS["table_schema.json"], registry=REGISTRY)


def unchanged(document: Document) -> None:
    pass


def with_parameters(**parameters: Any) -> Any:
    return lambda document: document["parameters"].update(parameters)


def of(name: str, *parts: str) -> list[str]:
    return [name, *(f"{name}.{part}" for part in parts)]


ON_CLUSTER = with_parameters(clock="cluster", model="xl", gpu="A100", link="pcie3", sequence_length=512)
OF_STAGE_01 = keep(lambda labels: labels["variant"] not in ("overlapped", "bucketed"))
BOTH = ("Reducer", "bucketed")
BATCHES = ["bucketed_batch_size_2", "bucketed_batch_size_4"]
# Module, result, what is changed in it, and the names of figures and tables, without implementation and preset.
MADE = (
    ("all_reduce_algorithms", "all_reduce_algorithms", unchanged, ["all_reduce_algorithms"], []),
    ("bucket_overhead", "bucket_overhead", unchanged, ["bucket_overhead"], []),
    ("bucket_overhead", "bucket_overhead", keep(lambda of: of["quantity"] == "step"), ["bucket_overhead"], []),
    ("bucketed_ddp", "bucketed_ddp", unchanged, BATCHES, ["bucketed_ddp"]),
    ("bucketed_ddp", "bucketed_ddp", OF_STAGE_01, BATCHES, ["bucketed_ddp"]),
    ("bucketed_ddp", "bucketed_ddp.simulated", unchanged, BATCHES[:1], of("bucketed_ddp", "beside")),
    ("bucketed_ddp", "bucketed_ddp.simulated", OF_STAGE_01, BATCHES[:1], ["bucketed_ddp"]),
    ("collectives", "collectives", unchanged, ["all_reduce_bandwidth", "collectives"], ["collectives"]),
    ("collectives", "collectives", keep(lambda of: of["world_size"] != 4), ["all_reduce_bandwidth", "collectives"],
     ["collectives"]),
    ("compare_ddp", "compare_ddp", unchanged, ["compare_ddp"], of("compare_ddp", "beside")),
    ("compare_ddp", "compare_ddp", keep(lambda of: of["variant"] != "sync"), ["compare_ddp"],
     of("compare_ddp", "beside")),
    ("compare_ddp", "compare_ddp.simulated", unchanged, ["compare_ddp"], of("compare_ddp", "beside")),
    ("ddp_suite", "ddp_suite", unchanged, ["ddp_suite"],
     [name for each in BOTH for name in of(f"ddp_suite.{each}", "beside")]),
    ("ddp_suite", "ddp_suite", keep(lambda of: of["model"] == "resnet101"), ["ddp_suite"],
     [name for each in BOTH for name in of(f"ddp_suite.{each}", "beside")]),
    ("ddp_suite", "ddp_suite.simulated", unchanged, ["ddp_suite"], [name for each in BOTH for name in
     (f"ddp_suite.{each}_1MB", *of(f"ddp_suite.{each}_25MB", "beside"), *of(f"ddp_suite_ab.{each}", "beside"))]),
    ("held_out", "bucketed_ddp.simulated", unchanged, ["held_out"], ["held_out"]),
    ("memory_per_gpu", "memory_per_gpu.kinds", unchanged, ["memory_per_gpu.kinds"], []),
    ("memory_per_gpu", "memory_per_gpu", unchanged, ["memory_per_gpu"], []),
    ("naive_vs_flat", "naive_vs_flat.own_link", unchanged, ["naive_vs_flat"], []),
    ("predictions", "ddp_suite.simulated", unchanged, [], ["predictions"]),
    ("ring_all_reduce", "ring_all_reduce", unchanged, ["ring_all_reduce"],
     [name for each in ("butterfly", "torch") for name in of(f"ring_all_reduce.{each}", "beside")]),
    ("ring_all_reduce", "ring_all_reduce", keep(lambda of: of["world_size"] == 32), ["ring_all_reduce"],
     of("ring_all_reduce.butterfly", "beside")),
    ("scaling", "scaling", unchanged, ["scaling"], []),
    ("scaling", "scaling", keep(lambda of: of["quantity"] == "step" and of["variant"] != "bucketed"), ["scaling"], []),
    ("sharded_scaling", "sharded_scaling", unchanged, of("sharded_scaling", "prefetch"), []),
    ("sharded_scaling", "sharded_scaling", keep(lambda of: "by link" not in of["quantity"]), ["sharded_scaling"], []),
    ("step_time", "step_time.own_link", unchanged, ["step_time"], []),
    ("step_time", "step_time.own_link", OF_STAGE_01, ["step_time"], []),
    ("sync_batch_norm", "sync_batch_norm", unchanged, ["sync_batch_norm"],
     of("sync_batch_norm", "backward", "baseline.beside", "stage.beside")),
    ("timeline", "timeline.virtual", unchanged, ["timeline.virtual"], []),
    ("timeline", "timeline.virtual", with_parameters(clock="real"), ["timeline.real"], []),
    ("timeline", "timeline.virtual", ON_CLUSTER, ["timeline.cluster"], []),
    ("train_cifar100", "train_cifar100", unchanged, ["train_cifar100"], of("train_cifar100", "seeds")),
    ("train_cifar100", "train_cifar100", keep(lambda of: of["seed"] == 0), ["train_cifar100"],
     of("train_cifar100", "seeds")),
    ("train_cifar100", "train_cifar100", keep(lambda of: (of["distributed_impl"], of["seed"]) == ("pytorch", 1)),
     ["train_cifar100"], of("train_cifar100", "seeds")),
)  # fmt: skip
TEXTS: list[Text] = []


@pytest.fixture(autouse=True)
def texts_drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Notes where texts are drawn meanwhile."""
    draw = Text.draw

    def note(text: Text, renderer: Any, *others: Any) -> None:
        draw(text, renderer, *others)
        if text.get_visible() and text.get_text().strip():
            TEXTS.append((renderer, text, text.get_window_extent(renderer).expanded(0.98, 0.8)))

    monkeypatch.setattr(Text, "draw", note)
    TEXTS.clear()
    yield
    plt.close("all")


def overlapping() -> list[str]:
    """The texts of a drawing that share more than a rim of their boxes."""
    drawn = {(renderer, text): box for renderer, text, box in TEXTS}  # the last of several drawings
    return [
        f"'{one.get_text()}' and '{other.get_text()}' overlap"
        for ((renderer, one), first), ((others, other), second) in itertools.combinations(drawn.items(), 2)
        if renderer is others and first.overlaps(second)
    ]


def run(module: str, file: Path, out: Path) -> int:
    return importlib.import_module(f"figures.plots.{module}").main(["--data", str(file), "--out", str(out)])


def test_every_script_is_tried() -> None:
    assert {file.stem for file in (FIGURES / "plots").glob("*.py")} == {module for module, *_ in MADE}


# What draws less of it, or otherwise, is slow.
EACH = [pytest.param(*made, marks=[] if made[2] is unchanged else [pytest.mark.slow]) for made in MADE]


@pytest.mark.parametrize(("module", "sample", "change", "figures", "tables"), EACH)
def test_makes_its_files(
    module: str, sample: str, change: Any, figures: list[str], tables: list[str], tmp_path: Path
) -> None:
    """In figures no text lies on another; tables have their form."""
    shutil.copy(TEST_DATA / "timeline.virtual.trace.json", tmp_path)
    file = changed(sample, change, tmp_path)
    assert run(module, file, tmp_path / "out") == 0
    assert overlapping() == []
    preset = json.loads(file.read_text())["provenance"]["preset"]
    made = {each.name: each for each in (tmp_path / "out").iterdir()}
    endings = [(name, ending) for name in figures for ending in ("pdf", "png")]
    endings += [(name, ending) for name in tables for ending in ("json", "txt")]
    due = {f"{name}.solutions.{preset}.{ending}" for name, ending in endings}
    assert set(made) == due
    for table in (json.loads(each.read_text()) for each in made.values() if each.suffix == ".json"):
        TABLE.validate(table)
        assert {len(row) for row in table["rows"]} == {len(table["columns"])}


@pytest.mark.parametrize(("change", "message"), (
    (lambda document: document["series"][0].update(values=[]), "does not fit schema.json at $.series[0].values"),
    (lambda document: document["provenance"].pop("commit"), "'commit' is a required property"),
    (lambda document: document.update(program="collectives"), "comes from the program collectives, not step_time"),
))  # fmt: skip
def test_refuses_what_it_cannot_use(
    change: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("naive_vs_flat", changed("naive_vs_flat.own_link", change, tmp_path), tmp_path / "out") == 1
    assert message in capsys.readouterr().err
    assert run("naive_vs_flat", tmp_path / "none.json", tmp_path / "out") == 1
    assert "none.json: there is no such file; run the benchmark" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_handouts_pictures_are_what_the_code_draws_now() -> None:
    stale = [name for name in schemes.PICTURES if schemes.digest_of(schemes.FOLDER / f"{name}.png") != schemes.digest()]
    assert stale == [], "draw them again: .venv/bin/python -m figures.schemes.draw"
