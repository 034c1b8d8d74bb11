"""What figures say: what was measured and where, what is published, and what was left out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from figures.plots import sync_batch_norm
from figures.plots.timeline import VARIANTS
from tests.figures.figure_test import (
    TEST_DATA,
    Document,
    ScriptTest,
    first,
    keep,
    script_of,
    unchanged,
    warm,
    with_parameters,
    words_of,
)


def without(*variants: str) -> Callable[[Document], object]:
    return keep(lambda of: of.get("variant") not in variants)


def of_provenance(**fields: Any) -> Callable[[Document], object]:
    return lambda document: document["provenance"].update(fields)


def other_grid(document: Document) -> None:
    document["provenance"]["world_size"] = 4
    keep(lambda of: of["batch_size"] == 32)(document)
    for series in document["series"]:
        series["labels"]["hidden_dim"] += 1


MODELS = ("resnet50", "resnet101", "resnext50_32x4d", "resnext101_32x8d")
TIMES_ONLY = "make test shows values"
ON_CLUSTER = with_parameters(clock="cluster", model="xl", gpu="A100", link="pcie3", sequence_length=512)
OVERLAPPED = ("overlapped", "bucketed")
# By script and result: what is changed in it, what the figures say then, and what they do not.
SAYS: dict[tuple[str, str], list[tuple[Callable[[Document], object], tuple[str, ...], tuple[str, ...]]]] = {
    ("plots.naive_vs_flat", "naive_vs_flat.own_link"): [
        (unchanged, ("commit 01234567", "solutions", "time of a step [ms]", "the machine's own link"), ()),
        (with_parameters(latency_us=200), ("a link limited to 200 µs a message",), ()),
        (of_provenance(commit="0123456789ab-dirty"), ("commit 01234567-dirty",), ()),
    ],
    ("plots.step_time", "step_time.own_link"): [
        (unchanged, ("mlp, 8.4 M parameters, 64 samples a rank, buckets of 25 MiB", "time of a step [ms]",
                     "2 ranks; medians of 4 repetitions"), ("left out",)),
        (with_parameters(rate_gbit=3.0, model="resnet50", image_size=32, zero_gradients=1),
         ("resnet50, 8.4 M parameters, 64 images of 32×32 a rank, buckets of 25 MiB, gradients zeroed",
          "a link limited to 3 Gbit/s"), ()),
        (without("naive", "bucketed"), ("left out: unfinished",), ()),
    ],
    ("plots.timeline", "timeline.virtual"): [
        (unchanged, (*VARIANTS, "10 all-reduces", "1 all-reduce", "31.9 ms", "rank 1", "conv3", "fc1.weight, 8.0 MiB",
                     "bucket 2, 8.0 MiB", "all gradients, 10.2 MiB", "α = 150 µs, β = 1 ns a byte"), ()),
        (with_parameters(clock="real", rate_gbit=3.0), ("gloo on a link limited to 3 Gbit/s",), ()),
        (ON_CLUSTER, ("simulated cluster: xl, 8 sequences of 512 tokens", "around the layers"), ()),
    ],
    ("plots.bucketed_ddp", "bucketed_ddp"): [
        (unchanged, ("8 tokens", "16 tokens", "1 MB 421 B", "1000 MB 411 KiB", "naive", "Reducer*", "compute only",
                     "time of an iteration [ms]", "of it all-reduce in finish() [ms]",
                     "Means of 2 iterations with AdamW (in turns)"), ("Left out",)),
        (without("overlapped"), ("Left out: unfinished: overlapped.",), ()),
        (without(*OVERLAPPED), ("Left out: unfinished: overlapped, bucketed.", "without buckets"), ()),
    ],
    ("plots.bucketed_ddp_published", "bucketed_ddp.simulated"): [
        (unchanged, (TIMES_ONLY,), ("Left out",)),
        (without(*OVERLAPPED), ("Left out: unfinished: bucketed, overlapped.",), ()),
    ],
    ("plots.bucket_overhead", "bucket_overhead"): [
        (unchanged, ("measured", "simulated network", "formula: s/b · o + b/w", "b* = √(s·w·o) = ",
                     "Gradients s = 3.06 MiB", "medians of 3 repetitions"), ()),
    ],
    ("plots.compare_ddp", "compare_ddp"): [
        (unchanged, ("backward [ms]", "forward [ms]", "measured: batch 2, 32x32, the machine's own link",
                     "published: batch 32, 224x224", "all 24.37M", "async (stage 03)", "core, equal bytes",
                     "n = 3 iterations; mean squared error; rank 0's times"), ("Left out",)),
        (without("async", "sync"), ("Left out: unfinished: async, sync.",), ()),
    ],
    ("plots.compare_ddp_delta", "compare_ddp"): [
        (unchanged, ("published, of the same colour",), ("Left out",)),
        (without("async", "sync"), ("Left out: unfinished: async, sync.",), ()),
    ],
    ("plots.compare_ddp_published", "compare_ddp.simulated"): [
        (unchanged, ("stage 03 (reverse order)", "async (Python DDP, forward order)", "published, fitted", TIMES_ONLY,
                     "Backward of async: mean error", "2 GPUs (V100)"), ()),
    ],
    ("plots.ddp_suite", "ddp_suite"): [
        (unchanged, (*MODELS, "stage 03", "c10d::Reducer", "examples/s of a rank", "scaling efficiency [%]",
                     "published: PyTorch 1.4, V100 GPUs, NCCL"), ()),
    ],
    ("plots.ddp_suite_ab", "ddp_suite.simulated"): [
        (unchanged, (*MODELS, "diff at p75 [%]", "diff at p95 [%]", "stage 03", "without spread"), ()),
        (of_provenance(device="cpu"), ("ranks of one thread each, the machine's own link, in turns",), ()),
    ],
    ("plots.ddp_suite_published", "ddp_suite.simulated"): [(unchanged, (*MODELS, TIMES_ONLY), ())],
    ("plots.memory_per_gpu", "memory_per_gpu"): [
        (unchanged, ("7.5 billion", "1,000 billion", "ZeRO: and gradients", "Activations are not"), ()),
    ],
    ("plots.scaling", "scaling"): [
        (unchanged, ("weak scaling", "b* = √(s·w·o)", "1,998 M parameters", "A100 at 50% of its peak",
                     "whether or not the code's values are right"), ()),
    ],
    ("plots.sharded_scaling", "sharded_scaling"): [(unchanged, ("more than 80 GB",), ())],
    ("plots.sync_batch_norm", "sync_batch_norm"): [
        (unchanged, (*sync_batch_norm.NAMES.values(), "batch of 32 samples a rank", "1024", "forward [µs]",
                     "forward + backward [µs]", "peak memory [KiB]", "collectives", "Medians of 4 calls",
                     "10,000 calls, RTX A4000"), ()),
        (other_grid, ("1025", "4 ranks"), ()),
    ],
    ("plots.train_cifar100", "train_cifar100"): [
        (unchanged, ("synthetic data", "running training loss", "last batch's accuracy [%]", "epoch",
                     "validation accuracy [%]", "selfmade: bucketed DDP (stage 03), SyncBatchNorm (stage 04)",
                     "Data: synthetic", "mean of 3 seeds", "another training, not drawn",
                     "0.27734375 (71 of 256 images)"), ()),
        (keep(lambda of: of["seed"] == 1), ("One seed.",), ()),
    ],
    ("plots.ring_all_reduce", "ring_all_reduce"): [
        (unchanged, ("ring and butterfly", "ring and Gloo's all_reduce", "published", "time [ms]",
                     "more ranks than the 2 cores here", "with torch version 2.1.2; 2x nvidia RTX A4000"), ()),
        (warm, ("calls to warm up",), ("ublished",)),
    ],
    ("plots.all_reduce_algorithms", "all_reduce_algorithms"): [
        (unchanged, ("They agree exactly where the ranks divide", "8 ranks", "a tensor of 4 KiB", "85.9 KiB"), ()),
        (with_parameters(worlds_on_cluster="32, 64"), ("From 32 ranks on: one for all.",), ()),
        (first(values=[1.0]), (), ("exactly",)),
    ],
    ("plots.all_reduce_bandwidth", "collectives"): [
        (unchanged, ("2 ranks, the machine's own link", "bus bandwidth [GB/s]", "pipelined ring: α = ",
                     "butterfly: α = ", "Gloo's all_reduce: α = "), ("Left out",)),
        (without("pipelined ring"), ("Left out: unfinished: pipelined ring.",), ()),
        (keep(lambda of: of["world_size"] != 2), ("4 ranks, ",), ()),
    ],
    ("plots.collectives", "collectives"): [
        (unchanged, ("2 ranks", "4 ranks", "6 ranks", "time [ms]", "bus bandwidth [GB/s]", "size of the tensor",
                     "Medians of 3 calls, of the slowest rank", "The worlds of 4 and 6 ranks share 2 cores"),
         ("Left out",)),
        (without("pipelined ring"), ("Left out: unfinished: pipelined ring.",), ()),
        (of_provenance(cores=64), (), ("share",)),
        (of_provenance(backend="nccl, gloo"), ("the backend's all_reduce",), ()),
    ],
}  # fmt: skip
CASES = [(*key, *case) for key, cases in SAYS.items() for case in cases]


class TestTexts(ScriptTest):
    @pytest.mark.parametrize(("script", "sample", "change", "said", "unsaid"), CASES)
    def test_say(self, script: str, sample: str, change: Any, said: tuple[str, ...], unsaid: tuple[str, ...]) -> None:
        shutil.copy(TEST_DATA / "timeline.virtual.trace.json", self.folder)
        words = " ".join(map(words_of, self.drawn(script_of(script), self.changed(sample, change))))
        assert [text for text in said if text not in words] == []
        assert [text for text in unsaid if text in words] == []
