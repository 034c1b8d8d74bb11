"""Draws the writeup's figures (`make figures`): runs the benchmarks whose results are missing or stale, then draws.

A result is stale if it is older than the program, the lab's libraries or a stage that it measured. A stopped run that
is not stale is resumed. Results and figures are named after implementation and preset, so those of the solutions never
pass for a student's. A figure of several stages shows the finished ones; if there are none, it is skipped, with a
message. Exit code: 0 if nothing failed, 1 if something did, 2 for a bad choice, 3 if the lab could not be built.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tools.grading import released, stages
from tools.grading.compiling.building import Builder
from tools.grading.scoring.results import replace_file
from tools.grading.terminal import ending_of
from tools.report import deliverables
from tools.report.deliverables import DRAWINGS, Drawing, Run
from tools.setup import cuda, progress, toolchain
from tools.setup.checkout_lock import hold
from tools.setup.toolchain import FIGURE_PACKAGES, ROOT, Toolchain

PRESETS = ("quick", "full", "paper")
# Exit codes of benchmarks, see benchmarks/measuring/benchmark.h.
UNFINISHED = 3  # it called a stub
REFUSED = 4  # the preset needs hardware that is not here
OUT = ROOT / "figures" / "out"
SHOWN = 8  # lines of a program that failed


@dataclass
class Summary:
    drawn: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)  # drawn without a stage that nobody has begun
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def parse_arguments(command: str, description: str) -> argparse.Namespace:
    """Parses --impl, --preset and --stage. `command` is what the user types."""
    parser = argparse.ArgumentParser(prog=command, description=description.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--impl", default="assignments", help="whose code: assignments (default), which is yours")
    parser.add_argument("--preset", default="quick", help="how much is measured: quick (default), full or paper")
    parser.add_argument("--stage", default="", help="only what belongs to this stage")
    options = parser.parse_args()
    stages.choose_impl(options.impl)
    stages.choose("PRESET", options.preset, PRESETS)
    if os.environ.get("DEVICE") == "cuda":
        raise stages.BadChoice(
            f"{command} takes no DEVICE=: PRESET=paper measures on GPUs, the others on the CPU. "
            "One measurement of any size: build/bin/<program> --device cuda"
        )
    options.stages = stages.find_stages(options.stage)
    return options


def commit() -> str:
    """The measured commit, marked if files have been changed since."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    release = released.load()
    return described.stdout.strip() or (release.commit[:12] if release else "unknown")


def is_fresh(result: Path, sources: list[Path]) -> bool:
    if not result.exists():
        return False
    made = result.stat().st_mtime
    return all(source.exists() and source.stat().st_mtime <= made for source in sources)


def time_left(line: str) -> str | None:
    """What a benchmark's line says of how far it is: benchmarks/measuring/interleaved.cpp."""
    return line.strip() if line.endswith(" s left") else None


