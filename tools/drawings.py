"""What `make figures` measures and draws: one entry for each script in figures/."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import stages
from stages import Stage
from toolchain import ROOT

DATA = ROOT / "figures" / "data"


@dataclass(frozen=True)
class Run:
    """One run of a benchmark; `label` tells its result file from those of the program's other runs."""

    program: str
    label: str = ""
    flags: tuple[str, ...] = ()

    def result(self, impl: str, preset: str) -> Path:
        return DATA / ".".join(filter(None, (self.program, self.label, impl, preset, "json")))


@dataclass(frozen=True)
class Drawing:
    """A script, the stages whose code it shows, and the runs that it reads: figures, or tables (*_table.py)."""

    script: str
    stages: tuple[Stage, ...]
    runs: tuple[Run, ...]

    def titles(self) -> str:
        return ", ".join(stage.title for stage in self.stages)


NAIVE, OVERLAPPED, BUCKETED, BATCH_NORM, RING = stages.STAGES
AVERAGING = (NAIVE, OVERLAPPED, BUCKETED)
LIMITED_LINK = ("--rate-gbit", "3")


def on_both_links(program: str, label: str = "", flags: tuple[str, ...] = ()) -> tuple[Run, Run]:
    limited = ".".join(filter(None, (label, "limited_link")))
    return Run(program, label, flags), Run(program, limited, (*flags, *LIMITED_LINK))


BUCKETED_DDP = (Run("bucketed_ddp"),)
COMPARE_DDP = (Run("compare_ddp"),)
DDP_SUITE = (Run("ddp_suite"),)
SUITE_AB = (Run("ddp_suite", "ab", ("--bucket-size", "25", "1")),)
TRAIN_CIFAR100 = (Run("train_cifar100"),)
SYNC_BATCH_NORM = (Run("sync_batch_norm"),)
RING_ALL_REDUCE = (Run("ring_all_reduce"),)
COLLECTIVES = (Run("collectives"),)

DRAWINGS = (
    Drawing("naive_vs_flat.py", (NAIVE,), on_both_links("naive_vs_flat")),
    Drawing(
        "step_time.py",
        AVERAGING,
        (
            *on_both_links("step_time", "mlp_64"),
            *on_both_links("step_time", "mlp_64_cap_4", ("--cap-bytes", str(4 << 20))),
            *on_both_links("step_time", "mlp_8", ("--batch-size", "8")),
            *on_both_links("step_time", "resnet50", ("--model", "resnet50")),
        ),
    ),
    Drawing(
        "timeline.py",
        AVERAGING,
        (Run("timeline", "virtual"), Run("timeline", "real", ("--clock", "real", *LIMITED_LINK))),
    ),
    Drawing("bucketed_ddp.py", AVERAGING, BUCKETED_DDP),
    Drawing("bucketed_ddp_table.py", AVERAGING, BUCKETED_DDP),
    Drawing("bucket_overhead.py", (BUCKETED,), (Run("bucket_overhead", flags=("--rate-gbit", "1")),)),
    Drawing("compare_ddp.py", (BUCKETED,), COMPARE_DDP),
    Drawing("compare_ddp_delta.py", (BUCKETED,), COMPARE_DDP),
    Drawing("compare_ddp_table.py", (BUCKETED,), COMPARE_DDP),
    Drawing("ddp_suite.py", (BUCKETED,), DDP_SUITE),
    Drawing("ddp_suite_table.py", (BUCKETED,), DDP_SUITE),
    Drawing("ddp_suite_ab.py", (BUCKETED,), SUITE_AB),
    Drawing("ddp_suite_ab_table.py", (BUCKETED,), SUITE_AB),
    Drawing("train_cifar100.py", (BUCKETED, BATCH_NORM), TRAIN_CIFAR100),
    Drawing("train_cifar100_table.py", (BUCKETED, BATCH_NORM), TRAIN_CIFAR100),
    Drawing("sync_batch_norm.py", (BATCH_NORM,), SYNC_BATCH_NORM),
    Drawing("sync_batch_norm_table.py", (BATCH_NORM,), SYNC_BATCH_NORM),
    Drawing("batch_norm_speed.py", (BATCH_NORM,), (Run("batch_norm_speed"),)),
    Drawing("ring_all_reduce.py", (RING,), RING_ALL_REDUCE),
    Drawing("ring_all_reduce_table.py", (RING,), RING_ALL_REDUCE),
    Drawing("all_reduce_bandwidth.py", (RING,), COLLECTIVES),
    Drawing("collectives.py", (RING,), COLLECTIVES),
    Drawing("collectives_table.py", (RING,), COLLECTIVES),
    Drawing("all_reduce_algorithms.py", (RING,), (Run("all_reduce_algorithms"),)),
)
