"""What `make figures` measures and draws: one entry for each module of figures/plots and its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.grading import stages
from tools.grading.stages import Stage
from tools.setup.toolchain import ROOT

DATA = ROOT / "figures" / "data"
CALIBRATION = ROOT / "figures" / "reference" / "calibration.json"
OF_EXPERIMENTS = ("step", "all_reduce")  # programs with a table of them
# What a run of the preset quick takes on two cores, by program and label; told before it begins. Measured by
# `make figures IMPL=solutions`, beside other work; of others it is known that they take less than a minute.
LESS_THAN_S = 60
SECONDS = {
    "bucketed_ddp.published": 7, "compare_ddp.published": 3, "ddp_suite.published": 7, "step_time.naive_vs_flat": 38,
    "step_time.naive_vs_flat.limited_link": 29, "step_time.mlp_64": 19, "step_time.mlp_64.limited_link": 14,
    "step_time.mlp_64_cap_4": 14, "step_time.mlp_64_cap_4.limited_link": 16, "step_time.mlp_8": 11,
    "step_time.mlp_8.limited_link": 12, "step_time.resnet50": 54, "step_time.resnet50.limited_link": 60,
    "timeline.virtual": 7, "timeline.real": 3, "timeline.cluster": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One run of a benchmark; `label` distinguishes its result file from those of the program's other runs. A run with
    a preset of its own is the same whatever preset was asked for: a subcommand of that name."""

    program: str  # or with a subcommand: "cluster scaling"; or with an experiment: "step compare_ddp"
    label: str = ""
    flags: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()  # more flags, of the preset quick alone
    preset: str = ""
    reads: tuple[Path, ...] = ()  # files besides code that its numbers depend on

    def command(self, impl: str, preset: str) -> tuple[str, ...]:
        """The program and its flags."""
        words = (*self.program.split(), *filter(None, (self.preset,)))
        size = () if self.preset else ("--preset", preset)
        return (*words, "--impl", impl, *size, *self.flags, *(self.quick if preset == "quick" else ()))

    @property
    def name(self) -> str:
        """Its result's, and its time's above. An experiment has a name of its own."""
        program = self.program.split()
        return ".".join(filter(None, (*(program[1:] if program[0] in OF_EXPERIMENTS else program), self.label)))

    @property
    def seconds(self) -> int:
        return SECONDS.get(".".join(filter(None, (self.name, self.preset))), LESS_THAN_S)

    def result(self, impl: str, preset: str) -> Path:
        return DATA / f"{self.name}.{impl}.{self.preset or preset}.json"


@dataclass(frozen=True)
class Drawing:
    """A module of figures/ that draws figures or sets tables, the stages that it shows, the runs that it reads, and the
    stages whose questions ask for it: the last of those that it shows, unless others are named."""

    module: str
    stages: tuple[Stage, ...]
    runs: tuple[Run, ...]
    homes: tuple[Stage, ...] = ()

    def is_asked_for_by(self, chosen: Sequence[Stage]) -> bool:
        return any(stage in chosen for stage in self.homes or self.stages[-1:])

    def titles(self) -> str:
        return ", ".join(stage.title for stage in self.stages)


NAIVE, OVERLAPPED, BUCKETED = map(stages.named, ("01_naive_ddp", "02_overlapped_ddp", "03_bucketed_ddp"))
BATCH_NORM, RING = map(stages.named, ("04_sync_batch_norm", "05_ring_all_reduce"))
AVERAGING = (NAIVE, OVERLAPPED, BUCKETED)
SHARDED = tuple(stage for stage in stages.all_stages() if stage.extension)
LIMITED_LINK = ("--rate-gbit", "3", "--latency-us", "200")


def on_both_links(label: str, flags: tuple[str, ...] = (), quick: tuple[str, ...] = ()) -> tuple[Run, Run]:
    own, limited = (label, flags), (f"{label}.limited_link", (*flags, *LIMITED_LINK))
    return Run("step step_time", *own, quick), Run("step step_time", *limited, quick)


