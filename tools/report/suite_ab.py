"""Runs the suite's A/B (`make ab`): DDP with buckets of 1 MB against 25 MB, measured and compared.

Prints how tools/report/ddp_diff.py compares the two reports, and sets the tables. Exit code: that of `make figures`; 1
if the reports cannot be compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tools.grading.terminal import ending_of
from tools.report import ddp_diff, figures
from tools.report.deliverables import DRAWINGS, SUITE_AB

BASELINE, TEST = "25", "1"  # MB, as published; SUITE_AB measures them


def report(options: argparse.Namespace, bucket_size: str) -> Path:
    """The file that step ddp_suite has written beside its result."""
    return SUITE_AB[0].result(options.impl, options.preset).with_suffix(f".{bucket_size}MB.json")


def main() -> int:
    start = time.monotonic()
    options = figures.parse_arguments("make ab", __doc__)
    drawings = [drawing for drawing in DRAWINGS if drawing.runs == SUITE_AB]
    summary = figures.measure_and_draw(options, drawings, "make ab")
    code = 1 if summary.failed else 0
    if summary.drawn:
        code = max(code, ddp_diff.main([str(report(options, size)) for size in (BASELINE, TEST)]))
    figures.print_summary(summary, time.monotonic() - start)
    return code


if __name__ == "__main__":
    sys.exit(ending_of("make ab", main))
