"""Would a mutant be noticed that survives or dies for another reason, and a sanitizer that reports nothing?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.checking import in_place, mutants, sanitizers
from tools.checking.context import Context, graded_stages
from tools.checking.in_place import write_edited
from tools.checking.sanitizers import THREAD
from tools.grading.scoring.results import StageReport, Status, TestResult, TestSpec
from tools.grading.stages import Stage, all_stages
from tools.setup.toolchain import ROOT, LabError, Toolchain

SPECS = [TestSpec("mean", 3), TestSpec("bitwise", 1), TestSpec("order", 2)]
HEADER = "Mistake: adds up only\nKilled-by: mean, order\nSays: the sum, not .* mean\n"
BEFORE = "".join(f"line {number}\n" for number in range(1, 21))
AFTER = BEFORE.replace("line 3\n", "").replace("line 18\n", "line 18\nand a half\n")
EDITS = "@@\n line 2\n-line 3\n@@\n line 18\n+and a half\n"  # from the one to the other


def mutant(header: str = HEADER, edits: str = EDITS) -> mutants.Mutant:
    return mutants.parse(all_stages()[0], "sum", header + edits)


def report(**failures: str) -> StageReport:
    """A grading in which the named tests fail with these texts."""
    results = [TestResult(spec, Status.PASSED) for spec in SPECS]
    for result in results:
        if text := failures.get(result.spec.name):
            result.status, result.failures = Status.FAILED, [text]
    return StageReport(all_stages()[0], results)


def context(**fields: str) -> Context:
    known = dict.fromkeys(Toolchain.__dataclass_fields__, "")
    return Context(Toolchain(**(known | fields)), 1)


class Sums:
    """A stage with a solution of several files."""

    name = "09_sums"

    def __init__(self, root: Path, source: str) -> None:
        self.solution = root / "solutions" / self.name
        self.solution.mkdir(parents=True)
        for name, content in {"sum.cpp": source, "more.cpp": "more\n", "both.h": "both\n"}.items():
            (self.solution / name).write_text(content)

    def sources(self, impl: str) -> list[Path]:
        names = ["more.cpp", "sum.cpp"] if impl == "solutions" else ["sum.cpp"]
        return [self.solution / name for name in names]


MOVED = ("line 9\n", "line 9\nnew\n\n")
DUE = {"mean": "diagnosis: the sum, not the mean", "order": "wrong order"}
ONLY = HEADER + "Only: yes\n"


@pytest.mark.parametrize(
    ("edits", "before", "expected"),
    [
        (EDITS, BEFORE, [AFTER, "more\n", "both\n"]),
        (EDITS, BEFORE.replace(*MOVED), [AFTER.replace(*MOVED), "more\n", "both\n"]),
        ("@@ more.cpp\n-more\n+less\n@@ both.h\n-both\n+none\n", BEFORE, [BEFORE, "less\n", "none\n"]),
    ],
)
def test_edits_do_what_they_say(edits: str, before: str, expected: list[str], tmp_path: Path) -> None:
    source = write_edited(Sums(tmp_path, before), mutant(edits=edits).edits, tmp_path)
    assert source == tmp_path / "sum.cpp"
    assert [(tmp_path / name).read_text() for name in ("sum.cpp", "more.cpp", "both.h")] == expected


@pytest.mark.parametrize(
    ("edits", "before", "said"),
    [
        (EDITS, BEFORE.replace("line 3", "line three"), "0 times in sum.cpp.*line 2\nline 3"),
        (EDITS, BEFORE + BEFORE, "2 times in sum.cpp.*line 2\nline 3"),
        ("@@ gone.cpp\n-more\n", BEFORE, "0 times in gone.cpp"),
    ],
)
def test_what_is_found_never_or_twice_is_shown(edits: str, before: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(LabError, match=f"(?s)no longer fits solutions/09_sums.*{said}"):
        write_edited(Sums(tmp_path, before), mutant(edits=edits).edits, tmp_path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER.replace("Says: the sum, not .* mean\n", ""), "lacks the line 'Says"),
        (HEADER + "Kiled-by: order\n", "cannot read the line 'Kiled-by: order'"),
    ],
)
def test_mistakes_are_named(header: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        mutant(header)


@pytest.mark.parametrize(
    ("header", "failures", "said"),
    [
        (HEADER, DUE, ""),
        (HEADER, DUE | {"bitwise": "x"}, ""),
        (HEADER, {}, "survives"),
        (HEADER, {"mean": DUE["mean"]}, "should fail order"),
        (HEADER, {"mean": "rank 0 died: SIGSEGV", "order": "wrong order"}, "without saying"),
        (ONLY, DUE | {"bitwise": "x"}, "no other test should fail, but bitwise"),
        (HEADER.replace("mean,", "means,"), DUE, "no test of the stage: means"),
        (HEADER + "Score: 0\n", DUE, "should get 0 points, and gets 1"),
        (HEADER + "Loses: 4\n", DUE, "lose no more than 4 points, and loses 5"),
    ],
)
def test_a_mutant_that_does_not_die_as_it_should_is_found(header: str, failures: dict[str, str], said: str) -> None:
    found = "; ".join(mutants.faults(mutant(header), report(**failures)))
    assert said in found and bool(found) == bool(said)


def test_a_run_that_broke_off_is_found() -> None:
    broken = report(**DUE)
    broken.results[1].status = Status.NOT_RUN
    assert mutants.faults(mutant(), broken) == ["it has no verdict on bitwise"]


def test_a_test_without_a_mutant_of_its_own_is_found() -> None:
    own = mutant(ONLY.replace("mean, order", "mean"))
    assert mutants.not_needed(SPECS, [mutant(), own]) == ["bitwise", "order"]


@pytest.mark.parametrize("stage", graded_stages(), ids=lambda stage: stage.name)
def test_each_mutant_and_variant_of_the_lab_fits_its_solution_and_changes_it(stage: Stage, tmp_path: Path) -> None:
    known, solution = mutants.load(stage), in_place.solution_of(stage).parent
    assert 0 in {each.score for each in known}  # an empty solution is among them
    for each in (*known, *(variant for variant in in_place.variants_of(stage) if variant.edits)):
        write_edited(stage, each.edits, tmp_path)
        assert any(path.read_bytes() != (solution / path.name).read_bytes() for path in tmp_path.iterdir()), each.name


def race(file: str) -> str:
    read = f"  Previous read of size 8 at 0x7b58 by main thread:\n    #0 now {ROOT}/{file}:49:45 (libddp.so+0x8ada4)\n"
    return f"WARNING: ThreadSanitizer: data race\n{read}\nSUMMARY: ThreadSanitizer: data race {file}:49 in now\n"


def write(environment: dict[str, str], text: str) -> None:
    """A process's report."""
    (path,) = {path for options in environment.values() for path in re.findall(r'log_path="(.*?)"', options)}
    if text:
        Path(f"{path}.77").write_text(text)


def test_a_mistake_that_is_not_reported_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or silence would mean nothing."""

    def run(_: Context, command: list[str], log: Path, env: dict[str, str]) -> tuple[int, str]:
        write(env, reported[-1])
        return 0, "FATAL: unexpected memory mapping"

    monkeypatch.setattr(Context, "run", run)
    monkeypatch.setattr(sanitizers, "second_build", lambda context, *_: context)
    due = race(sanitizers.MISTAKES)
    reported = [due]
    sanitizers.build(context(build_dir=str(tmp_path)), THREAD)
    for other in ("", race("common/ddp/clocks.h"), due.replace("data race", "")):
        reported.append(other)
        with pytest.raises(LabError, match="ThreadSanitizer does not report the data race(?s:.*)sudo sysctl"):
            sanitizers.build(context(build_dir=str(tmp_path)), THREAD)
