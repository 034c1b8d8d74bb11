"""Draws what a GPU holds of a large model over the number of GPUs, with stages 03, 06 and 07, beside ZeRO's table 1.

Reads one result file of the benchmark memory_per_gpu.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from figures.lib import script, style
from figures.lib.reference_data import load_reference
from figures.lib.result_files import Result, ResultError

PROGRAM = "memory_per_gpu"
PARAMETERS = ("dtype", "optimizer")
LOOKS = {
    "03_bucketed_ddp": (style.VERMILION, "stage 03"),
    "06_sharded_optimizer": (style.BLUE, "stage 06"),
    "07_fully_sharded": (style.GREEN, "stage 07"),
}
TERMS = {"06_sharded_optimizer": "os+g", "07_fully_sharded": "os+g+p"}  # what they divide, as ZeRO calls it
PUBLISHED = {"os": ("^", "state divided"), "os+g": ("o", "and gradients"), "os+g+p": ("v", "and parameters")}
CARD_GB = 80
HEIGHT = 4.7  # inches

Held = dict[int, float]  # GB, by GPUs


def held_by(result: Result, quantity: str = "held") -> dict[int, dict[str, Held]]:
    """By the model's parameters, then by the stage."""
    found = result.first_values("bytes", "parameters", "stage", "world_size", quantity=quantity)
    if not found:
        raise ResultError(f"{result.file}: lacks what is {quantity}; run the benchmark {PROGRAM} again")
    return {
        parameters: {stage: {gpus: 1e-9 * value for gpus, value in held.items()} for stage, held in stages.items()}
        for parameters, stages in found.items()
    }


def published(parameters: int) -> dict[str, Held]:
    """ZeRO's table 1 for a model of that size, by what is divided; empty if it has none."""
    rows = [row for row in load_reference(PROGRAM).rows if 1e9 * float(row["billions"]) == parameters]
    return {name: {int(row["gpus"]): float(row[name]) for row in rows} for name in PUBLISHED}


def largest_error(by_size: dict[int, dict[str, Held]]) -> float:
    """In percent: of stages 06 and 07 on more than one GPU, from what is published of what they divide, from 1 GB on:
    the table has three digits there."""
    errors = [
        abs(gb / published(parameters)[term][gpus] - 1)
        for parameters, stages in by_size.items()
        for stage, term in TERMS.items()
        for gpus, gb in stages.get(stage, {}).items()
        if gpus > 1 and published(parameters)[term].get(gpus, 0) >= 1
    ]
    return 100 * max(errors, default=0)


def largest_model(most: dict[int, dict[str, Held]]) -> dict[str, dict[int, float]]:
    """Billions of parameters whose step a card holds, by stage and GPUs: the smallest model's bytes each, scaled up."""
    parameters, stages = min(most.items())
    return {
        stage: {gpus: 1e-9 * parameters * CARD_GB / gb for gpus, gb in held.items()} for stage, held in stages.items()
    }


def draw_size(axes: Axes, parameters: int, stages: dict[str, Held]) -> None:
    for stage, held in stages.items():
        colour, name = LOOKS[stage]
        axes.plot(*zip(*sorted(held.items())), color=colour, linewidth=1.2, label=name)
    for name, values in published(parameters).items():
        marker, text = PUBLISHED[name]
        axes.plot(*zip(*sorted(values.items())) if values else ([], []), color="#444444", marker=marker, markersize=3.8,
                  markerfacecolor="white", linestyle="none", label=f"ZeRO: {text}")  # fmt: skip
    axes.axhline(CARD_GB, color=style.GREY, linestyle=":", linewidth=1)
    over_gpus(axes, stages)
    axes.set_title(f"{parameters / 1e9:,g} billion", loc="left")
    axes.set_ylabel("GB on each GPU")


def draw_largest(axes: Axes, most: dict[int, dict[str, Held]]) -> None:
    billions = largest_model(most)
    for stage, largest in billions.items():
        axes.plot(*zip(*sorted(largest.items())), color=LOOKS[stage][0], linewidth=1.2)
    over_gpus(axes, billions)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_locator(FixedLocator([2**power for power in range(12)]))
    axes.set_title(f"the largest model in {CARD_GB} GB", loc="left")
    axes.set_ylabel("billion parameters")


def over_gpus(axes: Axes, by_stage: dict[str, dict[int, float]]) -> None:
    style.log_axis(axes, sorted({gpus for values in by_stage.values() for gpus in values}), base=4)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlabel("GPUs")
    axes.grid()


def draw(result: Result) -> Figure:
    by_size = held_by(result)
    figure, all_panels = style.panels(HEIGHT, len(by_size) // 2 + 1, 2, squeeze=False)
    *panels, last = all_panels.flat
    for axes, parameters in zip(panels, sorted(by_size)):
        draw_size(axes, parameters, by_size[parameters])
    for axes in panels[len(by_size) :]:
        axes.set_axis_off()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=7)
    most = held_by(result, "most")
    draw_largest(last, most)
    within = max(
        most[parameters][stage][gpus] / gb
        for parameters, stages in by_size.items() for stage, held in stages.items() for gpus, gb in held.items()
    )  # fmt: skip
    text = (
        "Bytes between steps of a model of that many parameters in half precision, with AdamW and float32 copies of "
        "the\nparameters, counted while the code ran, on tensors that have shapes and no memory. Activations are not "
        "counted, nor\nin the published table (ZeRO, table 1), from which stages 06 and 07 differ by at most "
        f"{largest_error(by_size):.1f} %: where the table has a\ngradient's N-th, stage 06 has a shard's "
        f"copy. Within a step stages hold up to {within:.1f} times as much."
        f"\nDotted: a card of {CARD_GB} GB. Last: the largest model of which such a card holds a step."
    )
    style.add_caption(figure, text, [result])
    return figure


main = script.main(__name__, __doc__, script.one_each(PROGRAM, PARAMETERS, draw))
