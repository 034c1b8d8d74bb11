"""Draws and sets loss, accuracy, time and memory of training on CIFAR-100, for both implementations and several seeds.

Reads result files of the benchmark train_cifar100. "running loss" and "batch accuracy" are what the published program
prints: of rank 0, losses added up over the number of micro-batches, and the last one's accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from figures.lib import script, style
from figures.lib.result_files import load, load_reference, name_of, pick
from figures.lib.tables import Table

PROGRAM = "train_cifar100"
PUBLISHED_RUN = {"data": "CIFAR-100", "train_size": 50_000, "epochs": 16, "batch_size": 256, "grad_accum_steps": 4,
                 "learning_rate": 0.01, "momentum": 0.5}  # fmt: skip
PUBLISHED_RANKS = 2
STAGES = {"naive": "01", "flat": "01", "overlapped": "02", "bucketed": "03"}
LOOKS = {
    "custom": {"color": style.BLUE, "linestyle": "-", "linewidth": 1.3},
    "pytorch": {"color": style.VERMILION, "linestyle": "--", "linewidth": 1.3},
}
MARKER_SIZES = {"custom": 4.2, "pytorch": 2.0}  # so that both are visible where they agree
# By quantity: the panel's title, its unit's factor, and the published column.
PANELS = {
    "running loss": ("running training loss", 1, "loss"),
    "batch accuracy": ("last batch's accuracy [%]", 100, "acc"),
    "validation accuracy": ("validation accuracy [%]", 100, ""),
}
PUBLISHED = {"marker": "D", "markersize": 4.5, "markerfacecolor": "white", "linestyle": "none", "zorder": 5}
HEADERS = ["Rank", "Time", "Max Memory Allocated"]
TITLES = {"custom": "Custom distributed training", "pytorch": "pytorch Distributed Data Parallel"}
QUANTITIES = {"loss": "running loss", "accuracy": "batch accuracy", "validation": "validation accuracy"}
BESIDE = ["implementation", "quantity", "here", "published", "here / published"]
COMMANDS = "The published text shows the command of each implementation under the other one's name."


def as_published(result: pd.DataFrame) -> bool:
    """Whether the loss and accuracy of the published run can be compared with these."""
    same_ranks = result.attrs["provenance"]["world_size"] == PUBLISHED_RANKS
    return same_ranks and PUBLISHED_RUN.items() <= result.attrs["parameters"].items()


def titles_of(result: pd.DataFrame) -> dict[str, str]:
    """Of the implementations that were trained."""
    ddp = result.attrs["parameters"]["ddp"]
    titles = {
        "custom": f"custom: {ddp} DDP (stage {STAGES.get(ddp, '?')}), SyncBatchNorm (stage 04)",
        "pytorch": "pytorch: c10d::Reducer, port of nn.SyncBatchNorm",
    }
    return {name: title for name, title in titles.items() if name in set(result["distributed_impl"])}


def curves(result: pd.DataFrame, implementation: str, quantity: str) -> pd.DataFrame:
    """A row for each seed, a column for each epoch, counted from 0."""
    rows = pick(result, distributed_impl=implementation, quantity=quantity)
    return rows.pivot(index="seed", columns="call", values="value")


def draw_panel(axes: Axes, result: pd.DataFrame, quantity: str) -> None:
    """Draws a line at the mean over the seeds, in a band of one standard deviation on either side."""
    title, scale, column = PANELS[quantity]
    for name in titles_of(result):
        values = scale * curves(result, name, quantity)
        mean, epochs = values.mean(), values.columns + 1
        axes.plot(epochs, mean, **LOOKS[name], marker="o" if len(epochs) < 8 else "", markersize=MARKER_SIZES[name])
        if len(values) > 1:
            low, high = mean - values.std(), mean + values.std()
            axes.fill_between(epochs, low, high, color=LOOKS[name]["color"], alpha=0.22, linewidth=0)
    if column and as_published(result):
        ends = load_reference(PROGRAM).drop_duplicates("distributed_impl").set_index("distributed_impl")
        for name, end in (scale * ends[column]).items():
            axes.plot([PUBLISHED_RUN["epochs"]], [end], color=LOOKS[name]["color"], **PUBLISHED)
    style.dress(axes, title, "epoch", grid="y")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def draw(result: pd.DataFrame) -> Figure:
    figure, panels = style.panels(3.43, 1, len(PANELS))
    for axes, quantity in zip(panels, PANELS):
        draw_panel(axes, result, quantity)
    entries = {title: LOOKS[name] for name, title in titles_of(result).items()}
    if as_published(result):
        entries["published, of the same colour (2 GPUs)"] = {"color": "#555555", **PUBLISHED}
    style.legend(figure, entries, ncols=1, handlelength=2.6)
    values, seeds = result.attrs["parameters"], result["seed"].nunique()
    top = 1 - 0.08 / figure.get_figheight()
    figure.text(0.99, top, f"{values['data']} data", ha="right", va="top", fontsize=8, fontweight="bold")
    text = (
        f"{values['train_size']:,} images to train with, {values['test_size']:,} to validate; "
        f"{result.attrs['provenance']['world_size']} ranks, batch {values['batch_size']} a rank, "
        f"{values['grad_accum_steps']} micro-batches a step, SGD {values['learning_rate']:g}/{values['momentum']:g}. "
        f"Lines: mean of {seeds} seed{'s' * (seeds > 1)}; bands: ± standard deviation. Loss and batch accuracy: of "
        "rank 0, as published."
    )
    return style.add_caption(figure, text, [result])


def costs(result: pd.DataFrame, implementation: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training time of all epochs in seconds, and peak memory in bytes: a row for each seed, a column for each rank."""
    seconds, allocated = (
        pick(result, distributed_impl=implementation, quantity=quantity).groupby(["seed", "rank"])["value"]
        for quantity in ("train time", "peak memory")
    )
    return seconds.sum().unstack(), allocated.max().unstack()


