"""What `make check` found good, remembered by content: the same is not run again.

A verdict holds for what it was reached on: sources and headers, built programs and libraries, flags, and the tools that
judge. All of that is its key; whatever changes in it, the verdict is forgotten. The seed is no part of the key: a
verdict reached with another seed counts. Only successes are remembered: what failed runs again until it passes.
`make check FRESH=1` forgets everything. One small file for each verdict is in build/check/verdicts/.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from tools.checking.context import Context, Outcome
from tools.grading.stages import Stage, short_paths
from tools.setup import system_packages
from tools.setup.toolchain import ROOT

Content = str | Path  # a text, or a file that may be missing
_hashes: dict[tuple[str, int, int], str] = {}  # of files, by path, time and size


def outcome_of(context: Context, name: str, contents: list[Content], work: Callable[[], Outcome]) -> Outcome:
    """What `work` finds, or found when it last passed on these very contents."""
    if known := recall(context, name, contents):
        return known
    outcome = work()
    keep(context, name, contents, outcome)
    return outcome


def recall(context: Context, name: str, contents: list[Content]) -> Outcome | None:
    """None: not remembered, or reached on other contents."""
    try:
        known = json.loads(_file(context, name).read_text())
        if known["key"] == key_of(contents):
            return Outcome(known["passed"], skipped=known["skipped"], remembered=known["passed"])
    except (OSError, ValueError, KeyError):
        pass
    return None


def keep(context: Context, name: str, contents: list[Content], outcome: Outcome) -> None:
    if outcome.passed and not outcome.failures:
        fields = {"passed": outcome.passed, "skipped": outcome.skipped, "seed": context.seed}
        _file(context, name).write_text(json.dumps({"key": key_of(contents), **fields}))


def _file(context: Context, name: str) -> Path:
    return context.folder("verdicts") / f"{name}.json"


def forget(build_dir: Path) -> None:
    shutil.rmtree(build_dir / "check" / "verdicts", ignore_errors=True)


def key_of(contents: Iterable[Content]) -> str:
    parts = [_hash_of_file(each) if isinstance(each, Path) else _hash(each.encode()) for each in contents]
    return _hash("\n".join(parts).encode())


def _hash_of_file(path: Path) -> str:
    try:
        facts = path.stat()
        known = (str(path), facts.st_mtime_ns, facts.st_size)
        if known not in _hashes:
            _hashes[known] = _hash(short_paths(str(path)).encode() + b"\0" + path.read_bytes())
        return _hashes[known]
    except OSError:
        return f"no {path}"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def grading(context: Context, stage: Stage) -> list[Content]:
    """What a grading hangs on, beside the stage's library: the test program, its libraries, and who judges."""
    judges = [
        ROOT / "tools" / "checking" / f"{name}.py"
        for name in ("context", "edits", "in_place", "mutant_files", "mutants", "variants")
    ]
    told = files(f"tests/{stage.name}", "*.json")
    return [
        *program(context, f"tests_{stage.name}", "ddp", "ddp_testing"),
        *files("tools/grading", "*.py"),
        *judges,
        *told,
    ]


def compiling(context: Context, stage: Stage) -> list[Content]:
    """What a stage's library hangs on, beside its own source and the flags."""
    folders = ("common", f"assignments/{stage.name}", f"solutions/{stage.name}")
    headers = [header for folder in folders for header in files(folder, "*.h")]
    return [str(system_packages.version_of(context.toolchain.cxx)), *headers, *files("cmake", "*")]


def program(context: Context, name: str, *libraries: str) -> list[Content]:
    built = [context.build_dir / "lib" / f"lib{library}.so" for library in (f"{name}_code", *libraries)]
    return [repr(context.toolchain), context.build_dir / "bin" / name, *built]


def files(folder: str, pattern: str) -> list[Content]:
    return sorted(path for path in (ROOT / folder).rglob(pattern) if path.is_file())
