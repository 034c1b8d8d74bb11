"""The cost of all-reduces in the alpha-beta model: a message of n bytes takes alpha + n * beta, and each rank has one
outgoing and one incoming port, which work at the same time."""

from __future__ import annotations

import math

ALGORITHMS = ("ring", "butterfly", "recursive doubling", "tree")


def messages(algorithm: str, world: int) -> tuple[int, float]:
    """The number of consecutive messages, and the part of the tensor in each."""
    if world == 1:
        return 0, 1
    below, above = math.floor(math.log2(world)), math.ceil(math.log2(world))
    return {
        "ring": (2 * (world - 1), 1 / world),
        "butterfly": (2 * (world - 1), 1 / world),
        "recursive doubling": (below if below == above else below + 2, 1),
        "tree": (2 * above, 1),
    }[algorithm]


def formula_seconds(algorithm: str, world: int, size: float, network: dict[str, float]) -> float:
    """Exact if the world size divides the number of elements."""
    count, part = messages(algorithm, world)
    return 1e-9 * count * (network["alpha_ns"] + part * size * network["beta_ns_per_byte"])


def crossover(one: str, other: str, world: int, network: dict[str, float]) -> float | None:
    """The bytes for which two all-reduces take equally long; None if one is never slower."""
    (count, part), (other_count, other_part) = messages(one, world), messages(other, world)
    latencies, bytes_moved = other_count - count, count * part - other_count * other_part
    if latencies * bytes_moved <= 0 or not network["beta_ns_per_byte"]:
        return None
    return latencies * network["alpha_ns"] / (bytes_moved * network["beta_ns_per_byte"])
