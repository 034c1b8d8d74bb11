"""Steps of `make check`: tests of the harness, of the tools and of the figures, and a benchmark without stages."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from functools import partial
from pathlib import Path

from tools.checking import remembered
from tools.checking.context import CORES, Context, Outcome, describe
from tools.checking.remembered import Content
from tools.grading.stages import all_stages
from tools.setup.toolchain import ROOT

UNFINISHED = 3  # a benchmark's exit code if a stage is not written yet; benchmarks/harness/benchmark.h
_RAN = re.compile(r"^Ran (\d+) tests?", re.MULTILINE)
_COUNTS = re.compile(r"^(?:OK|FAILED)(?: \((.*)\))?$", re.MULTILINE)
_TEST = re.compile(r"^(?:ERROR|FAIL): ", re.MULTILINE)


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


def check_tools(context: Context) -> Outcome:
    """The Python tests, except those of the figures. Benchmarks are judged with what figures are made of, numpy too.
    What takes longest begins first: the benchmarks, and of the tools what makes an autograder (with ALL=1), and what
    grades code that is not trusted."""
    own = [*_test_files("tools"), *_test_files("harness")]
    own.sort(key=lambda path: "autograder" not in path.name and "untrusted" not in path.name)
    of_figures = [(context.toolchain.figure_python, path) for path in _test_files("benchmarks")]
    return _python_tests(context, [*of_figures, *((sys.executable, path) for path in own)])


def check_figures(context: Context) -> Outcome:
    """The tests of the figures, and which of the gallery's are of older code."""
    python = context.toolchain.figure_python
    outcome = _python_tests(context, [(python, path) for path in _test_files("figures")])
    code, text = context.run(
        [sys.executable, "-m", "tools.report.gallery", "--changes"], context.folder() / "gallery.log"
    )
    lines = text.strip().splitlines()
    if code:
        outcome.add(describe("figures/gallery", text))
    else:
        outcome.skipped += lines
    return outcome


def _python_tests(context: Context, files: list[tuple[str, Path]]) -> Outcome:
    """Runs these files, each by its Python. Such a test may read anything in the checkout and run any program: it is
    remembered only if nothing changed."""
    contents = [str(context.everything), *_checkout(), *_built(context.build_dir)]

    def verdict(file: tuple[str, Path]) -> Outcome:
        python, path = file
        work = partial(_run_python_tests, context, python, _module(path))
        return remembered.outcome_of(context, _module(path), [python, *contents], work)

    return Outcome().take(context.each(verdict, files, CORES + 1))  # most wait half of the time for what they run


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


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


def _test_files(room: str) -> list[Path]:
    return sorted((ROOT / "tests" / room).glob("test_*.py"))


def _run_python_tests(context: Context, python: str, name: str, root: Path = ROOT) -> Outcome:
    """Runs the module `name` of the folder `root`. Its slow tests look for ALL in the environment."""
    log = context.folder("tools") / f"{name}.log"
    command = [python, "-m", "unittest", name]
    env = {"ALL": "1" if context.everything else "", "PYTHONPATH": str(root)}
    code, text = context.run(command, log, env)
    ran, summary = _RAN.findall(text), _COUNTS.findall(text)
    if not ran or not summary or int(ran[-1]) == 0:
        return Outcome(failures=[describe(f"{name} ran no tests (code {code})", text[-4000:], log)])
    counts = dict(re.findall(r"(\w+)=(\d+)", summary[-1]))
    skipped = int(counts.get("skipped", 0))
    failed = int(counts.get("failures", 0)) + int(counts.get("errors", 0))
    outcome = Outcome(max(0, int(ran[-1]) - skipped - failed))
    outcome.skipped += [f"{skipped} of {name}"] if skipped else []
    blocks = re.split(r"^=+$", text, flags=re.MULTILINE)
    outcome.failures += [describe(name, block, log) for block in blocks if _TEST.match(block.lstrip())]
    if code and not outcome.failures:
        outcome.add(describe(f"{name} ended with code {code}", text[-4000:], log))
    return outcome


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
