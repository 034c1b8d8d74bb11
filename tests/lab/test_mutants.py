"""Wrong solutions lose the points that they should, and say why. A plain run draws one of each stage, and grades it by
the tests that it names."""

from __future__ import annotations

import pytest

from tests.lab.marks import STAGES, drawn, each_stage, params
from tools.checking import mutants
from tools.checking.context import Context
from tools.checking.in_place import variants_of
from tools.checking.mutants import Mutant
from tools.grading.running.test_lists import tests_of
from tools.grading.stages import Stage

DRAWN = 1
KNOWN = {stage: mutants.seen_by_tests(stage) for stage in STAGES}
EACH = [param for known in KNOWN.values() for param in params(known, drawn(known, DRAWN))]


@pytest.mark.parametrize("mutant", EACH)
def test_mutant(mutant: Mutant, context: Context, activity: None, plain: bool) -> None:
    if failure := mutants.try_mutant(context, mutant, whole=not plain):
        pytest.fail(failure, pytrace=False)


@each_stage
def test_each_graded_test_has_a_mutant_that_it_alone_kills(stage: Stage) -> None:
    graded = tests_of(stage)
    assert mutants.not_needed(graded, KNOWN[stage]) == [], f"add one to tests/mutants/{stage.name}.diff"
    assert len(variants_of(stage)) >= 2, f"tests/variants/{stage.name} needs two correct, unusual solutions"
    assert [text for mutant in KNOWN[stage] if (text := mutants.unexplained(mutant, graded))] == []