# The published all-reduces took a fifth as long as backward; so they do here.
COMPARE_DDP = (Run("step compare_ddp", quick=("--rate-gbit", "10")),)
AB_LINK = ("--rate-gbit", "10", "--latency-us", "1000")
SUITE_AB = (Run("step ddp_suite", "ab", ("--bucket-size", "25", "1"), quick=AB_LINK),)
BUCKET_LINK = ("--rate-gbit", "1", "--latency-us", "100")
# At their published scale, on a simulated cluster.
BUCKETED_DDP_PUBLISHED, COMPARE_DDP_PUBLISHED, DDP_SUITE_PUBLISHED = (
    (Run(f"step {experiment}", preset="published", reads=(CALIBRATION,)),)
    for experiment in ("bucketed_ddp", "compare_ddp", "ddp_suite")
)
APART = ("--model", "resnet50", "--apart", "--variants", "compute only", "naive", "flat")
QUICK_APART = ("--image-size", "64", "--steps", "7", "--warmup", "1")
OF_A_BATCH = ("--millions", "7500", "--tokens", "8192")
DRAWN_SHARDED = ("--variants", "bucketed", "sharded", "no prefetch", "fully sharded")

DRAWINGS = (
    Drawing("plots.bucketed_ddp", AVERAGING, BUCKETED_DDP_PUBLISHED),
    Drawing("plots.compare_ddp", (BUCKETED,), COMPARE_DDP_PUBLISHED),
    Drawing("plots.ddp_suite", (BUCKETED,), DDP_SUITE_PUBLISHED),
    Drawing("plots.predictions", (BUCKETED,), (*BUCKETED_DDP_PUBLISHED, *COMPARE_DDP_PUBLISHED, *DDP_SUITE_PUBLISHED)),
    Drawing("plots.held_out", (BUCKETED,), BUCKETED_DDP_PUBLISHED),
    Drawing("plots.naive_vs_flat", (NAIVE,), on_both_links("naive_vs_flat", APART, QUICK_APART)),
    Drawing(
        "plots.step_time",
        AVERAGING,
        (
            *on_both_links("mlp_64"),
            *on_both_links("mlp_64_cap_4", ("--cap-bytes", str(4 << 20))),
            *on_both_links("mlp_8", ("--batch-size", "8")),
            *on_both_links("resnet50", ("--model", "resnet50")),
        ),
        (OVERLAPPED,),
    ),
    Drawing(
        "plots.timeline",
        AVERAGING,
        (Run("timeline", "virtual"), Run("timeline", "real", ("--clock", "real", *LIMITED_LINK))),
        (OVERLAPPED,),
    ),
    Drawing("plots.timeline", AVERAGING, (Run("timeline", "cluster", ("--clock", "cluster")),)),
    Drawing("plots.bucketed_ddp", AVERAGING, (Run("step bucketed_ddp"),)),
    Drawing("plots.bucket_overhead", (BUCKETED,), (Run("step bucket_overhead", flags=BUCKET_LINK),)),
    Drawing("plots.scaling", AVERAGING, (Run("cluster scaling"),)),
    *(
        Drawing(module, (*shown, *SHARDED), (run,), SHARDED)
        for module, shown, run in (
            ("plots.memory_per_gpu", (BUCKETED,), Run("cluster memory_per_gpu")),
            ("plots.memory_per_gpu", (BUCKETED,), Run("cluster memory_per_gpu", "kinds", OF_A_BATCH)),
            ("plots.sharded_scaling", AVERAGING, Run("cluster sharded_scaling")),
            ("plots.timeline", (BUCKETED,), Run("timeline", "sharded.virtual", DRAWN_SHARDED)),
            ("plots.timeline", (BUCKETED,), Run("timeline", "sharded.cluster", ("--clock", "cluster", *DRAWN_SHARDED))),
        )
        if SHARDED
    ),
    Drawing("plots.compare_ddp", (BUCKETED,), COMPARE_DDP),
    Drawing("plots.ddp_suite", (BUCKETED,), (Run("step ddp_suite"),)),
    Drawing("plots.ddp_suite", (BUCKETED,), SUITE_AB),
    Drawing("plots.train_cifar100", (BUCKETED, BATCH_NORM), (Run("train_cifar100"),)),
    Drawing("plots.sync_batch_norm", (BATCH_NORM,), (Run("sync_batch_norm"),)),
    Drawing("plots.ring_all_reduce", (RING,), (Run("all_reduce ring_all_reduce"),)),
    Drawing("plots.collectives", (RING,), (Run("all_reduce collectives"),)),
    Drawing("plots.all_reduce_algorithms", (RING,), (Run("all_reduce all_reduce_algorithms"),)),
)
