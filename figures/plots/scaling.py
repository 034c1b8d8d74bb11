"""Draws weak scaling on the simulated cluster: efficiency over GPUs, and the best size of a bucket beside b*.

Reads one result file of the benchmark scaling.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from figures.lib import held_out, script, style, suite_data
from figures.lib.reference_data import load_reference
from figures.lib.result_files import Result, ResultError
from figures.lib.training_times import size_in_words

PROGRAM = "scaling"
HARDWARE = ("gpu", "gpus_per_node", "link", "link_between", "efficiency")
PARAMETERS = ("model", "parameters", "gradient_bytes", "batch_size", "sequence_length", "cap_bytes", *HARDWARE)
COMPUTE = "compute only"
LOOKS = {  # colour, marker
    "naive": (style.VERMILION, "o"),
    "flat": (style.ORANGE, "s"),
    "overlapped": (style.GREEN, "^"),
    "bucketed": (style.BLUE, "D"),
    "Reducer": (style.PURPLE, "x"),
}
NEARLY_BEST = 1.005  # of the best step
HEIGHT = 3.4  # inches

Steps = dict[int, float]  # seconds, by GPUs or by bytes of a bucket


def steps_of(result: Result) -> dict[str, Steps]:
    """The steps of each variant by GPUs; of computing alone on one GPU, too."""
    steps = result.first_values("s", "variant", "world_size", quantity="step")
    if not steps.get(COMPUTE):
        raise ResultError(f"{result.file}: lacks {COMPUTE}; run the benchmark {PROGRAM} again")
    return steps


def efficiencies(result: Result) -> dict[str, Steps]:
    """In percent: a step of computing alone on one GPU, over that on so many GPUs, each with as large a batch."""
    steps = steps_of(result)
    alone = steps.pop(COMPUTE)[1]
    return {name: {gpus: 100 * alone / step for gpus, step in steps[name].items()} for name in LOOKS if name in steps}


def steps_by_cap(result: Result) -> dict[int, Steps]:
    """By GPUs, then by the cap in bytes; empty without stage 03."""
    return result.first_values("s", "world_size", "cap_bytes", quantity="step by cap")


def best_caps(steps: Steps) -> tuple[int, int, int]:
    """The cap of the shortest step, and the smallest and largest that are nearly as good."""
    shortest = min(steps.values())
    good = [cap for cap, step in steps.items() if step <= NEARLY_BEST * shortest]
    return min(steps, key=lambda cap: (steps[cap], cap)), min(good), max(good)


def draw_efficiencies(axes: Axes, result: Result) -> None:
    for name, values in efficiencies(result).items():
        colour, marker = LOOKS[name]
        axes.plot(*zip(*sorted(values.items())), color=colour, marker=marker, markersize=3.5, linewidth=1, label=name)
    held = [row for row in held_out.rows() if row.source == "suite" and row.metric == held_out.STEP]
    alone = suite_data.published_medians("resnet50")[0]
    axes.plot([row.gpus for row in held], [100 * alone / row.published for row in held], color=style.GREY, marker="d",
              markersize=3.5, linestyle="none", label="published: PyTorch's suite, 1 MB")  # fmt: skip
    percents = [100 * float(row["8"]) / (8 * float(row["1"])) for row in load_reference(PROGRAM).rows]
    axes.plot([8] * len(percents), percents, color="black", marker="+", markersize=5, linestyle="none",
              label="published: NVIDIA, 8 GPUs")  # fmt: skip
    axes.set_ylim(0, 105)
    axes.set_ylabel("efficiency [%]")
    axes.set_title("weak scaling", loc="left")
    axes.legend(loc="lower left", fontsize=7)


def draw_caps(axes: Axes, result: Result, by_gpus: dict[int, Steps]) -> None:
    gpus = sorted(by_gpus)
    best, low, high = zip(*(best_caps(by_gpus[count]) for count in gpus))
    formula = [result.values("bytes", quantity="best cap by formula", world_size=count)[0] for count in gpus]
    axes.vlines(gpus, low, high, color=style.SKY, linewidth=3, label=f"within {NEARLY_BEST - 1:.1%} of the best")
    axes.plot(gpus, best, color=style.BLUE, marker="D", markersize=3.5, linestyle="none", label="best cap")
    axes.plot(gpus, formula, color="black", linewidth=1, linestyle=(0, (4, 3)), label="b* = √(s·w·o)")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda size, _: size_in_words(size)))
    axes.set_title("the size of a bucket", loc="left")
    axes.legend(loc="lower right", fontsize=7)


def finish_axes(axes: Axes, gpus: list[int]) -> None:
    style.log_axis(axes, gpus[:: -max(1, len(gpus) // 6)], "{:,.0f}".format)
    axes.set_xlabel("GPUs")
    axes.grid()


def caption(result: Result) -> str:
    values = result.parameters
    return (
        f"{values['model']}, {values['parameters'] / 1e6:,.0f} M parameters, {values['batch_size']} sequences of "
        f"{values['sequence_length']} tokens on each GPU; {values['gpu']} at {values['efficiency']:.0%} of its peak, "
        f"{values['gpus_per_node']} in a machine by {values['link']}, machines by {values['link_between']}. Simulated "
        "cluster: time alone, whether or not the code's values are right. "
        f"Left: buckets of {size_in_words(values['cap_bytes'])}; a step that only computes, on one GPU, over the step. "
        "Points are of ResNet-50 on other machines. Right: o and w of b* are of the topology's all-reduce of nothing, "
        "and of all gradients; where computing hides communication, any size will do."
    )


def draw(result: Result) -> Figure:
    by_gpus = steps_by_cap(result)
    figure, (panels,) = style.panels(HEIGHT, 1, 2 if by_gpus else 1, squeeze=False)
    draw_efficiencies(panels[0], result)
    finish_axes(panels[0], sorted({gpus for steps in steps_of(result).values() for gpus in steps}))
    if by_gpus:
        draw_caps(panels[1], result, by_gpus)
        finish_axes(panels[1], sorted(by_gpus))
    style.add_caption(figure, caption(result), [result])
    return figure


main = script.main(__name__, __doc__, script.one_each(PROGRAM, PARAMETERS, draw))
