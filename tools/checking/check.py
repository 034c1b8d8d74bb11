"""The repository's own tests: make check.

Ninja builds everything, and does what hangs on it (trials.py) in the same queue; CTest says what each trial ended
with, and does those that Ninja cannot remember; pytest runs the Python tests. The last line counts what passed and
failed; the exit code is 0 only if nothing failed.

A plain run tries one mutant for each graded test, two variants a stage and a sample of the linter's files. ALL=1 tries
all of them, the sanitizers, other compilers, the oldest PyTorch, a build for arm64 and the slow Python tests. Neither
repeats what has passed unless a file changed that it hangs on; FRESH=1 does. ONLY="format lint" runs these kinds of
trials alone; ONLY=machines, which no other run does, tries the lab on fresh systems.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from tools.checking import own_tests
from tools.checking.context import CORES, Context, Outcome, describe
from tools.checking.trials import ALL, APART, CHECK, KINDS, LONG, PASSED
from tools.grading import stages
from tools.grading.compiling import stale
from tools.grading.compiling.compile_errors import condense
from tools.grading.stages import short_paths
from tools.setup import toolchain
from tools.setup.checkout_lock import hold
from tools.setup.progress import ProgressLine, elapsed
from tools.setup.toolchain import LabError, Toolchain

BUILD, PYTHON = "build", "python"
KNOWN = [BUILD, *KINDS, PYTHON]
SANITIZERS = {"address": "address", "undefined": "address", "thread": "thread"}
_FAILED = re.compile(r"^FAILED: (?:\[code=\d+\] )?(.*?) *$", re.MULTILINE)
_NINJAS_OWN = re.compile(r"^(\[\d+/\d+\] |FAILED: |cd .* && |ninja: ).*\n", re.MULTILINE)
_OUTPUT = ["--output-on-failure", "--no-tests=error", "--test-output-size-passed", "99999"]


def main() -> int:
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.default_int_handler)
    try:
        options = parse_arguments()
        return check(toolchain.load(), options)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, stages.BadChoice) else 3
    except KeyboardInterrupt:
        print("\nStopped.", flush=True)
        os._exit(130)  # at once: tools/grading/running/guard.py ends what other threads still run


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make check", description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", action="append", default=[], help=f"just these of {', '.join(KNOWN)}")
    parser.add_argument("--sanitize", choices=SANITIZERS, help="just what this sanitizer says")
    parser.add_argument("--all", action="store_true", help="also what takes long, and no samples")
    parser.add_argument("--fresh", action="store_true", help="forget what passed in earlier runs")
    parser.add_argument("--seed", default=os.environ.get("SEED"), help="repeats the run that printed it")
    options = parser.parse_args()
    options.only = [stages.choose("ONLY", name, KNOWN) for names in options.only for name in names.split()]
    options.only += [SANITIZERS[options.sanitize]] if options.sanitize else []
    options.seed = stages.choose_seed(options.seed)
    return options


def check(tools: Toolchain, options: argparse.Namespace) -> int:
    started, total = time.monotonic(), Outcome()
    tried = "everything" if options.all else "a mutant for each test, two variants a stage; ALL=1 for everything"
    print(f"Checking with seed {options.seed} on {CORES} cores: {tried}.", flush=True)
    os.environ |= {"SEED": str(options.seed), "ALL": "1" if options.all else ""}  # for the trials
    with hold(Path(tools.build_dir) / "grade" / "lock", "make check"):
        for outcome in _steps(tools, options):
            total.take([outcome])
    print_summary(total, time.monotonic() - started, options.seed)
    return 1 if total.failures else 0


def _steps(tools: Toolchain, options: argparse.Namespace) -> Iterator[Outcome]:
    only, line = options.only, ProgressLine("Building, and trying what is built")
    context = Context(tools, options.seed, options.all, line.show)
    if options.fresh:
        shutil.rmtree(context.build_dir / PASSED, ignore_errors=True)
    trials = not only or any(kind in only for kind in KINDS)
    chosen = selection(options)
    try:
        names = listed(context, chosen) if trials else []
        built, failed_first = build(context, ["all"] if not only or BUILD in only else [], names)
    except LabError as error:
        built, failed_first = Outcome.of(str(error)), []
    yield ended(line, built)
    if built.failures:
        return  # nothing else could be trusted
    if trials:
        line = ProgressLine("Trials, by CTest")
        yield ended(line, run_ctest(replace(context, show=line.show), chosen, names, failed_first))
    if not only or PYTHON in only:
        line = ProgressLine("Tests of the tools and figures, by pytest")
        yield ended(line, own_tests.run_pytest(replace(context, show=line.show), toolchain.ROOT / "tests"))


def selection(options: argparse.Namespace) -> list[str]:
    """CTest's options that choose the trials."""
    tier = ALL if options.all else CHECK
    if not options.only:
        return ["--preset", tier]
    return ["-L", f"^({tier}|{LONG}|{APART})$", "-L", f"^({'|'.join(options.only)})$"]


