"""`make autograder`: what is in it, and, in a folder laid out as Gradescope's, what it makes of submissions."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.tools.conftest import processes_in, wait_for
from tests.tools.release_helpers import git, known_activity, working_tree, write
from tools.course import autograder, hidden, prepare
from tools.grading.scoring.results import Status
from tools.grading.stages import all_stages
from tools.setup import toolchain
from tools.setup.toolchain import ROOT, LabError

FIRST, FOURTH, FIFTH = "01_naive_ddp", "04_sync_batch_norm", "05_ring_all_reduce"
SEED = 424242424
# Its names may be those of the lab's own tests, as kMean is.
HIDDEN = """\
#include <ATen/ATen.h>

#include "01_naive_ddp/naive_ddp.h"
#include "ddp/referee/client.h"
#include "grader/scenario.h"
#include "grader/grading.h"

namespace ddp::testing {
namespace {

void average_a_scalar(Client& client) {
  const at::Tensor scalar = at::ones({}).set_requires_grad(true);
  const auto synchronizer = make_naive_ddp({scalar}, {}, make_group(client.shared_from_this()));
  (scalar * (1.0 + client.rank())).backward();
  synchronizer->finish();
  client.value("gradient", scalar.grad());
}

std::string is_the_mean(const Evidence& evidence) {
  for (const Seen& seen : evidence.of[0]) {
    if (seen.kind == EventKind::kValue && seen.value.item<double>() != 1.5) {
      return "the gradient of a scalar is not the mean of 1 and 2";
    }
  }
  return "";
}

const GradedTest kMean{{.name = "a_scalar_is_averaged", .points = 3, .hint = "No dimension is a shape, too."},
                       [] { judge({{"a scalar", {}, average_a_scalar, "a_scalar_is_averaged"}}, is_the_mean); }};

}  // namespace
}  // namespace ddp::testing
"""


def files_of(stage: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in (ROOT / "solutions" / stage).iterdir() if path.suffix != ".md"}


def solution(stage: str) -> str:
    """In one file: where the solution has several, the last of the variants."""
    if len(files := files_of(stage)) == 1:
        return files.popitem()[1]
    return max((ROOT / "tests/variants" / stage).glob("*.cpp")).read_text()


def stage_with(stage: str, top: str, statement: str) -> str:
    """The solution with lines at its top, and a statement at the beginning of its first public function."""
    code = solution(stage)
    place = code.index("{\n", code.index("}  // namespace\n")) + 2 if statement else 0
    return f"{top}\n{code[:place]}{statement}\n{code[place:]}"


class Layout:
    """<root>/source, submission and results, as Gradescope lays them out."""

    def __init__(self, top: Path) -> None:
        self.top, self.made, self.root = top, top / "made", top / "autograder"
        write(top / "instructors", {f"{FIRST}/scalar.cpp": HIDDEN, "seed": f"{SEED}\n"})
        self.added = autograder.write_source(self.made / "source", working_tree(), top / "instructors")
        autograder.write_archive(self.made)
        for name in ("source", "submission"):
            (self.root / name).mkdir(parents=True)
        with zipfile.ZipFile(self.made / "autograder.zip") as archive:
            archive.extractall(self.root / "source")
        shutil.copy(self.root / "source/run_autograder", self.root)
        # Without a limit of time: how long it takes hangs on what else this machine does.
        self.command = ["bash", str(self.root / "run_autograder"), "--limit=1800"]
        self.environment = {**os.environ, "AUTOGRADER_ROOT": str(self.root)}

    def prepare(self) -> None:
        """Builds all of it, as Gradescope does once."""
        tools = toolchain.load()
        given = {"PYTHON": tools.python} if tools.python else {"LIBTORCH": tools.libtorch}
        command, env = ["bash", str(self.root / "source/setup.sh")], {**os.environ, **given, "CXX": tools.cxx}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1800)
        assert not (self.root / "source/solutions").exists()
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    def submit(self, codes: dict[str, str | dict[str, str]]) -> None:
        """By the stage's name: its source, or its files."""
        for stage in all_stages():
            files = codes.get(stage.name, {})
            files = {stage.sources("assignments")[0].name: files} if isinstance(files, str) else files
            write(self.root / "submission/assignments" / stage.name, files)

    def grade(self, codes: dict[str, str | dict[str, str]]) -> dict:
        self.submit(codes)
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(self.command, env=self.environment, capture_output=True, text=True, timeout=1800)
        self.said, used = done.stdout, resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert "Traceback" not in done.stdout + done.stderr
        processor = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        print(f"\n{time.monotonic() - began:.0f} s, of processors {processor:.0f} s")  # INSTRUCTOR.md quotes them
        assert processes_in(self.root) == []
        return self.results()

    def results(self) -> dict:
        return json.loads((self.root / "results/results.json").read_bytes())


