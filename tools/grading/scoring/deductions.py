"""How many points a mistake costs: each once.

A claim is judged on many scenarios, of which some have an edge case: a layout, a dtype, a world of one rank (see
tests/grader/scenario.h). What breaks a claim without one costs the test's points. What breaks claims in an edge case
alone is one mistake, and costs the points of one test: one that holds nowhere else, as it would lose them anyway; then
the one that the scenario is charged to; then the first of the stage. The others are judged by their other scenarios.

Some claims mean nothing where another one is broken: values, where tensors were used in flight. Tests that are not
judged for that, and hold in most of their scenarios, cost at most MOST points together with the failed ones, if half of
the points are earned: then it was one mistake, and not a stage that does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from tools.grading.scoring.results import Broken, Status, TestResult

EdgeCases = frozenset[str]
WITHOUT = "not counted here:"
MOST = 5


def settle(results: list[TestResult]) -> None:
    """Lets tests that fail in edge cases alone pass, in place, where another one loses the points."""
    found = {result.spec.name: _simplest(result.broken) for result in results if _only_in_edge_cases(result)}
    in_question = [result for result in results if result.spec.name in found]
    paid: dict[EdgeCases, TestResult] = {}
    for case in sorted({case for each in found.values() for case in each}, key=lambda case: (len(case), sorted(case))):
        if not any(less <= case for less in paid):
            payer = _payer(case, [result for result in in_question if case in found[result.spec.name]])
            paid |= dict.fromkeys(found[payer.spec.name], payer)
    for result in in_question:
        if result not in paid.values():
            met = found[result.spec.name]
            _forgive(result, {less: payer for less, payer in paid.items() if any(less <= case for case in met)})
    if _worth(results, Status.PASSED) >= sum(result.spec.points for result in results) / 2:
        _cap(results)


def _worth(results: list[TestResult], status: Status) -> float:
    return sum(result.spec.points for result in results if result.status is status)


def _cap(results: list[TestResult]) -> None:
    """Tests that follow from what is broken cost no more than MOST with it."""
    lost = _worth(results, Status.FAILED)
    for result in sorted(filter(_follows, results), key=lambda result: -result.spec.points):
        if lost < MOST:
            charged = min(result.spec.points, MOST - lost)
            result.kept, lost = result.spec.points - charged, lost + charged
        else:
            result.status, result.failures, reason = Status.PASSED, [], result.failures[0]
            result.notes = [*result.notes, f"{WITHOUT} some runs; {reason.removeprefix('not judged: ')}"]


def _follows(result: TestResult) -> bool:
    """Whether it is not judged where another claim is broken, and holds in most scenarios. Aborted runs don't count."""
    why = "".join(result.failures)
    broke_off = "did not come to its end" in why or " hung, " in why
    holds = result.runs[0] > 0 and 2 * result.runs[0] >= len(result.scenarios)
    return result.status is Status.NOT_JUDGED and holds and why != "" and not broke_off


def _only_in_edge_cases(result: TestResult) -> bool:
    """Whether it fails, for points, and nowhere without an edge case."""
    scenarios = tuple(f'in "{broken.scenario}" (' for broken in result.broken)
    return (
        result.status is Status.FAILED
        and result.spec.points > 0
        and len(result.broken) > 0
        and all(broken.edge_cases for broken in result.broken)
        and all(failure.startswith(scenarios) for failure in result.failures)
    )


def _simplest(broken: Iterable[Broken]) -> set[EdgeCases]:
    """The edge cases where it fails, but for what has all that another one has, and more."""
    everything = {each.edge_cases for each in broken}
    return {cases for cases in everything if not any(less < cases for less in everything)}


def _payer(cases: EdgeCases, candidates: list[TestResult]) -> TestResult:
    charged = {each.charged_to for result in candidates for each in result.broken if each.edge_cases == cases}
    return max(candidates, key=lambda test: (not test.runs[0], test.spec.name in charged))


def _forgive(result: TestResult, paid: dict[EdgeCases, TestResult]) -> None:
    why = "; ".join(f'for {", ".join(sorted(cases))} see "{payer.spec.title}"' for cases, payer in paid.items())
    if result.runs[0]:
        count = result.runs[1] - result.runs[0]
        result.status, result.failures = Status.PASSED, []
        result.notes = [*result.notes, f"{WITHOUT} {count} run{'s' * (count > 1)}; {why}"]
    else:
        result.status, result.failures = Status.NOT_JUDGED, [f"not judged: {why}"]