def own(result: pd.DataFrame) -> pd.DataFrame:
    """The same columns, means over the seeds: a row for each implementation and rank."""
    rows = []
    for name in titles_of(result):
        seconds, allocated = (of_seeds.mean() for of_seeds in costs(result, name))
        ends = [f"{last(result, name, 'loss').mean():.4f}", f"{last(result, name, 'accuracy').mean():.7f}"]
        rows += [[name, str(rank), f"{seconds[rank]:.3f}", f"{allocated[rank]:.0f}", *ends] for rank in seconds.index]
    return pd.DataFrame(rows, columns=["distributed_impl", *HEADERS, "loss", "acc"])


def last(result: pd.DataFrame, implementation: str, quantity: str) -> pd.Series:
    """The quantity in the last epoch, for each seed."""
    return curves(result, implementation, QUANTITIES[quantity]).iloc[:, -1]


def beside_published(here: pd.DataFrame) -> list[list[str]]:
    """A row for each number, in the columns BESIDE. More ranks than published have nothing beside them."""
    there = load_reference(PROGRAM, as_printed=True)
    both = here.merge(there, on=["distributed_impl", "Rank"], how="left", suffixes=("", " published")).fillna("")
    of_rank, rows = {"Time": "time [s]", "Max Memory Allocated": "memory [bytes]"}, []
    for implementation, block in both.groupby("distributed_impl", sort=False):
        ranks = block.to_dict(orient="records")
        cells = [(row, column, f"rank {row['Rank']}: {name}") for row in ranks for column, name in of_rank.items()]
        for row, column, name in (*cells, (ranks[0], "loss", "loss"), (ranks[0], "acc", "accuracy")):
            value, there = row[column], row[f"{column} published"]
            ratio = f"{float(value) / float(there):.3g}" if there else ""
            rows.append([implementation, name, value, there, ratio])
    return rows


def loop_table(result: pd.DataFrame) -> Table:
    """The numbers beside the published ones."""
    here, data, count = own(result), result.attrs["parameters"]["data"], result["seed"].nunique()
    rows = beside_published(here)
    other = "" if as_published(result) else " This is another training than the published one: see its parameters."
    note = (
        f"Data: {data}. Means over {count} seed{'s' if count > 1 else ''}. Time: all epochs' training; the "
        "published one includes reading the data set and one validation. Memory: the most that tensors take at once. "
        "Loss and acc: as published, rank 0's running training loss and the accuracy of the batch it was last reported "
        f"in. Published: 2 RTX A4000, one run.{other} {COMMANDS}"
    )
    return Table(f"Training loop benchmark ({data})", BESIDE, rows, [result], note)


def spread(values: pd.Series, digits: int = 4) -> str:
    deviation = f" ± {values.std():.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{deviation}"


def convergence(result: pd.DataFrame) -> list[str]:
    """How far apart both implementations end, in words."""
    lines = []
    for what in QUANTITIES:
        own, published = (last(result, name, what) for name in ("custom", "pytorch"))
        lines.append(f"{what}: custom - pytorch = {own.mean() - published.mean():+.4f}.")
    return lines


def against(means: pd.DataFrame, source: str) -> str:
    """`means`: time and memory of each implementation."""
    time, memory = 100 * (means.loc["pytorch"] / means.loc["custom"] - 1)
    return f"pytorch against custom, {source}: time {time:+.1f} %, memory {memory:+.1f} %."


def seeds_table(result: pd.DataFrame) -> Table:
    """A row for each implementation, and whether they differ."""
    rows, means, values = [], {}, result.attrs["parameters"]
    for name in titles_of(result):
        seconds, allocated = (of_ranks.mean(axis="columns") for of_ranks in costs(result, name))
        means[name] = [seconds.mean(), allocated.mean()]
        ends = [spread(last(result, name, what)) for what in QUANTITIES]
        rows.append([name, str(len(seconds)), *ends, spread(seconds, 2), spread(allocated / 2**20, 2)])
    lines = []
    if len(rows) > 1:
        there = load_reference(PROGRAM).groupby("distributed_impl")[HEADERS[1:]].mean()
        here = pd.DataFrame.from_dict(means, orient="index")
        lines = [*convergence(result), against(here, "here"), against(there, "published")]
    columns = ["implementation", "seeds", *QUANTITIES, "time [s]", "memory [MiB]"]
    note = (
        f"Data: {values['data']}. Mean ± standard deviation over the seeds, after {values['epochs']} epochs. Loss and "
        "accuracy: rank 0's running training loss and last batch, as published; validation: accuracy over all its "
        "images."
    )
    title = f"Do both implementations converge to the same? ({values['data']})"
    return Table(title, columns, rows, [result], " ".join([*lines, note]))


def make(files: list[Path]) -> Iterator[tuple[str, Figure | Table]]:
    for result in (load(file, PROGRAM) for file in files):
        yield name_of(PROGRAM, result), draw(result)
        yield name_of(PROGRAM, result), loop_table(result)
        yield name_of(f"{PROGRAM}.seeds", result), seeds_table(result)


main = script.main(__name__, __doc__, make)
