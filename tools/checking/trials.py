"""What the lab says of itself, one trial at a time: cmake/Checks.cmake makes tests of CTest's of them.

    python3 -m tools.checking.trials do format      after `make setup`; or: ctest --test-dir build -R check.format
    python3 -m tools.checking.trials do mutants.01_naive_ddp.averaged_twice

A trial's kind is the name's beginning, and says what is done. One that passed leaves a file of its name in
build/check/passed, which Ninja takes for made from what the trial hangs on: Ninja alone decides what has to be done
again. SEED= repeats what is drawn.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.checking import (
    arm64,
    claims,
    formatting,
    includes,
    linting,
    machines,
    mutants,
    own_tests,
    sanitizers,
    second_build,
    variants,
)
from tools.checking.context import CORES, Context, Outcome, graded_stages
from tools.checking.in_place import LIBRARY, InPlace
from tools.grading.scoring.results import replace_file
from tools.grading.stages import Stage, choose, choose_seed
from tools.setup import toolchain
from tools.setup.toolchain import ROOT, LabError

PASSED = Path("check", "passed")  # in the build folder
HARNESS = ("tests_harness", "tests_benchmarks")
CHECK, ALL, LONG, APART = "check", "all", "long", "apart"  # labels: who runs it; LONG and APART also by name
MINUTE, HOUR = 60, 3600
Work = Callable[..., Outcome]


@dataclass(frozen=True)
class Kind:
    work: Work  # called with the context, and what follows in the trial's name
    labels: tuple[str, ...] = (CHECK, ALL)
    seconds: int = 20 * MINUTE  # after which it hangs
    alone: bool = False  # it uses all cores
    prepare: Work | None = None


KINDS = {
    "solutions": Kind(own_tests.check_solution),
    "stubs": Kind(own_tests.check_stub),
    "killers": Kind(partial(mutants.try_mutant, everything=False), (CHECK, "mutants")),
    "mutants": Kind(partial(mutants.try_mutant, everything=True), (ALL,), prepare=mutants.compile_mutant),
    "claims": Kind(claims.check_claims),
    "variants": Kind(partial(variants.try_variant, many_orders=False), (CHECK,)),
    "orders": Kind(
        partial(variants.try_variant, many_orders=True), (ALL, "variants"), prepare=variants.compile_variant
    ),
    "address": Kind(partial(sanitizers.check, sanitizers.ADDRESS), (LONG, ALL), 3 * HOUR, True),
    "thread": Kind(partial(sanitizers.check, sanitizers.THREAD), (LONG, ALL), 3 * HOUR, True),
    "compilers": Kind(second_build.check_compilers, (LONG, ALL), 3 * HOUR, True),
    "torch": Kind(second_build.check_oldest_torch, (LONG, ALL), 2 * HOUR, True),
    "arm64": Kind(arm64.check_arm64, (LONG, ALL), 2 * HOUR, True),
    "harness": Kind(own_tests.run_shard, seconds=HOUR),
    "gallery": Kind(own_tests.check_gallery),
    "benchmarks": Kind(own_tests.check_unfinished_benchmark),
    "defined": Kind(own_tests.check_defined),
    "includes": Kind(includes.check_includes),
    "format": Kind(formatting.check_format),
    "lint": Kind(linting.check_lint, seconds=HOUR, alone=True),
    "machines": Kind(machines.check_machines, (APART,), 12 * HOUR, True),
}
PINS = "requirements.txt"  # of the tools
VARIANTS_OF_CHECK = 2  # of each stage; the others wait for ALL=1


def described(build_dir: Path) -> Iterator[str]:
    """The calls of ddp_lab_trial(). Writes the text of each mutant and variant to a file of its own, if it changed."""
    stages = graded_stages()
    for stage in stages:
        yield from _of_stage(stage, build_dir)
    solved = [f"{build_dir}/{PASSED}/solutions.{stage.name}" for stage in stages]
    tables = [*(ROOT / "tests").glob("*/*.json"), *(ROOT / "tests/mutants").glob("*"), claims.CLAIMS]
    yield _trial("claims", needs=[*solved, *tables, "${ddp_lab_headers}", "${ddp_lab_judges}"])
    for program in HARNESS:
        for index in range(CORES):
            yield _trial("harness", program, str(index), needs=_program(build_dir, program, "testing", "benchmarks"))
    stubs = [_stage(build_dir, "assignments", stage) for stage in stages]
    yield _trial("benchmarks", needs=[*_program(build_dir, "all_stages", "benchmarks"), *stubs])
    settings = [f"${{CMAKE_SOURCE_DIR}}/{name}" for name in (".clang-format", ".clang-tidy", "pyproject.toml", PINS)]
    yield _trial("format", needs=["${ddp_lab_cpp}", "${ddp_lab_python}", *settings])
    yield _trial("includes", needs=["${ddp_lab_cpp}", "${ddp_lab_python}"])
    yield _trial("lint", needs=["${ddp_lab_cpp}", *settings])
    for kind in ("gallery", "defined", "address", "thread", "compilers", "torch", "arm64", "machines"):
        yield _trial(kind)


def _of_stage(stage: Stage, build_dir: Path) -> Iterator[str]:
    name = stage.name
    told = sorted((ROOT / "tests" / name).glob("*.json"))
    judges = [*_program(build_dir, f"tests_{name}", "testing"), *told, "${ddp_lab_judges}"]
    solution = _stage(build_dir, "solutions", stage)
    yield _trial("solutions", name, needs=[solution, *judges])
    yield _trial("stubs", name, needs=[_stage(build_dir, "assignments", stage), *judges])
    outcome, exclusive = Outcome(), set()
    for mutant in mutants.load(stage, outcome):
        if not mutant.killed_by:
            continue  # left to AddressSanitizer
        library, text = _kept(build_dir, mutant)
        yield _trial("mutants", name, mutant.name, needs=judges, prepared=library, source=[text, solution])
        if mutant.exclusive and mutant.exclusive not in exclusive:
            exclusive.add(mutant.exclusive)
            yield _trial("killers", name, mutant.name, needs=[*judges, library])
    for number, variant in enumerate(variants.variants_of(stage)):
        library, text = _kept(build_dir, variant)
        source = [text, solution] if variant.edits else [variant.file, "${ddp_lab_headers}"]
        yield _trial("orders", name, variant.name, needs=judges, prepared=library, source=source)
        if number < VARIANTS_OF_CHECK:
            yield _trial("variants", name, variant.name, needs=[*judges, library])


def _program(build_dir: Path, name: str, *libraries: str) -> list[Path]:
    """What Ninja has to have built."""
    needed = [f"{name}_code", "ddp", *(f"ddp_{library}" for library in libraries)]
    return [build_dir / "bin" / name, *(build_dir / "lib" / f"lib{library}.so" for library in needed)]


def _stage(build_dir: Path, impl: str, stage: Stage) -> Path:
    return build_dir / "stages" / impl / stage.name / LIBRARY


def _kept(build_dir: Path, entry: InPlace) -> tuple[Path, Path]:
    """What it is built as, and its text."""
    folder = build_dir / "check" / entry.kind / entry.stage.name / entry.name
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "entry.txt"
    if not text.exists() or text.read_text(encoding="utf-8") != entry.text:
        replace_file(text, entry.text.encode())
    return folder / LIBRARY, text


def _trial(kind: str, *of: str, needs: list = (), prepared: Path | None = None, source: list = ()) -> str:
    known, words = KINDS[kind], [".".join((kind, *of))]
    words += ["LABELS", kind, *known.labels, *of[:1], "SECONDS", str(known.seconds)]
    words += ["ALONE"] if known.alone else []
    words += ["NEEDS", *map(str, needs)] if needs else []
    words += ["PREPARED", str(prepared), "FROM", *map(str, source)] if prepared else []
    return f"ddp_lab_trial({' '.join(words)})"


def write_list(build_dir: Path) -> int:
    file = build_dir / "check" / "trials.cmake"
    (build_dir / PASSED).mkdir(parents=True, exist_ok=True)
    replace_file(file, "".join(f"{line}\n" for line in described(build_dir)).encode())
    return 0


def do(context: Context, name: str, kinds: dict[str, Kind] = KINDS) -> int:
    """0 only if it passed, or said why it cannot be done here."""
    passed = context.build_dir / PASSED / name
    passed.unlink(missing_ok=True)
    outcome = _ended(context, name, kinds, prepare=False)
    for text in outcome.skipped:
        print(f"skipped: {text}")
    if outcome.failures or not (outcome.passed or outcome.skipped):
        print(*outcome.failures or [f"{name}: nothing was looked at"], f"The same again: SEED={context.seed}", sep="\n")
        return 1
    if outcome.passed:
        passed.parent.mkdir(parents=True, exist_ok=True)
        said = [f"skipped: {text}" for text in outcome.skipped]
        passed.write_text("\n".join([*said, f"{outcome.passed} passed, with SEED={context.seed}"]) + "\n")
    return 0


def prepare(context: Context, name: str) -> int:
    outcome = _ended(context, name, KINDS, prepare=True)
    print(*outcome.failures, sep="\n", end="")
    return 1 if outcome.failures else 0


def _ended(context: Context, name: str, kinds: dict[str, Kind], prepare: bool) -> Outcome:
    kind, *of = name.split(".")
    try:
        known = kinds[choose("trial", kind, kinds)]
        work = known.prepare if prepare else known.work
        if not work:
            raise LabError("nothing is prepared for trials of this kind")

        def late(*_: object) -> None:
            raise LabError(f"it had not ended after {known.seconds} s")

        signal.signal(signal.SIGALRM, late)
        signal.alarm(known.seconds)
        try:
            return work(context, *of)
        finally:
            signal.alarm(0)
    except (LabError, OSError) as error:
        return Outcome(failures=[f"{name}: {error}"])


def main(command: str, argument: str) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if command == "list":
            return write_list(Path(argument))
        tools = toolchain.load()
        context = Context(tools, choose_seed(os.environ.get("SEED")), bool(os.environ.get("ALL")))
        return {"do": do, "prepare": prepare}[command](context, argument)
    except LabError as error:
        print(error, file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
