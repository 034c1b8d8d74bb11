"""Draws weak scaling on the simulated cluster: efficiency over GPUs, and the best size of a bucket beside b*.

Reads one result file of the benchmark `cluster scaling`.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from figures.lib import held_out, script, style, suite_data
from figures.lib.result_files import load_reference, pick

PROGRAM = "scaling"
COMPUTE = "compute only"
LOOKS = {  # colour, marker
    "naive": (style.VERMILION, "o"),
    "flat": (style.ORANGE, "s"),
    "overlapped": (style.GREEN, "^"),
    "bucketed": (style.BLUE, "D"),
    "Reducer": (style.PURPLE, "x"),
}
NEARLY_BEST = 1.005  # of the best step


def efficiencies(result: pd.DataFrame) -> pd.DataFrame:
    """In percent, by GPUs, a column for each variant: a step of computing alone on one GPU, over that on so many GPUs,
    each with as large a batch."""
    steps = pick(result, quantity="step").pivot(index="world_size", columns="variant", values="value")
    return 100 * steps[COMPUTE].dropna().iloc[0] / steps.drop(columns=COMPUTE)


def best_caps(steps: pd.Series) -> tuple[int, int, int]:
    """Of steps by cap: the cap of the shortest step, and the smallest and largest that are nearly as good."""
    good = steps[steps <= NEARLY_BEST * steps.min()].index
    return steps.sort_index().idxmin(), good.min(), good.max()


def draw_efficiencies(axes: Axes, result: pd.DataFrame) -> None:
    shown = efficiencies(result)
    for name, (colour, marker) in LOOKS.items():
        if name in shown:
            axes.plot(shown[name].dropna(), color=colour, marker=marker, markersize=3.5, linewidth=1, label=name)
    suite = pick(held_out.rows(), source="suite", metric=held_out.STEP)
    alone = pick(suite_data.published_rounds(), model="resnet50")[50].iloc[0]
    axes.plot(suite["gpus"], 100 * alone / suite["published"], color=style.GREY, marker="d", markersize=3.5,
              linestyle="none", label="published: PyTorch's suite, 1 MB")  # fmt: skip
    rates = load_reference(PROGRAM)
    axes.plot([8] * len(rates), 100 * rates["8"] / (8 * rates["1"]), color="black", marker="+", markersize=5,
              linestyle="none", label="published: NVIDIA, 8 GPUs")  # fmt: skip
    axes.legend(loc="lower left", fontsize=7)
    finish_axes(axes, shown.index, "weak scaling")


def draw_caps(axes: Axes, by_cap: pd.DataFrame, formula: pd.DataFrame) -> None:
    caps = {gpus: best_caps(rows.set_index("cap_bytes")["value"]) for gpus, rows in by_cap.groupby("world_size")}
    best, low, high = zip(*caps.values())
    axes.vlines(list(caps), low, high, color=style.SKY, linewidth=3, label=f"within {NEARLY_BEST - 1:.1%} of the best")
    axes.plot(list(caps), best, color=style.BLUE, marker="D", markersize=3.5, linestyle="none", label="best cap")
    axes.plot(formula.set_index("world_size")["value"][list(caps)], color="black", linewidth=1, linestyle=(0, (4, 3)),
              label="b* = √(s·w·o)")  # fmt: skip
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda size, _: style.size_in_words(size)))
    axes.legend(loc="lower right", fontsize=7)
    log_gpus(axes, pd.Index(caps))
    style.dress(axes, "the size of a bucket", "GPUs")


def log_gpus(axes: Axes, gpus: pd.Index) -> None:
    style.log_axis(axes, gpus[:: -max(1, len(gpus) // 6)], "{:,.0f}".format)


def finish_axes(axes: Axes, gpus: pd.Index, title: str) -> None:
    """Of efficiencies."""
    log_gpus(axes, gpus)
    axes.set_ylim(0, 105)
    style.dress(axes, title, "GPUs", "efficiency [%]")


def hardware_in_words(result: pd.DataFrame) -> str:
    values = result.attrs["parameters"]
    return (
        f"{values['batch_size']} sequences of {values['sequence_length']} tokens on each GPU; {values['gpu']} at "
        f"{values['efficiency']:.0%} of its peak, {values['gpus_per_node']} in a machine by {values['link']}, machines "
        f"by {values['link_between']}. Simulated cluster."
    )


def draw(result: pd.DataFrame) -> Figure:
    by_cap, values = pick(result, quantity="step by cap"), result.attrs["parameters"]  # of stage 03
    figure, (panels,) = style.panels(3.4, 1, 2 if len(by_cap) else 1, squeeze=False)
    draw_efficiencies(panels[0], result)
    if len(by_cap):
        draw_caps(panels[1], by_cap, pick(result, quantity="best cap by formula"))
    text = (
        f"{values['model']}, {values['parameters'] / 1e6:,.0f} M parameters, {hardware_in_words(result)} Left: a step "
        f"of computing alone on one GPU, over the step, with buckets of {style.size_in_words(values['cap_bytes'])}; "
        "points are of ResNet-50 on other machines. Right: o and w of b* are of the topology's all-reduces."
    )
    return style.add_caption(figure, text, [result])


main = script.main(__name__, __doc__, script.one_each(PROGRAM, draw))