# What each stage of the cheat tries, lines at its top and a statement; and what is said of it.
REFUSED = "uses what it may not"
CHEATS = {
    FIRST: ("#include <fstream>", 'std::ofstream("/autograder/results/results.json") << "{}";', REFUSED),
    "02_overlapped_ddp": ('const long kSeed =\n#include "{lab}/hidden/seed"\n;', "", "does not compile"),
    "03_bucketed_ddp": ("[[gnu::constructor]] static void attack() { __builtin_trap(); }", "", "died: signal"),
    FOURTH: ("#include <dlfcn.h>", 'dlopen("/tmp/libstage.so", 1);', REFUSED),
    FIFTH: ("#include <cstdlib>", 'std::printf("{\\"score\\": 100}"); std::exit(0);', REFUSED),
}
FULL = {"01": 18, "02": 20, "03": 25, "04": 20, "05": 20, "06": 20, "07": 25}  # 3 of 01's are the hidden test's
NONE = dict.fromkeys(FULL, 0)
ENDLESS = "for (volatile int i = 0;; ++i) {}"


def of_stage(found: dict, stage: str) -> list[dict]:
    return [test for test in found["tests"] if test["extra_data"]["stage"] == stage]


def points(found: dict) -> dict[str, float]:
    return {stage.name[:2]: sum(test["score"] for test in of_stage(found, stage.name)) for stage in all_stages()}


@pytest.fixture(scope="module")
def layout() -> Iterator[Layout]:
    with tempfile.TemporaryDirectory(prefix="ddp-lab-gradescope-") as folder:
        top = Path(folder).resolve()
        top.chmod(0o755)
        if top.parent.stat().st_uid == os.getuid():  # who grades is nobody, and has to get there
            top.parent.chmod(top.parent.stat().st_mode | 0o011)
        yield Layout(top)


@pytest.fixture(scope="module")
def prepared(layout: Layout) -> Layout:
    layout.prepare()
    return layout


@pytest.fixture
def grader(prepared: Layout) -> Layout:
    for name in ("results", "submission"):
        shutil.rmtree(prepared.root / name, ignore_errors=True)
        (prepared.root / name).mkdir()
    return prepared


def test_answers_are_where_they_are_removed_alone(layout: Layout) -> None:
    source, lab = layout.root / "source", layout.root / "source/lab"
    for stage in all_stages():
        assert {path.name for path in (source / "solutions" / stage.name).iterdir()} == files_of(stage.name).keys()
    for folder in ("solutions", "tests/mutants", "tests/variants", "tools/checking"):
        assert not (lab / folder).exists(), folder
    assert git(ROOT, "check-attr", "export-ignore", "--", "hidden") == "hidden: export-ignore: set"
    assert layout.added == [f"tests/{FIRST}/hidden.scalar.cpp"]
    assert (lab / layout.added[0]).read_text() == HIDDEN
    assert hidden.seed(lab / "hidden") == SEED


def test_what_students_may_read_has_no_answer_hidden_test_or_seed(layout: Layout) -> None:
    with known_activity(layout.top / "activity.json"):
        autograder.write_public(layout.top / "public", working_tree())
    public, source = (
        {path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()}
        for top in (layout.top / "public", layout.made / "source")
    )
    answers = {f"solutions/{stage.name}/{name}" for stage in all_stages() for name in files_of(stage.name)}
    kept = {"run_autograder", "lab/hidden/seed", f"lab/{layout.added[0]}"}
    found_out = {name for name in public if name.endswith("minimum_activity.json")}  # by setup.sh in the others
    assert source == (public - found_out) | answers | kept
    assert public.isdisjoint(answers | kept)


@pytest.mark.parametrize(("stubs", "solutions", "good"), [("TODO", "PASSED", True), ("TODO", "FAILED", False),
                                                          ("FAILED", "PASSED", False)])  # fmt: skip
