"""Whose score changed when a class was graded again, and by which test: what a mended grader has done."""

from __future__ import annotations

from collections import Counter

from tools.course.class_table import Row


def said(before: dict[str, Row], rows: list[Row]) -> str:
    """`before`: those of `rows` that were graded already, by student."""
    known = [(before[row.student], row) for row in rows if row.student in before]
    changed = [(old, new, found) for old, new in known if (found := differences(old, new))]
    lines = [f"Graded again: {len(known)}, of whom {len(changed)} changed."]
    tests: Counter[str] = Counter()
    for old, new, found in changed:
        lines.append(f"  {new.student}: {old.total:g} -> {new.total:g} points")
        lines += [f"    {line}" for line in found]
        tests.update(line.partition(":")[0] for line in found)
    lines += [f"  {count} by {name}" for name, count in tests.most_common()] if len(changed) > 1 else []
    return "\n".join(lines) + "\n"


def differences(old: Row, new: Row) -> list[str]:
    """A line for each test that judges otherwise, or has other points."""
    if new.problem:
        return [f"not graded: {new.problem}"] if new.problem != old.problem else []
    verdicts = {test.claim: (test, verdict) for test, verdict in old.verdicts.items()}
    lines = []
    for test, verdict in new.verdicts.items():
        was, then = verdicts.pop(test.claim, (None, "no such test"))
        if then != verdict:
            gain = _points(test, verdict) - _points(was, then)
            lines.append(f"{test.claim}: {_words(then)} -> {_words(verdict)}, {gain:+g} points")
        elif was.points != test.points:
            lines.append(f"{test.claim}: {_words(verdict)}, worth {was.points:g} -> {test.points:g} points")
    lines += [f"{claim}: {_words(then)} -> no such test, {-_points(was, then):+g} points"
              for claim, (was, then) in verdicts.items()]  # fmt: skip
    return lines


def _words(verdict: str) -> str:
    return verdict.replace("_", " ")


def _points(test: object, verdict: str) -> float:
    return test.points if test and verdict == "passed" else 0
