"""The lab's tests in C++, each program in as many parts as there are cores; CTest has them one by one, for editors."""

from __future__ import annotations

import re

import pytest

from tools.checking.context import CORES, Context
from tools.grading.compiling import unresolved

PROGRAMS = ("tests_common", "tests_benchmarks")
SECONDS = 3600


def shards() -> range:
    return range(CORES)


def run_shard(context: Context, program: str, shard: int, env: dict[str, str] | None = None) -> None:
    log = context.folder("cpp") / f"{program}.{shard}.log"
    part = {"GTEST_TOTAL_SHARDS": str(CORES), "GTEST_SHARD_INDEX": str(shard)}
    command = [str(context.build_dir / "bin" / program), f"--seed={context.seed}"]
    code, text = context.run(command, log, {**(env or {}), **part})
    if code:
        pytest.fail(f"{program} ended with code {code}; {log}\n{failed_tests(text) or text[-4000:]}", pytrace=False)
    assert re.search(r"^\[  PASSED  \] [1-9]", text, re.MULTILINE), f"nothing has passed: {log}"


def failed_tests(text: str) -> str:
    """What GoogleTest printed of tests that failed."""
    runs = re.findall(r"^\[ RUN      \] .*?^\[ +(?:OK|FAILED|SKIPPED) +\] [^\n]*", text, re.MULTILINE | re.DOTALL)
    return "\n".join(run for run in runs if "\n[  FAILED  ]" in run)


@pytest.mark.parametrize("shard", shards())
@pytest.mark.parametrize("program", [pytest.param(name, marks=pytest.mark.builds(name)) for name in PROGRAMS])
def test_program(program: str, shard: int, context: Context) -> None:
    run_shard(context, program, shard)


@pytest.mark.builds(*PROGRAMS)
def test_what_is_built_finds_all_that_it_uses(context: Context) -> None:
    assert unresolved.missing_in(context.build_dir) == []
