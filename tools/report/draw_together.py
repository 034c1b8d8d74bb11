"""Runs figure scripts, as many at a time as there are cores: draw_together.py < [[module, argument, ...], ...], JSON.

Each is `python -m figures.<module> argument ...` in a process of its own, but what takes longest of most of them,
importing matplotlib, is done once for all. Prints, in their order, a JSON list of [exit code, what it printed].
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
import tempfile
import traceback
from typing import IO


def start(call: list[str], printed: IO[str]) -> int:
    """The number of the process that runs it."""
    if process := os.fork():
        return process
    sys.argv, code = call, 0
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_module(f"figures.{call[0]}", run_name="__main__")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            traceback.print_exc()
            code = 1
    printed.flush()
    os._exit(code)


def main() -> None:
    sys.path[0] = os.getcwd()  # as with -m; beside this file there is another figures
    with contextlib.suppress(ImportError):  # a script that needs it says so
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot  # noqa: F401
    calls = json.load(sys.stdin)
    outputs = [tempfile.TemporaryFile("w+", encoding="utf-8") for _ in calls]
    codes: dict[int, int] = {}
    running: dict[int, int] = {}  # numbers of calls, by process

    def wait_for_one() -> None:
        process, status = os.wait()
        codes[running.pop(process)] = os.waitstatus_to_exitcode(status)

    for number, call in enumerate(calls):
        while len(running) >= (os.cpu_count() or 1):
            wait_for_one()
        running[start(call, outputs[number])] = number
    while running:
        wait_for_one()
    for output in outputs:
        output.seek(0)
    print(json.dumps([[codes[number], output.read()] for number, output in enumerate(outputs)]))


if __name__ == "__main__":
    main()
