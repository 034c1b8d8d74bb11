"""Where numbers come from, in words: the line under figures and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from figures.lib.result_files import Result, ResultError


def in_words(results: list[Result]) -> str:
    """The line for the results of one figure or table, which must be of one implementation and preset."""
    for field in ("implementation", "preset"):
        different = list(dict.fromkeys(result.provenance[field] for result in results))
        if len(different) > 1:
            raise ResultError(f"the files mix {field}: {', '.join(different)}; give files that agree in it")
    dates = sorted({result.provenance["date"][:10] for result in results})
    parts = [
        _each(results, _machine),
        _each(results, lambda provenance: f"torch {provenance['torch']}, {provenance['backend']}"),
        _each(results, lambda provenance: f"{provenance['implementation']}, {provenance['preset']} preset"),
        "seed " + _each(results, lambda provenance: str(provenance["seed"])),
        "commit " + _each(results, lambda provenance: _short(provenance["commit"])),
        " to ".join(dict.fromkeys((dates[0], dates[-1]))),
    ]
    return " · ".join(parts)


def _each(results: list[Result], say: Callable[[dict[str, Any]], str]) -> str:
    """What `say` returns for each result, but once if it is the same for all."""
    return " and ".join(dict.fromkeys(say(result.provenance) for result in results))


def _short(commit: str) -> str:
    """Eight digits, and whether files had been changed since."""
    digits, dash, dirty = commit.partition("-")
    return digits[:8] + dash + dirty


def _machine(provenance: dict[str, Any]) -> str:
    device = provenance["gpu"] if provenance["device"] == "cuda" else provenance["cpu"]
    return f"{device}, {provenance['cores']} cores"
