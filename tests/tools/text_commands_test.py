"""What `make check ALL=1` does with each command of each text: the table to extend when a text gets a new one.

The first pattern that fits a whole command says what becomes of it. Where nothing fits, a test fails.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tests.tools.texts_test import all_texts


@dataclass(frozen=True)
class Run:
    """Runs as it stands, or as `instead` says, which costs less, and has to end with one of these codes."""

    instead: str = ""  # \\1 and so on are the groups of the pattern
    codes: tuple[int, ...] = (0,)
    last: bool = False  # it removes what others need


@dataclass(frozen=True)
class NotRun:
    why: str


UNFINISHED = (0, 2)  # of make: grading stubs, and setting a writeup without answers, is no success
ENDLESS = NotRun("ends by Ctrl-C alone; tests/tools/test_grade_display.py runs it until a file was saved")
ITSELF = NotRun("it is what runs these commands, or a part of it")
HARDWARE = NotRun("needs hardware or programs that few machines have")
PLACEHOLDER = NotRun("its reader has to fill something in")
MINUTES = NotRun("measures or fits for minutes; tests/benchmarks has less of it")

CLASSES: tuple[tuple[str, Run | NotRun], ...] = (
    # Grading: the stubs of all stages at once take no longer than one.
    (r"make test( STAGE=0\d)( TEST=\w+)? TRACE=\S+", Run(r"make test\1\2 IMPL=solutions TRACE=step.json")),
    (r"make test( STAGE=0\d)? SANITIZE=\w+", NotRun("builds for minutes; tests/tools/test_other_ways.py has it")),
    (r"make test (PYTHON|LIBTORCH)=/path/to/.*", PLACEHOLDER),
    (r"(make|docker|build/bin|NCCL_DEBUG).*(DEVICE=cuda|--device cuda|--distributed-backend nccl).*", HARDWARE),
    (r"cmake --build build .*(ddp_cuda|--device cuda).*", HARDWARE),
    (r"make setup DEVICE=all", NotRun("downloads 2.4 GB; tests/tools/test_gpus.py tests what it asks for")),
    (r"python3 -m tools\.setup\.gpus", Run()),
    (r"CXX=g\+\+ make test", NotRun("builds everything anew; the step 'compilers' does it for the stages")),
    (r"make test IMPL=solutions", Run()),
    (r"make test( STAGE=0\d IMPL=solutions( UNTRUSTED=1)?)", Run()),
    (
        r"make test( STAGE=0\d)?( TEST=\w+)?( SEED=\d+)?( SCHEDULE=\d+)?( VERBOSE=1)?( UNTRUSTED=1)?",
        Run(codes=UNFINISHED),
    ),
    (r"make test IMPL=solutions STAGE=0N", PLACEHOLDER),
    (r"make watch( STAGE=0\d)?", ENDLESS),
    (r"make debug .*GDB_ARGS=.*", Run(r"\g<0> IMPL=solutions")),
    (r"make debug( .*)?", NotRun("opens a debugger; tests/tools/test_other_ways.py does it with commands")),
    (r"make hint TEST=<name>(.*)", Run(r"make hint TEST='*'\1")),
    (r"make hint( .*)?", Run()),
    (r"make( setup| doctor| help)?", Run()),
    (r"sudo apt-get install .*", NotRun("changes the system; tests/tools/test_setup.py holds it to set-up's own")),
    (r"cmake --build build --target tests_harness && build/bin/tests_harness .*", Run()),
    (r"make setup && cmake --build build --target hello_ranks && build/bin/hello_ranks .*", Run()),
    (r"\.venv/bin/python -m tools\.report\.(held_out|calibrate)", MINUTES),
    # Figures and writeup: with a stub there is nothing to measure, which takes seconds and has to be said.
    (r"make figures.*", Run("make figures STAGE=01", UNFINISHED)),
    (r"make (calibrate( FROM=\S+)?|ab)", MINUTES),
    (r"make writeup PRESET=full", Run(codes=UNFINISHED)),
    (r"make writeup( IMPL=solutions| STAGE=0\d)?", Run(codes=UNFINISHED)),
    (r"\.venv/bin/python -m figures\.(plots|schemes)\..*", Run()),
    (r"python3 -m tools\.report\.gallery", NotRun("takes figures from a clean commit alone; test_gallery.py tests it")),
    (r"build/bin/bucketed_ddp (--preset published.*)", Run(r"build/bin/bucketed_ddp --impl solutions \1")),
    (r"build/bin/all_reduce_times .*", Run()),
    (r"build/bin/step_time --trace step\.json", Run(r"\g<0> --impl solutions --steps 1 --warmup 0")),
    (r"build/bin/(collectives|sync_batch_norm) .*", MINUTES),
    # Handing out and in.
    (r"make reset STAGE=0\d", NotRun("moves files; tests/tools/test_student.py does it")),
    (r"make (release|autograder|submit|format)", Run()),
    (r"make update( FROM=.*)?", NotRun("needs a newer release; tests/tools/test_student.py makes one")),
    (r"python3 -m tools\.course\.grade_submission assignments --out \S+", Run(codes=(0, 1))),
    (r"python3 -m tools\.course\.(grade_class submissions|similarity \S+)", PLACEHOLDER),
    # Containers and several machines.
    (r"docker .*", HARDWARE),
    (r"(torchrun|mpirun|srun|sbatch) .*", HARDWARE),
    (r"(git clone|cmake|rm|cp|cd) .*/lab\b.*", NotRun("builds for a machine in an emulator, which takes an hour")),
    # The lab's own tests.
    (r"make check.*", ITSELF),
    (r"python3 -m tools\.checking\.check --only includes", Run()),
    (r"python3 -m tools\.checking\.claims|ctest .* -R check\..*", ITSELF),
    (r"\.venv/bin/python -m pytest .*", ITSELF),
    (r"python3 -m tools\.(setup\.doctor|grading\.grade --stage=01)", Run(codes=(0, 1))),
    # What changes files, or needs a place of its own.
    (r"make (dist)?clean", Run(last=True)),
    (r"git (checkout|diff|pull)", NotRun("a mention, or of a repository that is not this one")),
    (r"git clone <this repository>.*", PLACEHOLDER),
)


def class_of(command: str) -> Run | NotRun | None:
    for pattern, found in CLASSES:
        if fit := re.fullmatch(pattern, command):
            return replace(found, instead=fit.expand(found.instead)) if isinstance(found, Run) else found
    return None


def commands() -> dict[str, list[str]]:
    """Every command with the texts that it stands in."""
    found: dict[str, list[str]] = {}
    for text in all_texts():
        for command in text.commands():
            found.setdefault(command, []).append(text.name)
    return found
