"""Marks for tests of what is built: by stage, and drawn by the commit."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

from tools.checking.context import graded_stages
from tools.checking.in_place import InPlace
from tools.grading.released import handed_out
from tools.grading.stages import Stage

Entry = TypeVar("Entry", bound=InPlace)
STAGES = graded_stages()
each_stage = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)


def builds(stage: Stage, *impls: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.builds(f"tests_{stage.name}", *(f"{impl}_{stage.name}" for impl in impls))]


def each_stage_built(*impls: str) -> pytest.MarkDecorator:
    params = [pytest.param(stage, id=stage.name, marks=builds(stage, *impls)) for stage in STAGES]
    return pytest.mark.parametrize("stage", params)


def params(entries: Iterable[Entry], plain: Sequence[Entry]) -> list[object]:
    """Parameters of mutants or variants, by name; those that are not in `plain` are slow."""
    return [
        pytest.param(
            entry,
            id=f"{entry.stage.name}-{entry.name}",
            marks=[*builds(entry.stage, "solutions"), *([] if entry in plain else [pytest.mark.slow])],
        )
        for entry in entries
    ]


def drawn(entries: Sequence[Entry], count: int) -> list[Entry]:
    """So many of them, by the commit: the same in each run of it, and in each of pytest-xdist's workers."""
    what = f"{handed_out()} {entries[0].stage.name} {entries[0].kind}"
    return random.Random(what).sample(entries, min(count, len(entries)))
