"""gdb on one rank of one test: make debug STAGE=01 TEST=name RANK=1.

The stage is compiled once more, with all variables and without optimization. The test runs once, to see in which of
its runs it fails; that run is repeated, its rank stops in the first function of yours that it calls, and gdb is there.
Nobody's deadlines hold: the other ranks go on, or wait. GDB_ARGS= is more for gdb, as in GDB_ARGS="-batch -ex bt".
backtrace shows the frames of your files and folds the harness's, which `backtrace -no-filters` shows.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import functools
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.grading import stages
from tools.grading.compiling.building import Builder, Watch
from tools.grading.running import minimum_activity, test_lists
from tools.grading.running.processes import BoundedText, GuardedProcess
from tools.grading.running.runner import MEMORY, RunOptions, inputs_seed, run_stage
from tools.grading.scoring.results import StageReport, Status, TestResult, TestSpec
from tools.grading.stages import BadChoice, Stage
from tools.grading.terminal import Terminal, ending_of
from tools.setup import cuda, system_packages, toolchain
from tools.setup.checkout_lock import hold
from tools.setup.columns import fold
from tools.setup.toolchain import LabError

PTRACE_SEIZE = 0x4206
TICK_S = 0.2  # how soon it is noticed that the run has ended before gdb could come
MAX_OUTPUT = 1 << 20
FRAMES = Path(__file__).with_name("gdb_frames.py")
_SCENARIO = re.compile(r'in "(.+?)" \(\d+ ranks?\)(?:, late callbacks)?: ')  # tests/grader/judge.cpp


@dataclass(frozen=True)
class Target:
    """What gdb looks at."""

    sources: list[Path]
    library: Path
    command: list[str]  # the run in which it waits, but for the folder where it says so


def main() -> int:
    return ending_of("make debug", _debug_as_asked)


def _debug_as_asked() -> int:
    options = _parse_arguments()
    system_packages.provide([system_packages.GDB], toolchain.BUILD_DIR / "setup.log")
    if gap := ptrace_gap():
        raise LabError(gap)
    tools = toolchain.load()
    if options.device == "cuda":
        cuda.require(tools)
    with hold(Path(tools.build_dir) / "grade" / "lock", "make debug"):
        target = prepare(options, Builder(tools, options.device))
    return attach(system_packages.GDB.find(), target, shlex.split(options.gdb_args))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make debug", description=__doc__, allow_abbrev=False)
    parser.add_argument("--stage", default="", help="01 to 07, or a stage's full name; by default the test's")
    parser.add_argument("--test", default="", help="the test's name")
    parser.add_argument("--rank", default="0", help="the rank that gdb looks at (default: 0)")
    parser.add_argument(
        "--scenario", default="", help="which of the test's runs, by its name; by default the failing one"
    )
    parser.add_argument("--impl", default="", help="assignments (default) or solutions")
    parser.add_argument("--seed", default="", help="repeats the run that printed it")
    parser.add_argument("--device", default="", help="cpu (default) or cuda")
    parser.add_argument("--gdb-args", default="", help="more of gdb's own arguments")
    options = parser.parse_args()
    if not options.test:
        raise BadChoice("make debug needs the name of a test, as in: make debug STAGE=01 TEST=<name> RANK=1")
    if not options.rank.isascii() or not options.rank.isdigit():
        raise BadChoice(f"RANK={options.rank} is not the number of a rank, as in RANK=1")
    options.rank = int(options.rank)
    options.target = the_test(options.test, stages.find_stages(options.stage))
    options.impl = stages.choose_impl(options.impl)
    options.device = stages.choose("DEVICE", options.device or "cpu", stages.DEVICES)
    options.seed = stages.choose_seed(options.seed)
    return options


def ptrace_gap() -> str:
    """Why no debugger works here; empty if one does."""
    libc = ctypes.CDLL(None, use_errno=True)
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            failed = libc.ptrace(PTRACE_SEIZE, child.pid, None, None)
        finally:
            child.kill()
    if not failed:
        return ""
    return (
        f"This system lets nobody look into processes (ptrace: {os.strerror(ctypes.get_errno() or errno.EPERM)}), and "
        "gdb must. A container is allowed to by: docker run --cap-add=SYS_PTRACE ... "
        "Elsewhere: sudo sysctl kernel.yama.ptrace_scope=1"
    )


def prepare(options: argparse.Namespace, builder: Builder) -> Target:
    """Builds the stage, and finds out which scenario of the test to look at."""
    stage, test = options.target
    with Watch() as watch:
        if error := builder.build_stage(stage, options.impl, watch, debug=True):
            raise LabError(f"{stage.name} does not compile:\n{error}")
    library = builder.debug_library(stage, options.impl)
    report = StageReport(stage, [TestResult(test)])
    run_stage(builder.program(stage), library, report, RunOptions(options.seed, options.device), lambda _: None)
    (result,) = report.results
    said = "\n".join(result.failures + result.notes)
    known = minimum_activity.counts(stage) or report.activity
    failing = next((found[1] for text in result.failures if (found := _SCENARIO.match(text))), "")
    scenario = options.scenario or failing or next(iter(result.scenarios), "")
    if scenario not in result.scenarios:
        listed = "\n  ".join(stages.closest_first(scenario, result.scenarios)) or f"none, as it says itself:\n{said}"
        raise BadChoice(f"SCENARIO={scenario} is no run that {test.name} is judged on; these are:\n  {listed}")
    ranks = sum(isinstance(one, dict) for one in known.get(scenario, []))  # beside edge cases, which are texts
    if ranks and options.rank >= ranks:
        raise BadChoice(f'RANK={options.rank}: "{scenario}" has {ranks} ranks, of which the last is {ranks - 1}')
    outcome = {Status.PASSED: "passes", Status.TODO: "meets a stub"}.get(result.status, "fails")
    about = f'gdb comes to rank {options.rank} of "{scenario}".'
    terminal = Terminal()
    terminal.print(fold(f"{test.name} {outcome}, with SEED={options.seed}. {said}".rstrip(), terminal.width))
    about += " There: next, step, up, continue, backtrace, info locals; quit ends."
    terminal.print(fold(about, terminal.width))
    command = ["/usr/bin/env", *(f"{name}={value}" for name, value in MEMORY.items()), str(builder.program(stage))]
    command += [f"--stage-library={library}", f"--test={test.name}", f"--seed={inputs_seed(options.seed, stage)}"]
    command += [f"--device={options.device}", f"--debug-scenario={scenario}", f"--debug-rank={options.rank}"]
    return Target(stage.sources(options.impl), library, command)


def the_test(pattern: str, chosen: list[Stage]) -> tuple[Stage, TestSpec]:
    found = test_lists.chosen(pattern, chosen)
    if len(found) > 1:
        listed = "\n".join(f"  STAGE={stage.number} TEST={spec.name}" for stage, spec in found)
        raise BadChoice(f"TEST={pattern} means several; gdb looks at one:\n{listed}")
    return found[0]


def attach(gdb: str, target: Target, arguments: list[str]) -> int:
    """Runs the scenario, and gdb in the foreground; returns gdb's exit code."""
    with tempfile.TemporaryDirectory(prefix="ddp-lab-debug-") as folder, waiting_rank(target, Path(folder)) as pid:
        quietly = f"| cat > {os.devnull}"
        own = str(target.sources[0].parent)
        commands = ["set confirm off", "set pagination off", f"source {FRAMES}", f"python fold_all_but({own!r})"]
        commands += [f"pipe attach {pid} {quietly}"]
        commands += [f"pipe break -source {path} -line {line} {quietly}" for path, line in functions(gdb, target)]
        commands += [f"shell echo > {shlex.quote(folder)}/go", "continue", "delete", "catch throw"]
        start = [option for each in commands for option in ("-ex", each)]
        environment = {name: value for name, value in os.environ.items() if name != "DEBUGINFOD_URLS"}
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the rank, in gdb
        try:
            command = [gdb, "-q", *start, *arguments]
            default = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
            return subprocess.run(command, env=environment, check=False, preexec_fn=default).returncode
        finally:
            signal.signal(signal.SIGINT, before)


