"""Each measuring program with as little as its flags allow: what it writes fits the schema, it says so of a stub, and
one goes on where it was stopped. In a plain run PLAIN alone, and those that somebody has built here."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from jsonschema import Draft202012Validator

from tests.benchmarks.program_helpers import BUILD, MISUSED, UNFINISHED, ProgramTest
from tools.grading.stages import find_stages
from tools.setup.toolchain import ROOT

SCHEMA = json.loads((ROOT / "figures" / "lib" / "schema.json").read_text())
PLAIN = "all_reduce collectives"
# A program, or one thing of several that it does; the stages that it measures, and the flags of a short run.
PROGRAMS = {
    "all_reduce all_reduce_algorithms": ("5", "--world-size=2", "--sizes=64"),
    "step bucket_overhead": ("3", "--rate-gbit=0.5", "--caps=3", "--sequence-length=4", "--repetitions=2",
                             "--warmup=1"),
    "step bucketed_ddp": ("123", "--batch-sizes=1", "--sequence-lengths=4", "--bucket-mb=100",
                          "--repetitions=1", "--warmup=1"),
    "cluster all_reduce_times": ("", "--gpus=2", "--mib=1"),
    "cluster memory_per_gpu": ("367", "--millions=100", "--gpus=1"),
    "cluster scaling": ("123", "--gpus", "1", "2", "--model=small"),
    "cluster sharded_scaling": ("12367", "--gpus", "1"),
    "all_reduce collectives": ("5", "--repetitions=2", "--warmup=0", "--sizes", "1024", "65536"),
    "step compare_ddp": ("3", "--buffer-sizes=3,25", "--iterations=1", "--discard=0"),
    "step ddp_suite": ("3", "--model=resnet50", "--batch-size=2", "--image-size=32", "--steps=1", "--warmup=0"),
    "all_reduce ring_all_reduce": ("5", "--repetitions=1"),
    "step step_time": ("123", "--batch-size=2", "--steps=2", "--warmup=0"),
    "step step_time --apart": ("123", "--variants=naive,flat", "--batch-size=2", "--steps=2"),
    "step step_time --optimizer=adamw": ("367", "--batch-size=2", "--steps=2", "--world-size=3"),
    "sync_batch_norm": ("4", "--batch-sizes=2", "--hidden-dims=4", "--repetitions=2", "--warmup=1"),
    "timeline": ("123", "--steps=1"),
    "train_cifar100": ("1234", "--train-size=17", "--test-size=13", "--num-epochs=1", "--batch-size=4",
                       "--grad-accum-steps=2", "--num-seeds=1"),
}  # fmt: skip


def built(name: str) -> tuple[pytest.MarkDecorator, ...]:
    stages = [find_stages(number)[0].name for number in PROGRAMS[name][0]]
    name = name.partition(" ")[0]
    needed = [name, *(f"{impl}_{stage}" for impl in ("assignments", "solutions") for stage in stages)]
    plain = name == PLAIN.split()[0] or (BUILD / "bin" / name).exists()
    return (pytest.mark.builds(*needed), *(() if plain else (pytest.mark.slow,)))


each_program = pytest.mark.parametrize("program", [pytest.param(name, marks=built(name)) for name in PROGRAMS])


class TestPrograms(ProgramTest):
    def choose(self, name: str) -> tuple[str, ...]:
        """Its stages, and flags."""
        self.program, _, self.subcommand = name.partition(" ")
        return PROGRAMS[name]

    @each_program
    def test_measures(self, program: str) -> None:
        stages, *flags = self.choose(program)
        document = self.run_well(*flags, impl="solutions" if stages else "")
        assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(document)] == []
        assert document["series"]

    @each_program
    def test_says_that_a_stub_is_unfinished(self, program: str) -> None:
        stages, *flags = self.choose(program)
        if stages:
            self.assert_refused("TODO(student)", *flags, code=UNFINISHED, impl="assignments")

    @pytest.mark.parametrize("words", [(), ("nonsense",), ("--help",)])
    @pytest.mark.parametrize(
        "program",
        [
            pytest.param(name, marks=built(f"{name} {one}"))
            for name, one in (("step", "step_time"), ("all_reduce", "collectives"))
        ],
    )
    def test_lists_its_experiments(self, program: str, words: tuple[str, ...]) -> None:
        ended = subprocess.run([BUILD / "bin" / program, *words], capture_output=True, text=True, check=False)
        assert ended.returncode == (0 if words == ("--help",) else MISUSED)
        listed = re.findall(r"^  (\w+) +\S", ended.stdout if words == ("--help",) else ended.stderr, re.MULTILINE)
        assert sorted(listed) == [name.split()[1] for name in sorted(PROGRAMS) if re.fullmatch(rf"{program} \w+", name)]
        assert words != ("nonsense",) or 'no experiment "nonsense"' in ended.stderr

    @pytest.mark.parametrize("program", [pytest.param(PLAIN, marks=built(PLAIN))])
    def test_goes_on_where_it_was_stopped(self, program: str) -> None:
        self.choose(program)
        self.resume(4, "--repetitions=10", "--sizes", 1024, 2048, 4096)
