"""Other correct solutions get full marks: three of them, drawn, in a plain run; all, in many orders of events, too."""

from __future__ import annotations

import pytest

from tests.lab.marks import STAGES, drawn, params
from tools.checking.context import Context
from tools.checking.in_place import Variant, try_variant, variants_of
from tools.grading.running.runner import RunOptions

ALL = [variant for stage in STAGES for variant in variants_of(stage)]
DRAWN = drawn(ALL, 3)
USUAL, MANY = "usual_order", "many_orders"


@pytest.mark.parametrize(("variant", "orders"), [*params(DRAWN, DRAWN, USUAL), *params(ALL, [], MANY)])
def test_variant(variant: Variant, orders: str, context: Context, activity: None) -> None:
    options = RunOptions(context.seed, many_orders=orders == MANY)
    if failure := try_variant(context, variant, options):
        pytest.fail(failure, pytrace=False)
