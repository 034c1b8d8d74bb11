"""Steps of `make check`: tests of the harness, the Python tests, the gallery, and a benchmark without stages."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from tools.checking import remembered
from tools.checking.context import CORES, Context, Outcome, describe
from tools.checking.remembered import Content
from tools.grading.stages import all_stages
from tools.setup.toolchain import ROOT

UNFINISHED = 3  # a benchmark's exit code if a stage is not written yet; benchmarks/harness/benchmark.h


def check_harness(context: Context) -> Outcome:
    """Runs build/bin/tests_harness and tests_benchmarks, each in as many parts as there are cores."""
    parts = [(program, index) for program in ("tests_harness", "tests_benchmarks") for index in range(CORES)]
    return Outcome().take(context.each(lambda part: _shard(context, *part), parts))


def _shard(context: Context, program: str, index: int) -> Outcome:
    contents = remembered.program(context, program, "ddp", "ddp_testing", "ddp_benchmarks")
    work = partial(run_shard, context, program, index)
    return remembered.outcome_of(context, f"{program}.{index}_of_{CORES}", [Path(__file__), *contents], work)


def run_shard(context: Context, program: str, index: int, env: dict[str, str] | None = None) -> Outcome:
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


def check_python(context: Context) -> Outcome:
    """All Python tests, by pytest. One may read anything in the checkout and run any program: they are remembered only
    if nothing changed."""
    contents = [str(context.everything), *_checkout(), *_built(context.build_dir)]
    return remembered.outcome_of(context, "pytest", contents, partial(run_pytest, context, ROOT / "tests"))


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


def _checkout() -> list[Content]:
    """All files that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    unknown = [secrets.token_hex()]  # without git nothing is remembered
    return [ROOT / line for line in done.stdout.splitlines()] if done.returncode == 0 else unknown


def _built(build_dir: Path) -> list[Content]:
    return sorted(
        path for folder in ("bin", "lib", "stages") for path in (build_dir / folder).rglob("*") if path.is_file()
    )


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
