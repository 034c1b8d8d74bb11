"""The takeaways of the experiment compare_ddp, in the sentences that its authors published: computed from the latencies
alone, so that other numbers give other sentences.

A difference counts if it exceeds the spread of the iterations: from their median to their 90th percentile, in percent
of core's median; the larger one of the variants compared, and the median over the buffer sizes. All differences are of
medians (p50).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from itertools import combinations
from math import sqrt

import numpy as np

from figures.lib.ddp_comparison import ASYNC, CORE, EQUAL_BYTES, SYNC, Comparison, M, delta, variants_of

FEWEST_SIZES = 4  # to speak of a trend
SIGNIFICANT = 1.96  # standard deviations of the rank correlation of independent values


def tolerance(comparison: Comparison, direction: str, variants: tuple[str, ...]) -> float:
    """The difference that does not count, in percent of core's median."""
    return statistics.median(
        max(latencies[variant].p90 - latencies[variant].p50 for variant in variants) / latencies[CORE].p50 * 100
        for latencies in (cell[direction] for cell in comparison.values())
    )


def slowdowns(comparison: Comparison, direction: str, variant: str, elements: int) -> dict[int, float]:
    """How much longer a variant takes than core, in percent, by buffer size. Sizes that hold the whole model are one
    case: the smallest of them, with their mean."""
    by_case = defaultdict(list)
    whole = min((size for size in comparison if size * M >= elements), default=None)
    for size, cell in comparison.items():
        case = whole if whole is not None and size >= whole else size
        by_case[case].append(delta(cell[direction], variant))
    return {size: statistics.fmean(values) for size, values in by_case.items()}


def rank_correlation(values: dict[int, float]) -> float:
    """Spearman's rank correlation of the keys and the values; 0 if the values are all equal."""
    ranks = [_ranks(list(each)) for each in (values.keys(), values.values())]
    if any(np.ptp(each) == 0 for each in ranks):
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: list[float]) -> list[float]:
    """The values' ranks; equal values share the mean of their ranks."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def percent(value: float) -> str:
    """20 %, 0.4 %: without a sign."""
    value = abs(value)
    return f"{value:.0f} %" if value >= 0.95 else f"{value:.1f} %"


def compared(value: float, allowed: float) -> str:
    """A difference in words, to follow the variant's name."""
    if abs(value) <= allowed:
        return "on par with"
    return f"{percent(value)} {'slower' if value > 0 else 'faster'} than"


def spanned(values: list[float], allowed: float) -> str:
    low, high = min(values), max(values)
    if max(abs(low), abs(high)) <= allowed:
        return "on par with"
    if low < 0 < high:
        return f"between {percent(low)} faster and {percent(high)} slower than"
    near, far = sorted((low, high), key=abs)
    word = "slower" if far > 0 else "faster"
    same = percent(near) == percent(far)
    return f"{percent(far)} {word} than" if same else f"[{percent(near)} - {percent(far)}] {word} than"


def changes(values: dict[int, float], allowed: float) -> int:
    """How a slowdown changes with the buffer size: 1 if it grows, -1 if it shrinks, 0 if neither."""
    spread = max(values.values()) - min(values.values())
    correlation = rank_correlation(values)
    if spread <= allowed or abs(correlation) * sqrt(len(values) - 1) <= SIGNIFICANT:
        return 0
    return 1 if correlation > 0 else -1


def trend(values: dict[int, float], allowed: float) -> str:
    """Whether a slowdown depends on the buffer size."""
    if len(values) < FEWEST_SIZES:
        return "buffer sizes are too few to tell whether it depends on them"
    spread = max(values.values()) - min(values.values())
    steady = spread <= max(allowed, abs(statistics.fmean(values.values())) / 2)
    words = {
        1: "more with larger buffers",
        0: "independent of buffer size" if steady else "without a clear trend over buffer sizes",
        -1: "less with larger buffers",
    }
    return f"{words[changes(values, allowed)]} (rank correlation {rank_correlation(values):.2f})"


def forward(comparison: Comparison, variants: list[str]) -> str:
    means = {v: statistics.fmean(delta(cell["forward"], v) for cell in comparison.values()) for v in variants}
    words = {v: compared(mean, tolerance(comparison, "forward", (CORE, v))) for v, mean in means.items()}
    if len(set(words.values())) == 1:
        several = "are" if len(variants) > 1 else "is"
        text = f"In the forward path, {' and '.join(variants)} {several} {words[variants[0]]} core."
    else:
        text = "In the forward path, " + ", ".join(f"{v} is {words[v]} core" for v in variants) + "."
    if len(variants) == 2:
        allowed = tolerance(comparison, "forward", (ASYNC, SYNC))
        text += f" sync is {compared(means[SYNC] - means[ASYNC], allowed)} async."
    return text


