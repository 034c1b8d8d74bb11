"""The suite's A/B (`make ab`): DDP with buckets of 1 MB against 25 MB, measured, compared and drawn.

Runs build/bin/ddp_suite with both bucket sizes, which take turns, unless its result is up to date; draws the figure and
the tables; and prints what tools/ddp_diff.py says of the two reports. Exit code: that of `make figures`; 1 where the
reports cannot be compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import ddp_diff
import figures
import stages
import toolchain
from checkout_lock import hold
from drawings import DRAWINGS, SUITE_AB
from stages import BadChoice
from toolchain import LabError

BASELINE, TEST = "25", "1"  # MB, as published; SUITE_AB measures them


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make ab", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--impl", default="assignments", help="whose code: assignments (default) or solutions")
    parser.add_argument("--preset", default="quick", help="how much is measured: quick (default), full or paper")
    options = parser.parse_args()
    stages.choose("IMPL", options.impl, stages.IMPLEMENTATIONS)
    stages.choose("PRESET", options.preset, figures.PRESETS)
    return options


def report(options: argparse.Namespace, bucket_size: str) -> Path:
    """What ddp_suite has written beside its result."""
    return SUITE_AB[0].result(options.impl, options.preset).with_suffix(f".{bucket_size}MB.json")


def measure_and_draw(options: argparse.Namespace) -> figures.Summary:
    tools = toolchain.load()
    figures.require_packages(tools)
    with hold(Path(tools.build_dir) / "grade" / "lock", "make ab"):
        return figures.Figures(options, tools).draw_all([drawing for drawing in DRAWINGS if drawing.runs == SUITE_AB])


def main() -> int:
    start = time.monotonic()
    try:
        options = parse_arguments()
        summary = measure_and_draw(options)
    except BadChoice as error:
        print(error, file=sys.stderr)
        return 2
    except LabError as error:
        print(error, file=sys.stderr)
        return 3
    except OSError as error:
        print(f"{error.filename or 'make ab'}: {error.strerror}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130
    code = 1 if summary.failed else 0
    if summary.drawn:
        code = max(code, ddp_diff.main([str(report(options, size)) for size in (BASELINE, TEST)]))
    figures.print_summary(summary, time.monotonic() - start)
    return code


if __name__ == "__main__":
    sys.exit(main())
