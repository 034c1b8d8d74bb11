"""Who pays for a mistake that shows only where something is rare: tools/grading/scoring/price.py."""

from __future__ import annotations

from tools.grading.scoring.price import settle
from tools.grading.scoring.results import Broken, Status, TestResult, TestSpec


def test_(name: str, *broken: tuple[str, str], points: float = 2, held: int = 9) -> TestResult:
    """A test that fails in bodies, each given as what is rare there, by letters, and what it is charged to."""
    bodies = [Broken(f"{name}, {rare or 'plain'}", frozenset(rare), charged) for rare, charged in broken]
    result = TestResult(TestSpec(name, points), Status.FAILED if bodies else Status.PASSED, broken=bodies)
    result.failures = [f'in "{body.body}" (2 ranks): wrong' for body in bodies]
    result.runs = (held, held + len(bodies))
    return result


test_.__test__ = False  # type: ignore[attr-defined]


def statuses(*results: TestResult) -> dict[str, str]:
    settle(list(results))
    return {result.spec.name: result.status.value for result in results}


def test_what_is_broken_where_nothing_is_rare_costs_each_test_its_points() -> None:
    assert statuses(test_("a", ("", "a"), ("x", "a")), test_("b", ("", "a"))) == {"a": "failed", "b": "failed"}


def test_something_rare_costs_the_test_that_the_body_is_charged_to() -> None:
    assert statuses(test_("a", ("x", "b")), test_("b", ("x", "b")), test_("c", ("xy", "c"))) == {
        "a": "passed",
        "b": "failed",
        "c": "passed",
    }


def test_it_costs_the_first_that_meets_it_if_that_one_does_not() -> None:
    assert statuses(test_("a", ("x", "c")), test_("b", ("x", "c")), test_("c")) == {
        "a": "failed",
        "b": "passed",
        "c": "passed",
    }


def test_it_costs_a_test_that_nothing_is_left_of_or_one_with_many_points() -> None:
    a, b, c = (
        test_("a", ("x", "a"), points=1),
        test_("b", ("x", "a"), points=3),
        test_("c", ("x", "a"), points=1, held=0),
    )
    assert statuses(a, b) == {"a": "passed", "b": "failed"}
    assert statuses(test_("a", ("x", "a")), c) == {"a": "passed", "c": "failed"}


def test_who_fails_where_nothing_is_rare_does_not_pay_for_others() -> None:
    assert statuses(test_("a", ("", "a"), ("x", "a")), test_("b", ("x", "a"))) == {"a": "failed", "b": "failed"}


def test_two_rare_things_that_no_test_meets_together_are_two_slips() -> None:
    assert statuses(test_("a", ("x", "a")), test_("b", ("y", "b"))) == {"a": "failed", "b": "failed"}


def test_a_failure_of_another_kind_is_not_forgiven() -> None:
    crashed = test_("b", ("x", "a"))
    crashed.failures.append("the test program itself hung")
    assert statuses(test_("a", ("x", "a")), crashed) == {"a": "failed", "b": "failed"}


def test_a_report_pays_for_nobody() -> None:
    assert statuses(test_("a", ("x", "a"), points=0), test_("b", ("x", "a"))) == {"a": "failed", "b": "failed"}


def test_who_is_forgiven_says_what_it_was_judged_without_and_who_pays() -> None:
    forgiven, nothing_left = test_("b", ("x", "a")), test_("c", ("xy", "a"), held=0)
    assert statuses(test_("a", ("x", "a")), forgiven, nothing_left)["c"] == "not_judged"
    assert forgiven.failures == [] and forgiven.measured == ["judged without 1 run: for x see a"]
    assert nothing_left.failures == ["not judged: for x see a"]