def functions(gdb: str, target: Target) -> list[tuple[Path, int]]:
    """Where the functions in the student's files begin."""
    command = [gdb, "-nx", "-batch", "-ex", "info functions -q -n .", str(target.library)]
    listed = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout
    found = []
    for path in target.sources:
        section = listed.partition(f"File {path}:\n")[2].partition("\n\n")[0]
        found += [(path, int(line)) for line in sorted(set(re.findall(r"^(\d+):\t", section, re.MULTILINE)), key=int)]
    return found


@contextlib.contextmanager
def waiting_rank(target: Target, folder: Path) -> Iterator[int]:
    """The process id of the rank, which waits for something in the pipe <folder>/go. The run ends with the block."""
    for name in ("rank", "go"):
        os.mkfifo(folder / name, 0o600)
    held = os.open(folder / "go", os.O_RDWR)  # so that neither gdb nor the rank, stopped as it is, blocks in open()
    output = BoundedText(MAX_OUTPUT)
    with GuardedProcess([*target.command, f"--debug={folder}"]) as process:
        listener = threading.Thread(target=_listen, args=(process, output), daemon=True)
        listener.start()
        try:
            yield _arrival(folder / "rank", listener, output)
        finally:
            process.stop()
            listener.join()
            os.close(held)


def _listen(process: GuardedProcess, output: BoundedText) -> None:
    for _, data in process.events():
        output.add(data)


def _arrival(pipe: Path, listener: threading.Thread, output: BoundedText) -> int:
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while listener.is_alive():
            if select.select([reader], [], [], TICK_S)[0] and (text := os.read(reader, 64).strip()):
                return int(text)
    finally:
        os.close(reader)
    raise LabError(f"The run ended before the rank could be stopped. It said:\n{output.last_lines(20)}")


if __name__ == "__main__":
    sys.exit(main())