class Figures:
    def __init__(self, options: argparse.Namespace, tools: Toolchain) -> None:
        self._impl, self._preset = options.impl, options.preset
        self._tools = tools
        for_gpus = cuda.gpus()[0] and not cuda.why_not_built(tools.build_dir)  # the preset paper, and --device cuda
        self._builder = Builder(tools, "cuda" if for_gpus else "cpu")
        self._bin = Path(tools.build_dir) / "bin"
        self._lib = Path(tools.build_dir) / "lib"
        self._summary = Summary()
        self._due: dict[Path, list[Path]] = {}  # results to be made anew, and what they must not be older than
        self._codes: dict[Path, int] = {}  # exit codes of this call's runs

    def draw_all(self, drawings: list[Drawing]) -> Summary:
        drawings = [drawing for drawing in drawings if self._is_begun(drawing)]
        if not drawings:
            return self._summary  # nothing is built for it
        self._builder.build_common(sorted({run.program.split()[0] for drawing in drawings for run in drawing.runs}))
        wanted = list(dict.fromkeys(stage for drawing in drawings for stage in drawing.stages))
        broken = self._builder.build(wanted, self._impl)
        for stage in wanted:
            if stage.name in broken:
                # An older build must not be measured in its place.
                self._builder.library(stage, self._impl).unlink(missing_ok=True)
        self._announce([drawing for drawing in drawings if {stage.name for stage in drawing.stages} - {*broken}])
        measured = []
        for drawing in drawings:
            errors = [stage for stage in drawing.stages if stage.name in broken]
            for stage in errors:
                self._summary.failed.append(f"{drawing.module}: {stage.title} does not compile; see make test")
            if len(errors) < len(drawing.stages) and self._measure(drawing):
                measured.append(drawing)
        # Afterwards, since drawing beside a measurement would disturb it.
        print(f"Drawing {len(measured)} times", flush=True)
        for drawing, (code, printed) in zip(measured, self._draw(measured)):
            if code:
                self._summary.failed.append(f"{drawing.module}: could not be drawn, see above")
            else:
                self._summary.drawn += [line.removeprefix("wrote ") for line in printed.splitlines()]
        return self._summary

    def _announce(self, drawings: list[Drawing]) -> None:
        """How many runs are to come and how long they take, before the first."""
        results, seconds = set(), 0
        for drawing in drawings:
            for run in drawing.runs:
                result, sources = run.result(self._impl, self._preset), self._sources(run, drawing)
                results.add(result)
                if result not in self._due and not is_fresh(result, sources):
                    self._due[result] = sources
                    seconds += run.seconds
        fresh = f"{len(results) - len(self._due)} of {len(results)} results are up to date"
        if not self._due:
            print(f"Nothing is to be measured: {fresh}.", flush=True)
            return
        time_ = f"about {max(1, round(seconds / 60))} min on two cores" if self._preset == "quick" else "hours"
        print(
            f"To measure: {len(self._due)} run{'s' * (len(self._due) > 1)}, {time_}; {fresh}. What is measured is "
            "kept: after a Ctrl-C the same command goes on.",
            flush=True,
        )

    def _is_begun(self, drawing: Drawing) -> bool:
        """Notes what waits for which stage; False if all of it does."""
        stubs = [stage for stage in drawing.stages if stage.is_stub(self._impl)]
        titles = ", ".join(stage.title for stage in stubs)
        if len(stubs) == len(drawing.stages):
            self._summary.skipped.append(f"{drawing.module}: unfinished ({self._impl}): {titles}")
        elif stubs:
            self._summary.waiting.append(f"{drawing.module}: for {titles} ({self._impl}), and shows the others")
        return len(stubs) < len(drawing.stages)

    def _measure(self, drawing: Drawing) -> bool:
        """Brings the results up to date; False if there are none to draw."""
        for run in drawing.runs:
            code = self._bring_up_to_date(run)
            if code == UNFINISHED:
                self._summary.skipped.append(f"{drawing.module}: unfinished ({self._impl}): {drawing.titles()}")
            elif code == REFUSED:
                self._summary.skipped.append(f"{drawing.module}: {run.program} needs other hardware, see above")
            elif code:
                self._summary.failed.append(f"{drawing.module}: {run.program} ended with exit code {code}, see above")
            if code:
                return False
        return True

    def _sources(self, run: Run, drawing: Drawing) -> list[Path]:
        """What its result must not be older than."""
        libraries = [self._builder.library(stage, self._impl) for stage in drawing.stages]
        programs = [self._lib / f"lib{name}.so" for name in ("ddp", "ddp_benchmarks", f"{run.program.split()[0]}_code")]
        return [*libraries, *programs, *run.reads]

    def _bring_up_to_date(self, run: Run) -> int:
        """The program's exit code; 0 if there was nothing to do."""
        result = run.result(self._impl, self._preset)
        if result in self._due and result not in self._codes:
            partial = result.with_name(result.name + ".partial")  # left by a stopped run
            resume = ("--resume",) if is_fresh(partial, self._due[result]) else ()
            self._codes[result] = self._run(run, resume, result)
        return self._codes.get(result, 0)

    def _run(self, run: Run, more: tuple[str, ...], result: Path) -> int:
        """Its output goes into a log; what it said at last is shown if it fails."""
        program, *flags = (*run.command(self._impl, self._preset), *more)
        result.parent.mkdir(parents=True, exist_ok=True)
        log = Path(self._tools.build_dir) / "figures" / f"{result.stem}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        # Relative paths: the command is written into the result.
        program, output = (os.path.relpath(path, ROOT) for path in (self._bin / program, result))
        title = f"[{len(self._codes) + 1}/{len(self._due)}] {' '.join(filter(None, (run.program, run.label)))}"
        command = [program, *flags, "--output", output]
        code, said = progress.run(command, title, log, {"DDP_LAB_COMMIT": commit()}, time_left, ROOT)
        if code:
            print("\n".join(f"  | {line}" for line in said[-SHOWN:]))
            print(f"  {stages.short_paths(str(log))} has all that it said", flush=True)
        return code

    def _draw(self, drawings: list[Drawing]) -> list[tuple[int, str]]:
        """Of each script the exit code, and what it printed: the files that it wrote."""
        results = [[str(run.result(self._impl, self._preset)) for run in drawing.runs] for drawing in drawings]
        calls = [[d.module, "--data", *data, "--out", str(OUT)] for d, data in zip(drawings, results)]
        command = [self._tools.figure_python, "-m", "figures.lib.draw", json.dumps(calls)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else [(done.returncode, "")] * len(drawings)


def print_summary(summary: Summary, seconds: float) -> None:
    for title, lines in (
        ("Drawn", summary.drawn), ("Waits", summary.waiting), ("Skipped", summary.skipped), ("Failed", summary.failed)
    ):  # fmt: skip
        for line in lines:
            print(f"{title}: {stages.short_paths(line)}")
    print(
        f"{len(summary.drawn)} files drawn, {len(summary.skipped)} figures skipped, {len(summary.failed)} failed, "
        f"in {seconds:.0f} s"
    )


def draw_as_asked() -> int:
    start = time.monotonic()
    options = parse_arguments("make figures", __doc__)
    figure = os.environ.get("FIGURE", "")
    known = sorted({drawing.module.removeprefix("plots.") for drawing in DRAWINGS})
    if figure:
        stages.choose("FIGURE", figure, known)
    wanted = [
        drawing
        for drawing in DRAWINGS
        if drawing.is_asked_for_by(options.stages) and figure in ("", drawing.module.removeprefix("plots."))
    ]
    summary = measure_and_draw(options, wanted, "make figures")
    print_summary(summary, time.monotonic() - start)
    return 1 if summary.failed else 0


def measure_and_draw(options: argparse.Namespace, wanted: list[Drawing], command: str) -> Summary:
    tools = toolchain.load()
    toolchain.require_packages(tools.figure_python, FIGURE_PACKAGES)
    with hold(Path(tools.build_dir) / "grade" / "lock", command):
        summary = Figures(options, tools).draw_all(wanted)
    keep_failures(options.impl, options.preset, {drawing.module for drawing in wanted}, summary.failed)
    return summary


def keep_failures(impl: str, preset: str, tried: set[str], failed: list[str]) -> None:
    """Until they are made, so that `make writeup` does not pass over them. `failed` has a line for each, which begins
    with one of the modules that were tried."""
    left = [line for line in _failures(impl, preset) if line.partition(":")[0] not in tried]
    with contextlib.suppress(OSError):  # a full disk, of which drawing has complained
        _failures_file(impl, preset).parent.mkdir(parents=True, exist_ok=True)
        replace_file(_failures_file(impl, preset), json.dumps([*left, *failed], indent=1).encode() + b"\n")


def failures_of(impl: str, preset: str, chosen: list[stages.Stage]) -> list[str]:
    """Those that concern these stages."""
    modules = {drawing.module for drawing in deliverables.DRAWINGS if drawing.is_asked_for_by(chosen)}
    return [line for line in _failures(impl, preset) if line.partition(":")[0] in modules]


def _failures(impl: str, preset: str) -> list[str]:
    file = _failures_file(impl, preset)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else []


def _failures_file(impl: str, preset: str) -> Path:
    return deliverables.DATA / f"failed.{impl}.{preset}.json"


def main() -> int:
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.default_int_handler)  # what runs is ended, too
    return ending_of("make figures", draw_as_asked)


if __name__ == "__main__":
    sys.exit(main())
