"""The link that a result was measured on, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def link_of(parameters: Mapping[str, Any]) -> str:
    rate, latency = parameters["rate_gbit"], parameters["latency_us"]
    limits = [f"{rate:g} Gbit/s"] if rate else []
    limits += [f"{latency:g} µs a message"] if latency else []
    return f"a link limited to {' and '.join(limits)}" if limits else "the machine's own link"
