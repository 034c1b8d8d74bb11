"""Grades again whenever a stage's sources are saved: make watch STAGE=02. Ctrl-C ends it."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

from tools.grading import stages
from tools.grading.stages import Stage
from tools.grading.terminal import ending_of
from tools.setup.toolchain import ROOT

POLL_S = 0.25


def main() -> int:
    return ending_of("make watch", _watch_as_asked)


def _watch_as_asked() -> int:
    parser = argparse.ArgumentParser(prog="make watch", description=__doc__, allow_abbrev=False)
    parser.add_argument("--stage", default="", help="01 to 07, or a stage's full name; all of them by default")
    parser.add_argument("--impl", default="", help="assignments (default), which is yours")
    options, for_grade = parser.parse_known_args()
    wanted = stages.find_stages(options.stage)
    impl = stages.choose_impl(options.impl)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return watch(wanted, impl, [f"--stage={options.stage}", f"--impl={impl}", "--reload", *for_grade])
    except KeyboardInterrupt:
        print("\nStopped watching.")
        return 0


def watch(wanted: list[Stage], impl: str, arguments: list[str]) -> int:
    while True:
        seen = snapshot(wanted, impl)  # before the run, so that a save during it counts
        code = grade(arguments)
        if code in (2, 128 + signal.SIGINT):  # a mistake in the command line, or Ctrl-C
            return code
        folders = ", ".join(f"{impl}/{stage.name}" for stage in wanted)
        print(f"\nWatching {folders} for the next save (Ctrl-C ends) ...", flush=True)
        while not (changed := difference(seen, snapshot(wanted, impl))):
            time.sleep(POLL_S)
        print(f"\n{time.strftime('%H:%M:%S')} {', '.join(changed)} was saved", flush=True)


def grade(arguments: list[str]) -> int:
    with subprocess.Popen([sys.executable, "-m", "tools.grading.grade", *arguments], cwd=ROOT) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()  # it stops what it started; leaving this block waits for that
            raise


def snapshot(wanted: list[Stage], impl: str) -> dict[Path, int]:
    """Each source with the time of its last change."""
    times = {}
    for stage in wanted:
        for path in (ROOT / impl / stage.name).glob("*"):
            try:
                if path.suffix in (".cpp", ".h"):
                    times[path] = path.stat().st_mtime_ns
            except FileNotFoundError:
                pass  # an editor is replacing the file: seen at the next look
    return times


def difference(before: dict[Path, int], after: dict[Path, int]) -> list[str]:
    return sorted(path.name for path in {*before, *after} if before.get(path) != after.get(path))


if __name__ == "__main__":
    sys.exit(main())
