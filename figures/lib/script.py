"""The command line of all figure scripts: result files in, figures or tables out, one line for each error."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from figures.lib import style, tables
from figures.lib.result_files import ResultError, load, name_of

# Makes the figures or tables of some result files, each with its name.
Draw = Callable[[list[Path]], Iterable[tuple[str, Figure | tables.Table]]]


def main(module: str, about: str, draw: Draw) -> Callable[..., int]:
    """A script's main(); its help begins as its text about itself does. Where the script is the program, which its name
    as a module tells, runs it and ends."""
    made = functools.partial(run, about.splitlines()[0], draw)
    if module == "__main__":
        sys.exit(made())
    return made


def run(description: str, draw: Draw, arguments: list[str] | None = None) -> int:
    """Saves what `draw` makes from --data to --out. Returns the exit code: 1 after a message on stderr."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="result files")
    parser.add_argument("--out", type=Path, default=Path("figures/out"), help="folder for what is drawn or set")
    options = parser.parse_args(arguments)
    try:
        for name, made in draw(options.data):
            save = style.save if isinstance(made, Figure) else tables.save
            for file in save(made, options.out, name):
                print(f"wrote {file}")
    except ResultError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cannot write to {options.out}: {error.strerror}; choose another folder with --out", file=sys.stderr)
        return 1
    return 0


def one_each(program: str, draw: Callable[[pd.DataFrame], Figure]) -> Draw:
    """One figure for each result file of `program`, named after it."""
    return lambda files: (
        (name_of(program, result), draw(result)) for result in (load(file, program) for file in files)
    )
