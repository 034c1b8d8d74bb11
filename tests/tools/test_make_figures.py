"""Tests of `make figures`: what is measured again, resumed, skipped and drawn, with fake programs and scripts."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from pathlib import Path
from unittest import mock

import pytest

from tools.grading import stages
from tools.report import deliverables, figures
from tools.report.deliverables import DRAWINGS, NAIVE, Drawing, Run
from tools.setup.toolchain import ROOT, Toolchain

# Records how it was called, and writes its result.
PROGRAM = """\
#!/bin/sh
echo "$0 $*" >> {calls}
while [ "$1" != --output ]; do shift; done
echo measured > "$2"
exit {code}
"""
SCRIPT = "def main(arguments):\n    print('wrote', *arguments)\n    return 0\n"
MEASURE = Run("measure")


def drawing(*flags: str) -> Drawing:
    return Drawing("draw", (NAIVE,), (Run("measure", flags=flags),))


def touch(file: Path, seconds: int) -> None:
    file.touch()
    os.utime(file, (seconds, seconds))


class Lab:
    """One program, which was built 100 s after the beginning of time, and one script."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.calls, self.library, self._capsys = root, root / "calls", root / "libstage.so", capsys
        for name in ("bin", "lib", "figures/data", "figures/lib"):
            (root / name).mkdir(parents=True)
        shutil.copy(ROOT / "figures/lib/draw.py", root / "figures/lib")
        (root / "figures/lib/style.py").touch()
        (root / "figures/draw.py").write_text(SCRIPT)
        libraries = (root / f"lib/lib{name}.so" for name in ("ddp", "ddp_benchmarks", "measure_code"))
        self.libraries = [self.library, *libraries]
        for file in self.libraries:
            touch(file, 100)
        self.builder = mock.Mock(**{"build.side_effect": lambda *_: {}, "library.return_value": self.library})
        tools = Toolchain("", sys.executable, "", "", "", "", "", str(root))
        for module, name, value in (
            (deliverables, "DATA", root / "figures/data"),
            (figures, "OUT", root / "figures/out"),
            (figures, "ROOT", root),
            (figures, "Builder", lambda *_: self.builder),
            (figures.toolchain, "require_packages", lambda *_: None),
            (figures.toolchain, "load", lambda: tools),
        ):
            monkeypatch.setattr(module, name, value)
        self.result = MEASURE.result("solutions", "quick")
        self.program()

    def program(self, code: int = 0) -> None:
        program = self.root / "bin/measure"
        program.write_text(PROGRAM.format(calls=self.calls, code=code))
        program.chmod(0o755)

    def draw(self, *wanted: Drawing) -> figures.Summary:
        options = argparse.Namespace(impl="solutions", preset="quick")
        summary = figures.measure_and_draw(options, list(wanted) or [drawing()], "make figures")
        self.said = self._capsys.readouterr().out
        return summary

    def called(self) -> list[str]:
        """By whom since it was asked last."""
        calls = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return calls


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lab:
    return Lab(tmp_path, monkeypatch, capsys)


def test_the_registry_has_what_there_is() -> None:
    modules = {ROOT / "figures" / f"{each.module.replace('.', '/')}.py" for each in DRAWINGS}
    scripts = set((ROOT / "figures" / "plots").glob("*.py"))
    assert modules == scripts
    runs = {run for each in DRAWINGS for run in each.runs}
    assert {run.program.split()[0] for run in runs} <= {
        path.name for path in (ROOT / "benchmarks/experiments").iterdir()
    }
    assert len({run.result("solutions", "quick") for run in runs}) == len(runs), "one result is of one run"
    assert {name.removesuffix(".published") for name in deliverables.SECONDS} <= {run.name for run in runs}


@pytest.mark.parametrize("stage", stages.all_stages(), ids=lambda stage: stage.name)
def test_a_stage_has_what_its_questions_show(stage: stages.Stage) -> None:
    """By their names; some have others than their modules."""
    modules = {"all_reduce_bandwidth": "collectives"}
    modules |= dict.fromkeys(("bucketed_batch_size_2", "bucketed_batch_size_4"), "bucketed_ddp")
    modules |= {"ddp_suite_ab": "ddp_suite"}
    questions = (ROOT / "writeup/questions" / f"{stage.name}.typ").read_text()
    shown = {name.split(".")[0] for name in re.findall(r'-slot\("([^"]+)"', questions)}
    drawn = {each.module.split(".")[1] for each in DRAWINGS if each.is_asked_for_by([stage])}
    assert shown or drawn  # 07 draws what a question of 06 shows
    assert {modules.get(name, name) for name in shown} <= drawn


@pytest.mark.parametrize("stage", stages.all_stages(), ids=lambda stage: stage.name)
def test_what_is_handed_out_is_a_stub_until_one_function_is_written(
    stage: stages.Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stage.is_stub("assignments")
    assert not stage.is_stub("solutions")
    begun = NAIVE.sources("assignments")[0].read_text()
    begun = begun.replace("TORCH_CHECK_NOT_IMPLEMENTED", "return nullptr; /* ; */ //", 1)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: begun)
    assert not stage.is_stub("assignments")


def test_measures_once_and_draws_twice(lab: Lab) -> None:
    one, other = lab.draw(drawing("--fast"), drawing("--fast")).drawn
    (call,) = lab.called()
    output = lab.result.relative_to(lab.root)
    assert call.endswith(f"bin/measure --impl solutions --preset quick --fast --output {output}")
    assert one == other
    assert f"--data {lab.result} --out {lab.root}/figures/out" in one


@pytest.mark.slow
def test_measures_anew_what_is_older_than_the_code(lab: Lab) -> None:
    for file, seconds, calls in ((lab.library, 100, 0), *((file, 300, 1) for file in lab.libraries)):
        touch(lab.result, 200)
        touch(file, seconds)
        assert len(lab.draw().drawn) == 1
        assert len(lab.called()) == calls, file
        touch(file, 100)


@pytest.mark.parametrize(("made", "resumed"), [(200, True), (50, False)])
def test_goes_on_where_a_run_of_the_same_code_was_stopped(lab: Lab, made: int, resumed: bool) -> None:
    touch(lab.result.with_name(lab.result.name + ".partial"), made)
    lab.draw()
    assert ("--resume" in lab.called()[0]) == resumed


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (figures.UNFINISHED, "skipped", "draw: unfinished (solutions): 01"),
        (figures.REFUSED, "skipped", "hardware"),
        (1, "failed", "measure ended with exit code 1"),
    ],
)
def test_says_what_was_not_measured_and_why(lab: Lab, code: int, kind: str, message: str) -> None:
    lab.program(code)
    found = vars(lab.draw())
    assert message in found.pop(kind)[0]
    assert not any(found.values())
