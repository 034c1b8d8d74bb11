"""Draws loss and accuracy over the epochs of training on CIFAR-100, for both implementations and several seeds.

Reads a result file of the benchmark train_cifar100. Published end points are drawn if the training was the published
one: of the same images, in the same batches.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from figures.lib import script, style
from figures.lib.reference_data import load_reference
from figures.lib.train_cifar100_runs import PROGRAM, PUBLISHED_RUN, as_published, curves, implementations_of, name_of

COLOURS = {"selfmade": style.BLUE, "pytorch": style.VERMILION}
DASHES = {"selfmade": "-", "pytorch": "--"}
MARKER_SIZES = {"selfmade": 4.2, "pytorch": 2.0}  # so that both are visible where they agree
# By quantity: the panel's title, its unit's factor, and the published column.
PANELS = {
    "running loss": ("running training loss", 1, "loss"),
    "batch accuracy": ("last batch's accuracy [%]", 100, "acc"),
    "validation accuracy": ("validation accuracy [%]", 100, ""),
}
PUBLISHED = {"marker": "D", "markersize": 4.5, "markerfacecolor": "white", "linestyle": "none", "zorder": 5}
HEIGHT = 3.43  # inches


def published_ends() -> pd.DataFrame:
    return load_reference(PROGRAM).drop_duplicates("distributed_impl").set_index("distributed_impl")


def draw_panel(axes: Axes, result: pd.DataFrame, quantity: str) -> None:
    """Draws a line at the mean over the seeds, in a band of one standard deviation on either side."""
    title, scale, column = PANELS[quantity]
    for implementation in implementations_of(result):
        colour = COLOURS[implementation]
        values = scale * curves(result, implementation, quantity)
        mean, epochs = values.mean(), values.columns + 1
        marker = "o" if len(epochs) < 8 else ""
        size = MARKER_SIZES[implementation]
        axes.plot(epochs, mean, DASHES[implementation], color=colour, linewidth=1.3, marker=marker, markersize=size)
        if len(values) > 1:
            deviation = values.std()
            axes.fill_between(epochs, mean - deviation, mean + deviation, color=colour, alpha=0.22, linewidth=0)
    if column and as_published(result):
        for implementation, end in (scale * published_ends()[column]).items():
            axes.plot([PUBLISHED_RUN["epochs"]], [end], color=COLOURS[implementation], **PUBLISHED)
    axes.set_title(title, loc="left")
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.grid(axis="y")


def caption(result: pd.DataFrame) -> str:
    values, count = result.attrs["parameters"], result["seed"].nunique()
    lines = f"Lines: mean of {count} seeds, bands: ± their standard deviation." if count > 1 else "One seed."
    ends = published_ends().iterrows()
    published = "; ".join(f"{name} {one['loss']} and {one['acc']}" for name, one in ends)
    drawn = "" if as_published(result) else ", not drawn: another training"
    return (
        f"{values['train_size']:,} images to train with, {values['test_size']:,} to validate. "
        f"{result.attrs['provenance']['world_size']} ranks, batch {values['batch_size']} a rank, "
        f"{values['grad_accum_steps']} micro-batches a step, SGD {values['learning_rate']:g}/{values['momentum']:g}. "
        f"{lines} Loss and batch accuracy: rank 0's, in the last micro-batch of an epoch that the published program "
        f"reports. Published (CIFAR-100, 16 epochs, 2 RTX A4000{drawn}): loss and accuracy of {published}."
    )


def draw(result: pd.DataFrame) -> Figure:
    figure, panels = style.panels(HEIGHT, 1, len(PANELS))
    for axes, quantity in zip(panels, PANELS):
        draw_panel(axes, result, quantity)
    handles = [
        Line2D([], [], color=COLOURS[name], linestyle=DASHES[name], linewidth=1.3, label=name_of(name, result))
        for name in implementations_of(result)
    ]
    if as_published(result):
        handles.append(Line2D([], [], color="#555555", label="published, of the same colour (2 GPUs)", **PUBLISHED))
    figure.legend(handles=handles, loc="outside upper left", fontsize=7, handlelength=2.6)
    data, top = result.attrs["parameters"]["data"], 1 - 0.08 / HEIGHT
    figure.text(0.99, top, f"{data} data", ha="right", va="top", fontsize=8, fontweight="bold")
    style.add_caption(figure, caption(result), [result])
    return figure


main = script.main(__name__, __doc__, script.one_each(PROGRAM, draw))