def order_at(comparison: Comparison, size: int, variants: list[str]) -> str:
    """The order of the variants' backward, fastest first, such as "core > async = sync"."""
    latencies = comparison[size]["backward"]
    ranked = sorted(variants, key=lambda variant: latencies[variant].p50)
    text = ranked[0]
    for faster, slower in zip(ranked, ranked[1:]):
        text += f" {'>' if order(comparison, size, faster, slower) else '='} {slower}"
    return text


def order(comparison: Comparison, size: int, one: str, other: str) -> int:
    """1 if the backward of `one` is faster than that of `other`, -1 if it is slower, 0 if they do not differ."""
    latencies = comparison[size]["backward"]
    difference = delta(latencies, other) - delta(latencies, one)
    if abs(difference) <= tolerance(comparison, "backward", (one, other)):
        return 0
    return 1 if difference > 0 else -1


def ranking(comparison: Comparison, variants: list[str]) -> str:
    means = {v: statistics.fmean(delta(cell["backward"], v) for cell in comparison.values()) for v in variants}
    ranked = sorted(variants, key=lambda variant: means[variant])
    orders = {pair: {order(comparison, size, *pair) for size in comparison} for pair in combinations(ranked, 2)}
    if any(-1 in found for found in orders.values()):
        sizes = defaultdict(list)
        for size in comparison:
            sizes[order_at(comparison, size, variants)].append(size)
        text = "; ".join(f"{text} at {in_words(there)}" for text, there in sizes.items())
        return f"In backward, the speed ranking changes with the buffer size: {text}."
    text = ranked[0]
    for pair in zip(ranked, ranked[1:]):
        text += f" {'>' if 1 in orders[pair] else '='} {pair[1]}"
    return f"In backward, speed ranking: {text}."


def in_words(sizes: list[int]) -> str:
    return ", ".join(f"{size}M" for size in sizes)


def asynchronous(comparison: Comparison, elements: int) -> str:
    values = slowdowns(comparison, "backward", ASYNC, elements)
    allowed = tolerance(comparison, "backward", (CORE, ASYNC))
    text = f"async - backward is {spanned(list(values.values()), allowed)} core, {trend(values, allowed)}."
    if len(values) >= FEWEST_SIZES and changes(values, allowed) > 0:
        text += " It is expected: larger buffers are fewer, and leave less to reduce beside backward."
    return text


def equal_from(comparison: Comparison) -> int | None:
    """The buffer size from which on async and sync do not differ in backward; None if they differ at the last."""
    equal = None
    for size in sorted(comparison, reverse=True):
        if order(comparison, size, ASYNC, SYNC):
            break
        equal = size
    return equal


def no_difference(comparison: Comparison, elements: int) -> str:
    total = f"total elements ({elements / M:.2f}M)"
    whole = [size for size in comparison if size * M >= elements]
    equal = equal_from(comparison)
    if equal is None:
        text = f"async and sync differ at every size up to the largest, {max(comparison)}M"
        text += f", which is larger than {total}." if whole else f"; none is larger than {total}."
    elif equal == min(comparison):
        text = f"No difference between async and sync at any buffer size, {in_words(list(comparison))}."
    else:
        text = f"No difference between async and sync from {equal}M on"
        if whole and equal == min(whole):
            text += f": once buffer size is larger than {total}, such as {in_words(whole)}."
        elif equal * M < elements:
            text += f", though a buffer of that size is smaller than {total}."
        else:
            text += f", and not from {min(whole)}M on, the first that is larger than {total}."
    return text


def synchronous(comparison: Comparison, elements: int) -> str:
    values = slowdowns(comparison, "backward", SYNC, elements)
    allowed = tolerance(comparison, "backward", (CORE, SYNC))
    mean = compared(statistics.fmean(values.values()), allowed)
    return f"sync - backward is {mean} core, {trend(values, allowed)}."


def equal_bytes(comparison: Comparison, elements: int) -> str:
    """Not published: the comparison if core's buckets have as many bytes as the others'."""
    values = slowdowns(comparison, "backward", EQUAL_BYTES, elements)
    allowed = tolerance(comparison, "backward", (CORE, EQUAL_BYTES))
    text = f"core with buckets of equal bytes - backward is {spanned(list(values.values()), allowed)} core as published"
    return f"{text}, {trend(values, allowed)}."


def takeaways(comparison: Comparison, elements: int) -> dict[str, str]:
    """All takeaways that the measured variants allow, by topic. `elements` is the size of the whole model."""
    there = variants_of(comparison)
    stage = [variant for variant in (ASYNC, SYNC) if variant in there]
    found = {}
    if stage:
        found["forward"] = forward(comparison, stage)
        found["ranking"] = ranking(comparison, [CORE, *stage])
    if ASYNC in there:
        found["async"] = asynchronous(comparison, elements)
    if len(stage) == 2:
        found["no difference"] = no_difference(comparison, elements)
    if SYNC in there:
        found["sync"] = synchronous(comparison, elements)
    if EQUAL_BYTES in there:
        found["equal bytes"] = equal_bytes(comparison, elements)
    return found