def listed(context: Context, chosen: list[str]) -> list[str]:
    """The tests that these options choose, of the files as they are now."""
    log, tools = context.folder() / "ctest_list.log", context.toolchain
    configure = [tools.cmake, "--build", tools.build_dir, "--target", "build.ninja"]
    for command in (configure, [*ctest(context, chosen), "--show-only=json-v1"]):
        code, text = context.run(command, log)
        if code:
            break
    if code:
        raise LabError(describe("CTest cannot list the trials", text[-4000:], log))
    return [test["name"] for test in json.loads(text[text.index("{") :])["tests"]]


def ctest(context: Context, chosen: list[str]) -> list[str]:
    folder = [] if "--preset" in chosen else ["--test-dir", str(context.build_dir)]
    return [str(Path(context.toolchain.cmake).with_name("ctest")), *folder, *chosen]


def build(context: Context, targets: list[str], names: list[str]) -> tuple[Outcome, list[str]]:
    """Builds, and tries what Ninja remembers; returns what did not compile, and the trials that failed."""
    tools, log = context.toolchain, context.folder() / "build.log"
    known = (context.build_dir / "build.ninja").read_text(encoding="utf-8")
    passed = [str(PASSED / name.removeprefix("check.")) for name in names]
    targets = targets + [name for name in passed if f"build {name} " in known or f"build {name}:" in known]
    if not targets:
        return Outcome(), []
    command = [tools.cmake, "--build", tools.build_dir, "--parallel", str(CORES), "--target", *targets, "--", "-k0"]
    code, text = context.run(command, log)
    if code and stale.forget_precompiled(context.build_dir, text):
        code, text = context.run(command, log)
    failed = _FAILED.findall(text)
    if code and not (failed and all(name.startswith("check/") for name in failed)):
        return Outcome.of(describe("The build", condense(text), log)), []
    return Outcome(), failed


def run_ctest(context: Context, chosen: list[str], names: list[str], failed_first: list[str]) -> Outcome:
    found, log = context.folder() / "ctest.xml", context.folder() / "ctest.log"
    found.unlink(missing_ok=True)
    command = [*ctest(context, chosen), *_OUTPUT, "--output-junit", str(found), "--parallel", str(CORES)]
    code, text = context.run(command, log)
    outcome, seen = Outcome(), set()
    for case in ElementTree.parse(found).iter("testcase") if found.exists() else []:
        name, said = case.get("name"), _NINJAS_OWN.sub("", case.findtext("system-out") or "")
        seen.add(name)
        outcome.skipped += re.findall(r"^skipped: (.*)$", said, re.MULTILINE)
        wrong = case.get("status") != "run" and f"{said[-8000:]}\n{case.find('*').get('message') or ''}"
        outcome.add(describe(name, wrong, log) if wrong else "")
    if missing := set(names) - seen:
        outcome.add(f"{len(missing)} of {len(names)} trials have no verdict: {', '.join(sorted(missing)[:9])}")
    if code and not outcome.failures:
        outcome.add(describe(f"CTest ended with code {code}", text[-4000:], log))
    if failed_first and not outcome.failures:
        outcome.add(f"failed when Ninja did them, and passed again: {', '.join(failed_first)}; see check/build.log")
    return outcome


def ended(line: ProgressLine, outcome: Outcome) -> Outcome:
    line.done(counts(outcome))
    for text in outcome.skipped:
        print(f"  skipped: {text}")
    for text in outcome.failures:
        print(f"\n{text}\n")
    sys.stdout.flush()
    return outcome


def counts(outcome: Outcome) -> str:
    parts = [f"{outcome.passed} passed"] if outcome.passed or not outcome.failures else []
    parts += [f"{len(outcome.skipped)} skipped"] if outcome.skipped else []
    parts += [f"{len(outcome.failures)} FAILED"] if outcome.failures else []
    return ", ".join(parts)


def print_summary(total: Outcome, seconds: float, seed: int) -> None:
    print()
    for text in total.failures:
        print(f"FAILED  {short_paths(text.splitlines()[0])}")
    if total.failures:
        print(f"Each in full above. The same again: make check SEED={seed}")
    if total.skipped:
        print(f"{len(total.skipped)} skipped, which is not passed.")
    print(f"All in {elapsed(seconds)} minutes. make check FRESH=1 does again what passed before.")
    print(f"{total.passed} passed, {len(total.failures)} failed", flush=True)


if __name__ == "__main__":
    sys.exit(main())
