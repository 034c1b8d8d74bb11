"""Which test a mistake in an edge case is deducted from, and how stages are graded beside one another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tools.grading.grade import side_by_side
from tools.grading.scoring.deductions import settle
from tools.grading.scoring.results import Broken, Status, TestResult, TestSpec

PATIENCE_S = 60.0


def judged(name: str, *broken: str, points: float = 2, held: int = 9) -> TestResult:
    """A test that fails in scenarios, each given as "x>a": its edge cases, by letters, and what it is charged to."""
    pairs = [each.split(">") for each in broken]
    scenarios = [Broken(f"{name}, {cases or 'plain'}", frozenset(cases), charged) for cases, charged in pairs]
    failures = [f'in "{scenario.scenario}" (2 ranks): wrong' for scenario in scenarios]
    status = Status.FAILED if scenarios else Status.PASSED
    return TestResult(
        TestSpec(name, points), status, failures=failures, broken=scenarios, runs=(held, held + len(scenarios))
    )


@pytest.mark.parametrize(
    "results, failed",
    [
        ([judged("a", ">a", "x>a"), judged("b", ">a")], "ab"),
        ([judged("a", "x>b"), judged("b", "x>b"), judged("c", "xy>c")], "b"),
        ([judged("a", "x>c"), judged("b", "x>c"), judged("c")], "a"),
        ([judged("a", "x>b", points=3), judged("b", "x>b", points=1)], "b"),
        ([judged("a", ">a", "x>a"), judged("b", "x>a")], "ab"),
        ([judged("a", "x>a"), judged("b", "y>b")], "ab"),
    ],
    ids=[
        "what is broken without an edge case costs each test its points",
        "an edge case costs the test that the scenario is charged to",
        "the first that meets it if that one does not",
        "however many points another one has",
        "who fails without an edge case does not pay for others",
        "two edge cases that no test meets together are two mistakes",
    ],
)
def test_the_price_of_a_mistake(results: list[TestResult], failed: str) -> None:
    settle(results)
    assert "".join(each.spec.name for each in results if each.status is Status.FAILED) == failed
    assert all(each.status in (Status.FAILED, Status.PASSED) for each in results)


def test_a_failure_of_another_kind_is_not_forgiven() -> None:
    crashed = judged("b", "x>a")
    crashed.failures.append("the test program itself hung")
    settle([judged("a", "x>a"), crashed])
    assert crashed.status is Status.FAILED


def test_who_is_forgiven_says_what_it_was_judged_without_and_who_pays() -> None:
    forgiven, nothing_left = judged("b", "x>a"), judged("c", "xy>a", held=0)
    settle([judged("a", "x>a"), forgiven, nothing_left])
    assert forgiven.failures == [] and forgiven.notes == ['not counted here: 1 run; for x see "a"']
    assert nothing_left.status is Status.NOT_JUDGED and nothing_left.failures == ['not judged: for x see "a"']
    settle([one := judged("a", "x>a"), payer := judged("c", "x>a", points=1, held=0)])
    assert (one.status, payer.status) == (Status.PASSED, Status.FAILED)  # which nothing is left of


def test_what_follows_from_another_mistake_costs_no_more_than_five_points_with_it() -> None:
    scenarios = list("123456789")

    def unjudged(name: str, why: str = "was in flight", held: int = 9) -> TestResult:
        spec, failures = TestSpec(name, 3), [f"not judged: {why}"]
        return TestResult(spec, Status.NOT_JUDGED, failures=failures, runs=(held, held), scenarios=scenarios)

    def graded(earned: float) -> list[TestResult]:
        results = [
            judged("a", ">a", points=4),
            unjudged("b"),
            unjudged("c"),
            unjudged("d", "did not come to its end"),
            unjudged("e", held=0),
            unjudged("f", held=4),
            TestResult(TestSpec("rest", earned), Status.PASSED),
        ]
        settle(results)
        return results

    results = graded(earned=20)
    assert sum(each.spec.points - each.score for each in results[:3]) == 5
    assert (results[1].score, results[2].score) == (2, 3)
    assert [each.spec.name for each in results if each.status is Status.PASSED] == ["c", "rest"]
    assert results[2].notes == ["not counted here: some runs; was in flight"]
    nothing = graded(earned=1)  # what does nothing keeps nothing
    assert [each.spec.name for each in nothing if each.status is Status.PASSED] == ["rest"]


class Stages:
    """Stages that are numbers here."""

    def __init__(self) -> None:
        self.stopping, self.begun = threading.Event(), []

    def in_order(self, run: Callable[[int], object], at_a_time: int = 2) -> Iterator[int]:
        begin = lambda stage: (self.begun.append(stage), run(stage))  # noqa: E731
        return side_by_side(range(4), lambda: None, begin, at_a_time, self.stopping)


def test_two_run_at_a_time_and_come_in_their_order() -> None:
    stages = Stages()
    both_run = threading.Barrier(2)  # broken, and an error, if they run one after another
    assert list(stages.in_order(lambda _: both_run.wait(PATIENCE_S))) == [0, 1, 2, 3]


def test_one_at_a_time_none_begins_before_the_last_one_is_taken() -> None:
    """Its results are to be written first, as nothing of the next stage's can touch them then."""
    stages = Stages()
    for stage in stages.in_order(lambda _: None, at_a_time=1):
        time.sleep(0.02)  # for a thread that should not be there
        assert stages.begun == list(range(stage + 1))
    assert stages.begun == [0, 1, 2, 3]


def test_whoever_leaves_early_stops_those_that_run() -> None:
    stages = Stages()
    given = stages.in_order(lambda stage: stage > 0 and stages.stopping.wait(PATIENCE_S))
    assert next(given) == 0
    given.close()  # returns, because the others are told to stop
    assert len(stages.begun) < 4


def test_an_error_of_a_stage_is_raised_and_stops_the_others() -> None:
    stages = Stages()
    with pytest.raises(ZeroDivisionError):
        next(stages.in_order(lambda stage: stages.stopping.wait(PATIENCE_S) if stage else 1 // stage))
    assert stages.stopping.is_set()
