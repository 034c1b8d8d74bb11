"""What all tests run with: one seed, one build, deadlines, and two tiers.

A plain run leaves out what is marked `slow`, unless a test is named, by -k or by its place. Tests marked
`builds(target, ...)` get these targets built before they begin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.checking.context import CORES, Context
from tools.grading import stages
from tools.setup import toolchain
from tools.setup.checkout_lock import hold

pytest.register_assert_rewrite("tests.benchmarks.program_helpers", "tests.tools.release_helpers")
os.environ.pop("COLUMNS", None)  # pytest's width is none of the programs' that are tested
os.environ["SEED"] = str(stages.choose_seed(os.environ.get("SEED", "")))  # pytest-xdist's workers inherit it
BUILD_S = 3600  # a build's deadline, and that of whoever waits for it
TESTS = Path(__file__).parent
SPREAD = (TESTS / "lab", TESTS / "benchmarks")  # their tests share nothing but the build


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # of pytest-xdist's
        config.option.markexpr = config.workerinput["markexpr"]
        return
    given = config.invocation_params.args
    failed_before = config.getoption("lf", default=False) and config.cache.get("cache/lastfailed", {})
    named = config.option.keyword or failed_before or any("::" in arg for arg in given)
    if named and not any(arg.startswith("-m") for arg in given):
        config.option.markexpr = ""


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Workers parse the command line anew, and get what was decided about it."""
    node.workerinput["markexpr"] = node.config.option.markexpr


def pytest_report_header() -> str:
    return f"seed {os.environ['SEED']}: SEED={os.environ['SEED']} repeats this run"


def pytest_xdist_auto_num_workers() -> int:
    return CORES + 1  # one of them waits for the build at first


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """First what starts the build, then what runs beside it. Tests of a file share what they set up, and a worker."""
    for item in items:
        if item.path.parent not in SPREAD:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        long = targets_of(item) or item.get_closest_marker("slow")  # several slow tests build a lab of their own
        if long and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(BUILD_S))
    yield  # others leave out what was not asked for
    waiting = {item.path for item in items if targets_of(item)}
    first = [item for item in items if targets_of(item)][:1]
    beside = [item for item in items if item.path not in waiting]
    items[:] = [*first, *beside, *(item for item in items if item.path in waiting and item not in first)]


def targets_of(item: pytest.Item) -> tuple[str, ...]:
    return tuple(target for marker in item.iter_markers("builds") for target in marker.args)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure is said at once, and not at the end alone."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid}\n{report.longreprtext}\n", flush=True)


@pytest.fixture(scope="session")
def plain(request: pytest.FixtureRequest) -> bool:
    """Whether slow tests are left out."""
    return bool(request.config.option.markexpr)


@pytest.fixture(scope="session")
def context() -> Context:
    return Context(toolchain.load(), int(os.environ["SEED"]))


@pytest.fixture(scope="session")
def build(request: pytest.FixtureRequest) -> Callable[[Iterable[str]], None]:
    """Builds targets. The first call builds what any test of this run asks for, as one build keeps all cores busy."""
    built: set[str] = set()
    everything = {target for item in request.session.items for target in targets_of(item)}

    def build(targets: Iterable[str]) -> None:
        if built.issuperset(targets):
            return
        context = request.getfixturevalue("context")
        with hold(context.build_dir / "grade" / "lock", "the lab's tests"):
            if not built and not context.build(sorted(everything.union(targets))):
                built.update(everything)
            elif failure := context.build(targets):
                pytest.fail(failure, pytrace=False)
        built.update(targets)

    return build


@pytest.fixture(autouse=True)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Tests of a class have an empty folder of their own, too."""
    if request.instance is not None:
        request.instance.folder = tmp_path


@pytest.fixture
def activity(request: pytest.FixtureRequest, built: None, context: Context) -> None:
    """What the tests of a parameter's stage need to tell that they ran."""
    for value in request.node.callspec.params.values():
        if stage := getattr(value, "stage", None):
            context.provide_activity(stage)


@pytest.fixture(autouse=True)
def built(request: pytest.FixtureRequest) -> None:
    if targets := targets_of(request.node):
        request.getfixturevalue("build")(targets)
