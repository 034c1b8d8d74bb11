"""What tests of `make check` share: a made-up stage with a mutant, and reports on it."""

from __future__ import annotations

from pathlib import Path

from tools.checking import mutants
from tools.checking.context import Context
from tools.grading.scoring.results import StageReport, Status, TestResult, TestSpec
from tools.grading.stages import all_stages
from tools.setup.toolchain import Toolchain

SPECS = [TestSpec("mean", 3), TestSpec("bitwise", 1), TestSpec("order", 2)]
HEADER = "Mistake: adds up only\nKilled-by: mean, order\nSays: the sum, not .* mean\n"
BEFORE = "".join(f"line {number}\n" for number in range(1, 21))
AFTER = BEFORE.replace("line 3\n", "").replace("line 18\n", "line 18\nand a half\n")
EDITS = "@@\n line 2\n-line 3\n@@\n line 18\n+and a half\n"  # from the one to the other


def mutant(header: str = HEADER, edits: str = EDITS) -> mutants.Mutant:
    return mutants.parse(all_stages()[0], "sum", header + edits)


_ALL_REDUCE = {"name": "all-reduce", "launched": 0, "begin": 0, "end": 2, "bytes": 4}
_LANE = {"name": "rank 0", "parts": [], "computing": [], "operations": [_ALL_REDUCE]}
_MARK = {"lane": 0, "operation": 0, "at": 1, "kind": "wait", "text": ""}
PICTURE = {"title": "one rank", "charts": [{"caption": "", "end": 2, "lanes": [_LANE], "marks": [_MARK]}]}


def report(**failures: str) -> StageReport:
    """A grading in which the named tests fail with these texts."""
    results = [TestResult(spec, Status.PASSED) for spec in SPECS]
    for result in results:
        if text := failures.get(result.spec.name):
            result.status, result.failures, result.picture = Status.FAILED, [text], PICTURE
    return StageReport(all_stages()[0], results)


def context(**fields: str) -> Context:
    known = dict.fromkeys(Toolchain.__dataclass_fields__, "")
    return Context(Toolchain(**(known | fields)), 1)


class Sums:
    """A stage with a solution of several files."""

    name = "09_sums"

    def __init__(self, root: Path, **contents: str) -> None:
        self.root = root
        for name, content in {"sum_cpp": BEFORE, "more_cpp": "more\n", "both_h": "both\n", **contents}.items():
            for impl in ("assignments", "solutions") if name == "sum_cpp" else ("solutions",):
                path = root / impl / self.name / name.replace("_", ".")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)

    def header_folders(self) -> list[Path]:
        return [self.root / "assignments" / self.name]

    def sources(self, impl: str) -> list[Path]:
        return sorted((self.root / impl / self.name).glob("*.cpp"))