def test_an_image_that_cannot_grade_does_not_come_to_be(
    stubs: str, solutions: str, good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the compiling and grading. The solutions are gone then, whatever comes of it."""
    folder = tmp_path / "solutions"
    folder.mkdir()

    def graded(submission: Path, alive: bool = True) -> mock.Mock:
        return mock.Mock(results=[mock.Mock(status=Status[solutions if submission == folder else stubs])], stages=[])

    builder = mock.Mock(**{"return_value.build.return_value": {}})
    for name, value in {
        "toolchain": mock.Mock(),
        "TestLists": mock.Mock(),
        "graded": graded,
        "Builder": builder,
    }.items():
        monkeypatch.setattr(prepare, name, value)
    monkeypatch.setattr(sys, "argv", ["prepare", str(folder)])
    with contextlib.nullcontext() if good else pytest.raises(LabError, match="were graded"):
        assert prepare.main() == 0
    assert not folder.exists()


@pytest.mark.slow
def test_a_good_one(grader: Layout) -> None:
    found = grader.grade({stage.name: files_of(stage.name) for stage in all_stages()})
    assert points(found) == FULL
    if os.getuid() == 0:
        assert (grader.root / "results/results.json").stat().st_uid == 65534
    (claim,) = [test for test in found["tests"] if test["visibility"] != "visible"]
    assert (claim["name"], claim["visibility"]) == ("01 a scalar is averaged", "after_published")
    assert str(SEED) not in json.dumps(found)


@pytest.mark.slow
def test_one_that_fails_a_hidden_claim(grader: Layout) -> None:
    statement = 'if (parameters.size() == 1 && parameters[0].dim() == 0) TORCH_CHECK(false, "0-d");'
    found = grader.grade({FIRST: stage_with(FIRST, "", statement)})
    assert points(found)["01"] == 15
    (claim,) = [test for test in of_stage(found, FIRST) if test["status"] == "failed"]
    assert claim["extra_data"]["test"] == "a_scalar_is_averaged"


@pytest.mark.slow
def test_one_that_hangs_lacks_and_breaks_a_stage(grader: Layout) -> None:
    found = grader.grade({FIRST: stage_with(FIRST, "", ENDLESS), FOURTH: solution(FOURTH) + "int broken( {",
                          FIFTH: solution(FIFTH)})  # fmt: skip
    assert points(found) == {**NONE, "05": 20}
    outputs = {stage.name: "".join(test["output"] for test in of_stage(found, stage.name)) for stage in all_stages()}
    assert "hung" in outputs[FIRST]
    assert "There is no overlapped_ddp.cpp in what was handed in" in outputs["02_overlapped_ddp"]
    assert f"assignments/{FOURTH}/sync_batch_norm.cpp:" in outputs[FOURTH]
    assert "error: expected" in outputs[FOURTH]


@pytest.mark.slow
def test_one_that_cheats(grader: Layout) -> None:
    lab = str(grader.root / "source/lab")
    found = grader.grade({stage: stage_with(stage, top.replace("{lab}", lab), statement)
                          for stage, (top, statement, _) in CHEATS.items()})  # fmt: skip
    assert found["score"] == 0
    for stage, (_, _, says) in CHEATS.items():
        assert says in of_stage(found, stage)[0]["output"]
    assert str(SEED) not in json.dumps(found) + grader.said


@pytest.mark.slow
def test_every_door_gives_the_same_points(grader: Layout, tmp_path: Path) -> None:
    """Gradescope's folder, a class on one's own machine, and a CI."""
    lab, scalar = grader.root / "source/lab", 'if (parameters.size() == 1) TORCH_CHECK(false, "one");'
    codes = {
        "good": solution(FIRST),
        "hidden": stage_with(FIRST, "", scalar),
        "broken": solution(FIRST) + "int broken(",
    }
    by_gradescope, by_ci = {}, {}
    for name, code in codes.items():
        shutil.rmtree(grader.root / "submission")
        by_gradescope[name] = scores(grader.grade({FIRST: code}))
        shutil.copytree(grader.root / "submission", tmp_path / "class" / name)
        command = [sys.executable, "-m", "tools.course.grade_submission", str(tmp_path / "class" / name)]
        subprocess.run([*command, f"--out={tmp_path}/ci.json"], cwd=lab, check=False, capture_output=True)
        by_ci[name] = scores(json.loads((tmp_path / "ci.json").read_bytes()))
    command = [sys.executable, "-m", "tools.course.grade_class", str(tmp_path / "class"), f"--out={tmp_path}/out"]
    subprocess.run([*command, f"--grader={lab}"], cwd=lab, check=True, capture_output=True)
    by_class = {name: scores(json.loads((tmp_path / "out/students" / name / "results.json").read_bytes()))
                for name in codes}  # fmt: skip
    assert by_gradescope == by_ci == by_class
    sums = [sum(by_class[name].values()) for name in codes]
    assert sums[0] == FULL["01"] > sums[1] > sums[2] == 0


def scores(found: dict) -> dict[str, float]:
    return {test["name"]: test["score"] for test in found["tests"]}


@pytest.mark.slow
def test_what_was_reached_is_kept(grader: Layout) -> None:
    grader.submit({stage.name: solution(stage.name) for stage in all_stages()})
    results = grader.root / "results"
    env = {**grader.environment, "TMPDIR": str(results)}  # whoever is killed leaves something there
    process = subprocess.Popen(grader.command, env=env, stdout=subprocess.DEVNULL, start_new_session=True)
    there = (results / "results.json").exists
    wait_for(lambda: there() and 0 < grader.results()["score"], "the first test that passes", 120)
    os.killpg(process.pid, signal.SIGKILL)  # as at the end of Gradescope's patience
    process.wait()
    assert 0 < grader.results()["score"] < 100
    wait_for(lambda: not processes_in(grader.root), "the end of all processes")
