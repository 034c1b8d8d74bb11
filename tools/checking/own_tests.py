"""Steps of `make check`: the stages, tests of the harness, the Python tests, the gallery, and a benchmark on stubs."""

from __future__ import annotations

import json
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
    folder, outcome = context.folder("harness"), Outcome()
    found, log = folder / f"{program}.{index}.json", folder / f"{program}.{index}.log"
    found.unlink(missing_ok=True)
    command = [str(context.build_dir / "bin" / program), f"--gtest_output=json:{found}", f"--seed={context.seed}"]
    env = {**(env or {}), "GTEST_TOTAL_SHARDS": str(CORES), "GTEST_SHARD_INDEX": str(index)}
    code, text = context.run(command, log, env)
    try:
        suites = json.loads(found.read_text(errors="replace"))["testsuites"]
    except (OSError, ValueError, KeyError):
        return Outcome(failures=[describe(f"{program} ended with code {code}", text[-4000:], log)])
    for test in [test for suite in suites for test in suite["testsuite"]]:
        name = f"{program}: {test['classname']}.{test['name']}"
        if test["result"] == "SKIPPED":
            outcome.skipped.append(f"{name}: {_reason(text, test['name'])}")
        elif test["result"] == "COMPLETED":
            failures = [failure["failure"] for failure in test.get("failures", [])]
            outcome.add(describe(name, "\n".join(failures), log) if failures else "")
    if code and not outcome.failures:
        outcome.add(describe(f"{program} ended with code {code}", text[-4000:], log))
    return outcome


def _reason(text: str, test: str) -> str:
    """Why a test was skipped: GoogleTest writes it on the lines after the test's start."""
    found = re.search(rf"\[ RUN +\] \S*{re.escape(test)}\n(?:.*: Skipped\n)?(.*)", text)
    return found[1].strip() if found else "no reason given"


def run_pytest(context: Context, tests: Path) -> Outcome:
    """Runs the tests of a folder, the slow ones with ALL=1. A file's tests run one after the other, since they share
    what they set up; those of several files at a time."""
    folder = context.folder("tools")
    log, found = folder / "pytest.log", folder / "pytest.xml"
    found.unlink(missing_ok=True)
    command = [context.toolchain.figure_python, "-m", "pytest", "--quiet", "--dist=loadfile", f"--junit-xml={found}"]
    command += [f"--numprocesses={CORES + 1}", "--durations=10"]  # most wait half of the time for what they run
    command += ["-m", "slow or not slow"] if context.everything else []
    env = {"ALL": "1" if context.everything else "", "PYTHONPATH": str(tests.parent)}
    code, text = context.run([*command, str(tests)], log, env, on_line=lambda line: context.show(line[:70]))
    outcome = Outcome()
    for case in ElementTree.parse(found).iter("testcase") if found.exists() else []:
        name, ended = f"{case.get('classname')}.{case.get('name')}", {part.tag: part for part in case}
        if "skipped" in ended:
            outcome.skipped.append(f"{name}: {ended['skipped'].get('message')}")
        else:
            bad = [part.text or "" for tag, part in ended.items() if tag in ("failure", "error")]
            outcome.add(describe(name, "\n".join(bad), log) if bad else "")
    if not outcome.failures and (code or not outcome.passed):
        outcome.add(describe(f"pytest ended with code {code}", text[-4000:], log))
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
