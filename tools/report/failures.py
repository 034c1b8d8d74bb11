"""What `make figures` has failed to make, kept until it is made, so that `make writeup` does not pass over it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from tools.grading.scoring.results import replace_file
from tools.grading.stages import Stage
from tools.report import deliverables


def keep(impl: str, preset: str, tried: set[str], failed: list[str]) -> None:
    """`failed` has a line for each failure, which begins with one of the modules that were tried."""
    left = [line for line in _load(impl, preset) if _module(line) not in tried]
    with contextlib.suppress(OSError):  # a full disk, of which drawing has complained
        _file(impl, preset).parent.mkdir(parents=True, exist_ok=True)
        replace_file(_file(impl, preset), json.dumps([*left, *failed], indent=1).encode() + b"\n")


def of(impl: str, preset: str, stages: list[Stage]) -> list[str]:
    """Those that concern these stages."""
    modules = {drawing.module for drawing in deliverables.DRAWINGS if drawing.is_asked_for_by(stages)}
    return [line for line in _load(impl, preset) if _module(line) in modules]


def _load(impl: str, preset: str) -> list[str]:
    try:
        return [str(line) for line in json.loads(_file(impl, preset).read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []


def _file(impl: str, preset: str) -> Path:
    return deliverables.DATA / f"failed.{impl}.{preset}.json"


def _module(line: str) -> str:
    return line.partition(":")[0]
