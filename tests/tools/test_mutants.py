"""Would a mutant be noticed that survives, or dies for another reason?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.checking_helpers import AFTER, BEFORE, EDITS, HEADER, SPECS, Sums, context, mutant, report
from tools.checking import in_place, mutants
from tools.checking.context import graded_stages
from tools.checking.in_place import write_edited
from tools.grading.scoring.results import Status
from tools.grading.stages import Stage
from tools.setup.toolchain import LabError

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
    source = write_edited(Sums(tmp_path, sum_cpp=before), mutant(edits=edits).edits, tmp_path)
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
        write_edited(Sums(tmp_path, sum_cpp=before), mutant(edits=edits).edits, tmp_path)


@pytest.mark.parametrize(
    ("changed", "inputs"),
    [
        (None, ["variant.o"]),  # stands alone
        ({"sum_cpp": AFTER}, ["more.cpp.o", "sum.o"]),
        ({"more_cpp": "less\n"}, ["sum.cpp.o", "more.o"]),
        ({"both_h": "none\n"}, ["more.o", "sum.o"]),
    ],
)
def test_only_what_is_changed_is_compiled(changed: dict[str, str] | None, inputs: list[str], tmp_path: Path) -> None:
    """The compiler here is `echo`, and its log the command."""
    stage, solution = Sums(tmp_path), tmp_path / "solutions/09_sums"
    commands = [
        {"file": str(solution / name), "command": f"echo -O3 -o {name}.o -c {solution / name}"}
        for name in ("more.cpp", "sum.cpp")
    ]
    (tmp_path / "compile_commands.json").write_text(json.dumps(commands))
    source = tmp_path / "variant.cpp"
    source.touch()
    if changed:
        Sums(tmp_path / "mutant", **changed)
        source = tmp_path / "mutant/solutions/09_sums/sum.cpp"
    in_place.compile_stage(context(build_dir=str(tmp_path)), stage, source, tmp_path)
    words = (tmp_path / "compiler.log").read_text().replace(f"{tmp_path}/", "").split()
    assert words[words.index("-shared") + 3 :] == inputs


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
        (HEADER + "Marks: ^wait: all-reduce$\n", DUE, ""),
        (HEADER + "Marks: ^access in flight\n", DUE, "what is marked is wait: all-reduce, and not"),
    ],
)
def test_a_mutant_that_does_not_die_as_it_should_is_found(header: str, failures: dict[str, str], said: str) -> None:
    found = "; ".join(mutants.faults(mutant(header), report(**failures)))
    assert said in found and bool(found) == bool(said)


def test_a_failure_without_a_picture_is_found() -> None:
    bare = report(**DUE)
    for result in bare.results:
        result.picture = None
    assert mutants.faults(mutant(), bare) == ["mean has no picture"]


def test_a_run_that_broke_off_is_found() -> None:
    broken = report(**DUE)
    broken.results[1].status = Status.NOT_RUN
    assert mutants.faults(mutant(), broken) == ["it has no verdict on bitwise"]


def test_a_test_without_a_mutant_of_its_own_is_found() -> None:
    own = mutant(ONLY.replace("mean, order", "mean"))
    assert mutants.not_needed(SPECS, [mutant(), own]) == ["bitwise", "order"]


@pytest.mark.parametrize(
    ("header", "run"),
    [
        (HEADER, ["mean", "order"]),
        (ONLY, ["mean", "bitwise", "order"]),
        (HEADER + "Score: 0\n", ["mean", "bitwise", "order"]),
        (HEADER.replace("mean,", "means,"), ["mean", "bitwise", "order"]),  # so that its fault can be told
    ],
)
def test_only_tests_that_matter_are_run(header: str, run: list[str]) -> None:
    assert [spec.name for spec in mutants.needed(mutant(header), SPECS)] == run


@pytest.mark.parametrize("stage", graded_stages(), ids=lambda stage: stage.name)
def test_each_mutant_and_variant_of_the_lab_fits_its_solution_and_changes_it(stage: Stage, tmp_path: Path) -> None:
    known, solution = mutants.load(stage), in_place.solution_of(stage).parent
    assert 0 in {each.score for each in known}  # an empty solution is among them
    for each in (*known, *(variant for variant in in_place.variants_of(stage) if variant.edits)):
        write_edited(stage, each.edits, tmp_path)
        assert any(path.read_bytes() != (solution / path.name).read_bytes() for path in tmp_path.iterdir()), each.name
