"""Draws several figures and tables, as many at a time as there are cores; importing matplotlib is done once for all.

    python -m figures.lib.draw '[["plots.step_time", "--data", "figures/data/step_time.mlp_64.json"], ...]'

Prints a JSON list of [exit code, what the script printed], in the same order. `make figures` uses it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import multiprocessing
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor

from figures.lib import style  # noqa: F401  before processes are forked


def draw(call: list[str]) -> tuple[int, str]:
    module, *arguments = call
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            code = importlib.import_module(f"figures.{module}").main(arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except Exception:
            traceback.print_exc()
            code = 1
    return code, printed.getvalue()


if __name__ == "__main__":
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("fork")) as pool:
        print(json.dumps([*pool.map(draw, json.loads(sys.argv[1]))]))
