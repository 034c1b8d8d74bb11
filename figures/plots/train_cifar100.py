"""Draws loss and accuracy over the epochs of training on CIFAR-100, for both implementations and several seeds.

Reads a result file of the benchmark train_cifar100. Published end points are drawn if the training was the published
one: of the same images, in the same batches.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from figures.lib import script, style
from figures.lib.train_cifar100_runs import PROGRAM, PUBLISHED_RUN, Trainings, load_published, load_trainings

COLOURS = {"selfmade": style.BLUE, "pytorch": style.VERMILION}
DASHES = {"selfmade": "-", "pytorch": "--"}
MARKER_SIZES = {"selfmade": 4.2, "pytorch": 2.0}  # so that both are visible where they agree
PANELS = {"running loss": 1, "batch accuracy": 100, "validation accuracy": 100}  # each with its unit's factor
LABELS = {
    "running loss": "running training loss",
    "batch accuracy": "last batch's accuracy [%]",
    "validation accuracy": "validation accuracy [%]",
}
PUBLISHED = {"marker": "D", "markersize": 4.5, "markerfacecolor": "white", "linestyle": "none", "zorder": 5}
HEIGHT = 3.43  # inches


def draw_panel(axes: Axes, trainings: Trainings, quantity: str) -> None:
    """Draws a line at the mean over the seeds, in a band of one standard deviation on either side."""
    epochs = np.arange(1, trainings.epochs + 1)
    for implementation in trainings.implementations:
        colour = COLOURS[implementation]
        curves = PANELS[quantity] * trainings.curves(implementation, quantity)
        mean = curves.mean(axis=0)
        marker = "o" if trainings.epochs < 8 else ""
        size = MARKER_SIZES[implementation]
        axes.plot(epochs, mean, DASHES[implementation], color=colour, linewidth=1.3, marker=marker, markersize=size)
        if len(curves) > 1:
            deviation = curves.std(axis=0, ddof=1)
            axes.fill_between(epochs, mean - deviation, mean + deviation, color=colour, alpha=0.22, linewidth=0)
    axes.set_title(LABELS[quantity], loc="left")
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.grid(axis="y")


def draw_published(panels: dict[str, Axes]) -> None:
    for implementation, published in load_published().items():
        ends = {"running loss": float(published.loss), "batch accuracy": 100 * float(published.accuracy)}
        for quantity, end in ends.items():
            epoch = PUBLISHED_RUN["epochs"]
            panels[quantity].plot([epoch], [end], color=COLOURS[implementation], **PUBLISHED)


def add_legend(figure: Figure, trainings: Trainings) -> None:
    handles = [
        Line2D([], [], color=COLOURS[name], linestyle=DASHES[name], linewidth=1.3, label=trainings.name(name))
        for name in trainings.implementations
    ]
    if trainings.as_published:
        handles.append(Line2D([], [], color="#555555", label="published, of the same colour (2 GPUs)", **PUBLISHED))
    figure.legend(handles=handles, loc="outside upper left", fontsize=7, handlelength=2.6)
    top = 1 - 0.08 / figure.get_figheight()
    figure.text(0.99, top, f"{trainings.data} data", ha="right", va="top", fontsize=8, fontweight="bold")


def add_caption(figure: Figure, trainings: Trainings) -> None:
    values = trainings.result.parameters
    count = len(trainings.seeds)
    lines = f"Lines: mean of {count} seeds, bands: ± their standard deviation." if count > 1 else "One seed."
    published = " ".join(
        f"{name} {one.loss} and {one.accuracy} ({256 * float(one.accuracy):.0f} of 256 images);"
        for name, one in load_published().items()
    ).rstrip(";")
    drawn = "" if trainings.as_published else ": another training, not drawn"
    style.add_caption(
        figure,
        f"Data: {trainings.data}, {values['train_size']:,} images to train with, {values['test_size']:,} to validate. "
        f"{trainings.ranks} ranks, batch {values['batch_size']} a rank, {values['grad_accum_steps']} micro-batches a "
        f"step, SGD {values['learning_rate']:g}/{values['momentum']:g}.\n{lines} Equal seeds: equal weights, "
        "images and dropout.\nLoss and batch accuracy: rank 0's, in the last micro-batch of an epoch that the "
        f"published program reports, as it computes them.\nPublished (CIFAR-100, 16 epochs, 2 RTX A4000{drawn}): "
        f"loss and accuracy of\n{published}",
        [trainings.result],
    )


def draw(trainings: Trainings) -> Figure:
    figure, axes = style.panels(HEIGHT, 1, len(PANELS))
    panels = dict(zip(PANELS, axes))
    for quantity, panel in panels.items():
        draw_panel(panel, trainings, quantity)
    if trainings.as_published:
        draw_published(panels)
    add_legend(figure, trainings)
    add_caption(figure, trainings)
    return figure


main = script.main(__name__, __doc__, script.of_each(load_trainings, draw, PROGRAM))
