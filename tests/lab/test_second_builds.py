"""The lab built otherwise, each in a folder of its own: by other compilers, on the oldest torch, under sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.marks import STAGES, each_stage, params
from tests.lab.test_cpp import run_shard, shards
from tools.checking import mutants, sanitizers, second_build
from tools.checking.context import Context, describe_tests, not_passed
from tools.checking.in_place import Variant, try_variant, variants_of
from tools.checking.mutants import Mutant
from tools.checking.sanitizers import ADDRESS, THREAD, Watched, Watcher
from tools.grading.compiling import unresolved
from tools.grading.debugging.sanitizer_reports import is_installed
from tools.grading.running.runner import RunOptions
from tools.grading.stages import Stage
from tools.setup.checkout_lock import hold
from tools.setup.toolchain import LabError

HOURS = 3 * 3600
pytestmark = [pytest.mark.slow, pytest.mark.timeout(HOURS)]
WATCHERS = {watcher.name: watcher for watcher in (ADDRESS, THREAD)}
each_sanitizer = pytest.mark.parametrize("watcher", WATCHERS.values(), ids=WATCHERS)


def full_marks(other: Context, stage: Stage, options: RunOptions) -> str:
    tests = other.tests_of(stage)
    report = other.grade(stage, other.builder.library(stage, "solutions"), tests, options)
    assert report.results
    return describe_tests(not_passed(report))


def builds_and_solves(context: Context, name: str, **toolchain: str) -> None:
    other = second_build.second_build(context, name, second_build.stage_targets(), **toolchain)
    assert unresolved.missing_in(other.build_dir) == [], "what is built lacks what nothing defines"
    failures = [full_marks(other, stage, RunOptions(context.seed)) for stage in STAGES]
    assert not any(failures), "\n".join(failures)


@pytest.mark.parametrize("end", second_build.ENDS)
@pytest.mark.parametrize("family", second_build.TESTED)
def test_compiler(family: str, end: str, context: Context) -> None:
    cxx = second_build.compiler(context, family, end)
    if not cxx:
        pytest.skip(f"no {family} that is tested is here or can be installed")
    if Path(cxx).resolve() == Path(context.toolchain.cxx).resolve():
        pytest.skip("the other tests use it")
    builds_and_solves(context, f"built_by_{Path(cxx).name}", cxx=cxx)


def test_oldest_torch(context: Context) -> None:
    torch = second_build.oldest_torch(context)
    builds_and_solves(context, f"built_on_{torch.parent.name}", python="", libtorch=str(torch))


@pytest.fixture(scope="session")
def sanitized(context: Context) -> dict[str, Context | str]:
    return {}  # the builds, by the sanitizer's name, or why there is none


def built_with(watcher: Watcher, context: Context, sanitized: dict[str, Context | str]) -> Context:
    if not is_installed(watcher, context.toolchain.cxx):
        pytest.skip(f"{context.toolchain.cxx} has no {watcher.title} here")
    with hold(context.folder() / f"{watcher.name}.lock", "the lab's tests"):
        if watcher.name not in sanitized:
            try:
                sanitized[watcher.name] = sanitizers.build(context, watcher)
            except LabError as error:
                sanitized[watcher.name] = str(error)
    found = sanitized[watcher.name]
    if isinstance(found, str):
        pytest.fail(found, pytrace=False)
    return found


def require_nothing(failure: str, watched: Watched) -> None:
    if said := failure or watched.reported():
        pytest.fail(said, pytrace=False)


@each_stage
@each_sanitizer
def test_sanitized_solution(
    watcher: Watcher, stage: Stage, context: Context, sanitized: dict[str, Context | str]
) -> None:
    other = built_with(watcher, context, sanitized)
    watched = Watched(other, watcher, stage.name)
    require_nothing(full_marks(other, stage, watched.options), watched)


@pytest.mark.parametrize("shard", shards())
@each_sanitizer
def test_sanitized_harness(watcher: Watcher, shard: int, context: Context, sanitized: dict[str, Context | str]) -> None:
    other = built_with(watcher, context, sanitized)
    watched = Watched(other, watcher, f"tests_common.{shard}")
    run_shard(other, "tests_common", shard, watched.environment | {"GTEST_FILTER": f"-{':'.join(watcher.cannot_run)}"})
    require_nothing("", watched)


@pytest.mark.parametrize("variant", params([each for stage in STAGES for each in variants_of(stage)], []))
def test_variant_with_address_sanitizer(
    variant: Variant, context: Context, sanitized: dict[str, Context | str]
) -> None:
    other = built_with(ADDRESS, context, sanitized)
    watched = Watched(other, ADDRESS, f"{variant.stage.name}.{variant.name}")
    require_nothing(try_variant(other, variant, watched.options), watched)


DYING = [mutant for stage in STAGES for mutant in mutants.load(stage) if mutant.sanitizer]


@pytest.mark.parametrize("mutant", params(DYING, []))
def test_mutant_dies_of_address_sanitizer(
    mutant: Mutant, context: Context, sanitized: dict[str, Context | str]
) -> None:
    other = built_with(ADDRESS, context, sanitized)
    watched = Watched(other, ADDRESS, f"{mutant.stage.name}.{mutant.name}")
    if failure := sanitizers.try_mutant(other, mutant, watched):
        pytest.fail(failure, pytrace=False)
