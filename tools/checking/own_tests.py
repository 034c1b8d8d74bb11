"""Steps of `make check`: the stages, tests of the harness, the Python tests, the gallery, and a benchmark on stubs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

from tools.checking import claims
from tools.checking.context import CORES, Context, Outcome, describe, describe_tests
from tools.grading.compiling import unresolved
from tools.grading.scoring.results import StageReport, Status, TestResult
from tools.grading.stages import all_stages, named

UNFINISHED = 3  # a benchmark's exit code if a stage is not written yet; benchmarks/harness/benchmark.h


def check_solution(context: Context, stage_name: str) -> Outcome:
    """Each test passes. One that this machine cannot run counts as skipped, not as passed."""
    report, outcome = _grade(context, stage_name, "solutions"), Outcome()
    claims.keep_bodies(context, report)
    for result in _not_skipped(report, outcome):
        outcome.add("" if result.status is Status.PASSED else describe(stage_name, describe_tests([result])))
    if report.max_score != report.stage.points:
        outcome.add(
            f"the tests of {stage_name} add up to {report.max_score:g} points, but it has {report.stage.points}"
        )
    return outcome


def check_stub(context: Context, stage_name: str) -> Outcome:
    """Each test fails with the stub's TODO, and nothing crashes."""
    report, outcome = _grade(context, stage_name, "assignments"), Outcome()
    for result in _not_skipped(report, outcome):
        due = result.status is Status.TODO and "TODO(student)" in "".join(result.failures)
        title = f"{stage_name}: on a stub, a test should say TODO"
        outcome.add("" if due else describe(title, describe_tests([result])))
    return outcome


def _grade(context: Context, stage_name: str, impl: str) -> StageReport:
    stage = named(stage_name)
    return context.grade(stage, context.builder.library(stage, impl), context.tests_of(stage))


def _not_skipped(report: StageReport, outcome: Outcome) -> list[TestResult]:
    """The tests with a verdict. The skipped ones are noted in `outcome`, with their reasons."""
    skipped = [result for result in report.results if result.status is Status.SKIPPED]
    outcome.skipped += [f"{result.spec.name}: {' '.join(result.measured)}" for result in skipped]
    return [result for result in report.results if result not in skipped]


def run_shard(context: Context, program: str, index: int | str, env: dict[str, str] | None = None) -> Outcome:
    """One of as many parts of a program's tests as there are cores, with these variables."""
    folder = context.folder("harness")
    found, log = folder / f"{program}.{index}.xml", folder / f"{program}.{index}.log"
    command = [str(context.build_dir / "bin" / program), f"--gtest_output=xml:{found}", f"--seed={context.seed}"]
    env = {**(env or {}), "GTEST_TOTAL_SHARDS": str(CORES), "GTEST_SHARD_INDEX": str(index)}
    return _run(context, program, command, env, found, log)  # with more cores than tests a part may have none


def run_pytest(context: Context, tests: Path) -> Outcome:
    """Runs the tests of a folder, the slow ones with ALL=1. A file's tests run one after the other, since they share
    what they set up; those of several files at a time."""
    folder = context.folder("tools")
    log, found = folder / "pytest.log", folder / "pytest.xml"
    command = [context.toolchain.figure_python, "-m", "pytest", "--quiet", "--dist=loadfile", f"--junit-xml={found}"]
    command += [f"--numprocesses={CORES + 1}", "--durations=10"]  # most wait half of the time for what they run
    command += ["-m", "slow or not slow"] if context.everything else []
    env = {"ALL": "1" if context.everything else "", "PYTHONPATH": str(tests.parent)}
    outcome = _run(context, "pytest", [*command, str(tests)], env, found, log)
    if not (outcome.passed or outcome.failures):
        outcome.add(describe("of pytest's tests none has passed", "", log))
    return outcome


def _run(context: Context, title: str, command: list[str], env: dict[str, str], found: Path, log: Path) -> Outcome:
    """The verdicts that a command writes into the file `found`, of JUnit's form; to write none is a failure."""
    found.unlink(missing_ok=True)
    code, text = context.run(command, log, env)
    outcome = Outcome()
    for case in ElementTree.parse(found).iter("testcase") if found.exists() else []:
        name = f"{title}: {case.get('classname')}.{case.get('name')}"
        bad = [part.text or "" for part in case if part.tag in ("failure", "error")]
        if not bad and (skipped := case.find("skipped")) is not None:
            outcome.skipped.append(f"{name}: {skipped.get('message').splitlines()[-1]}")
        elif case.get("status") != "notrun":  # GoogleTest's, of those that are disabled
            outcome.add(describe(name, "\n".join(bad), log) if bad else "")
    if not outcome.failures and (code or not found.exists()):
        outcome.add(describe(f"{title} ended with code {code}", text[-4000:], log))
    return outcome


def check_gallery(context: Context) -> Outcome:
    """Which figures of the gallery are of older code."""
    log = context.folder() / "gallery.log"
    code, text = context.run([sys.executable, "-m", "tools.report.gallery", "--changes"], log)
    return Outcome.of(describe("figures/gallery", text)) if code else Outcome(skipped=text.strip().splitlines())


def check_defined(context: Context) -> Outcome:
    """What is built finds all that it uses."""
    missing = "\n".join(unresolved.missing_in(context.build_dir))
    return Outcome.of(describe("What is built lacks what nothing defines", missing) if missing else "")


def check_unfinished_benchmark(context: Context) -> Outcome:
    """A benchmark compiles against all five contracts, runs on the stubs, and names each stage as unfinished."""
    outcome, log = Outcome(), context.folder() / "all_stages.log"
    code, text = context.run([str(context.build_dir / "bin" / "all_stages"), "--impl=assignments"], log)
    for stage in all_stages():
        named = re.search(rf"^.*{stage.name}.*unfinished.*$", text, re.MULTILINE | re.IGNORECASE)
        outcome.add("" if named else describe(f"all_stages does not say that {stage.name} is unfinished", text, log))
    wrong_code = f"all_stages ended with {code} instead of {UNFINISHED}"
    outcome.add("" if code == UNFINISHED else describe(wrong_code, text, log))
    return outcome
