"""Other correct solutions get full marks: three of them, drawn; all of them with ALL=1."""

from __future__ import annotations

import pytest

from tests.lab.marks import STAGES, drawn, params
from tools.checking.context import Context
from tools.checking.in_place import Variant, try_variant, variants_of
from tools.grading.running.runner import RunOptions

ALL = [variant for stage in STAGES for variant in variants_of(stage)]
DRAWN = drawn(ALL, 3)


@pytest.mark.parametrize("variant", params(ALL, DRAWN))
def test_variant(variant: Variant, context: Context, activity: None) -> None:
    if failure := try_variant(context, variant, RunOptions(context.seed)):
        pytest.fail(failure, pytrace=False)
