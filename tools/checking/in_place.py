"""What is compiled in the place of a stage's solution, and graded: a mutant of it, or a variant.

Solutions with some lines changed are entries of tests/<kind>/<stage>.diff, one after the other:

    ## name
    Key: value                            lines about it
    @@ layers.h                           an edit, here of another file than the one that students write
     a line that stays
    -one that goes
    +one that comes

The lines that stay or go must be found exactly once; those that stay only locate the edit.

Variants are other correct solutions, which must get full marks: tests/variants/<stage>/<name>.cpp is a complete one,
however unusual; an entry of tests/variants/<stage>.diff says under `What:` how it differs from ours.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tools.checking.context import Context, describe, describe_tests, not_passed
from tools.grading.compiling.compile_errors import condense
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import StageReport, TestSpec
from tools.grading.stages import Stage, short_paths
from tools.setup.configuring import cache, compile_command, object_of
from tools.setup.toolchain import ROOT, LabError

LIBRARY = "libstage.so"


@dataclass(frozen=True)
class Edit:
    file: str  # empty: the stage's main source
    find: str
    replace: str


@dataclass(frozen=True)
class InPlace:
    kind: ClassVar[str]  # its folder in tests/
    stage: Stage
    name: str
    text: str  # all of it
    edits: tuple[Edit, ...]  # of the solution; none: it is a file of its own

    @property
    def file(self) -> Path:
        folder = ROOT / "tests" / self.kind
        return folder / (f"{self.stage.name}.diff" if self.edits else f"{self.stage.name}/{self.name}.cpp")

    @property
    def title(self) -> str:
        return short_paths(str(self.file)) + (f", {self.name}" if self.edits else "")

    def folder(self, context: Context) -> Path:
        return context.folder(self.kind, self.stage.name, self.name)

    def grade(self, context: Context, tests: list[TestSpec], options: RunOptions) -> tuple[StageReport, Path]:
        """Compiles it; returns what these tests say of it, and the log."""
        folder = self.folder(context)
        source = write_edited(self.stage, self.edits, folder) if self.edits else self.file
        compile_stage(context, self.stage, source, folder)
        report = context.grade(self.stage, folder / LIBRARY, tests, options)
        log = folder / "tests.log"
        log.write_text(f"{describe_tests(report.results)}\n\nThe program printed:\n{report.output}", encoding="utf-8")
        return report, log


def entries(kind: str, stage: Stage, suffix: str = "diff") -> dict[str, str]:
    """The texts of the entries in the stage's file, by their names."""
    file = ROOT / "tests" / kind / f"{stage.name}.{suffix}"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    found = re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    names = [name for name, _ in found]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise LabError(f"{short_paths(str(file))} has {min(repeated)} twice")
    return dict(found)


def parse(text: str, known: Sequence[str]) -> tuple[dict[str, str], tuple[Edit, ...]]:
    """An entry's lines by their keys, each of which is `known`, and its edits."""
    head, *parts = re.split(r"^@@", text, flags=re.MULTILINE)
    if not parts:
        raise LabError("there is no edit, which begins with @@, under its lines")
    return fields_of(head, known), tuple(map(_edit, parts))


def fields_of(text: str, known: Sequence[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in text.strip().splitlines():
        key, colon, value = line.partition(":")
        if not colon or key not in known or key in fields or not value.strip():
            raise LabError(f"cannot read the line '{line}'; known are, once each: {', '.join(known)}")
        fields[key] = value.strip()
    return fields


def require(fields: dict[str, str], keys: Iterable[str]) -> None:
    if missing := [key for key in keys if key not in fields]:
        raise LabError(f"lacks the line '{missing[0]}: ...' above the edits")


def _edit(part: str) -> Edit:
    file, *lines = part.rstrip("\n").split("\n")
    if wrong := [line for line in lines if line and line[0] not in " +-"]:
        raise LabError(f"an edit's line begins with a space, + or -, and not as '{wrong[0]}'")
    kept = [(line[:1], line[1:] + "\n") for line in lines]  # an empty line stays
    find, replace = ("".join(text for sign, text in kept if sign != gone) for gone in "+-")
    return Edit(file.strip(), find, replace)


def write_edited(stage: Stage, edits: Iterable[Edit], folder: Path) -> Path:
    """Writes a copy of the solution's folder with these edits; returns its main source."""
    main = solution_of(stage).name
    files = {path.name: path.read_text(encoding="utf-8") for path in code_of(stage)}
    for edit in edits:
        name = edit.file or main
        times = files.get(name, "").count(edit.find)
        if times != 1:
            raise LabError(
                f"no longer fits solutions/{stage.name}: it finds these lines {times} times in {name}, "
                f"and must find them once:\n{edit.find}"
            )
        files[name] = files[name].replace(edit.find, edit.replace)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / main


def solution_of(stage: Stage) -> Path:
    """The main source of the solution: the one that is named as what a student edits."""
    names = {path.name for path in stage.sources("assignments")}
    for path in stage.sources("solutions"):
        if path.name in names:
            return path
    raise LabError(f"solutions/{stage.name} has no {' or '.join(sorted(names))}, which the mutants are made from")


def code_of(stage: Stage) -> list[Path]:
    return [*stage.sources("solutions"), *sorted(solution_of(stage).parent.glob("*.h"))]


def compile_stage(context: Context, stage: Stage, source: Path, folder: Path) -> None:
    """Builds `source` in place of the stage's solution, with the same flags and precompiled header.

    If it lies in a copy of the solution's folder, the copies of the other sources go with it. Those that are as in the
    solution are not compiled again: the build has their objects.
    """
    library, key = folder / LIBRARY, folder / "key"
    inside = _key(context, stage, source, folder)
    if library.exists() and key.exists() and key.read_text() == inside:
        return
    library.unlink(missing_ok=True)
    copies = {path: source.parent / path.name for path in code_of(stage) if (source.parent / path.name).exists()}
    changed = {path for path, copy in copies.items() if copy.read_bytes() != path.read_bytes()}
    everything = any(path.suffix == ".h" for path in changed)
    inputs, objects = [] if source in copies.values() else [source], []
    for path, copy in copies.items():
        if path.suffix == ".cpp" and (everything or path in changed):
            inputs.append(copy)
        elif path.suffix == ".cpp":
            objects.append(object_of(context.build_dir, path))
    flags = compile_command(context.build_dir, solution_of(stage))
    launcher = cache(context.build_dir).get("CMAKE_CXX_COMPILER_LAUNCHER", "").split(";")
    for path in inputs:  # linked apart, since ccache keeps objects alone
        objects.append(folder / f"{path.stem}.o")
        _compile(context, [*filter(None, launcher), *flags, "-c", "-o", str(objects[-1]), str(path)], folder)
    _compile(context, [*flags, "-shared", "-o", str(library), *map(str, objects)], folder)
    key.write_text(inside)


def _key(context: Context, stage: Stage, source: Path, folder: Path) -> str:
    """Of all that goes into a library: the same, if it need not be compiled again."""
    flags = [context.toolchain.torch_version, *compile_command(context.build_dir, solution_of(stage))]
    found = hashlib.sha256(" ".join(flags).encode())
    headers = [header for room in stage.header_folders() for header in sorted(room.glob("*.h"))]
    own = [path for path in sorted(folder.iterdir()) if path.suffix in (".h", ".cpp")]
    for path in [source, *own, *code_of(stage), *headers]:
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def _compile(context: Context, command: list[str], folder: Path) -> None:
    log = folder / "compiler.log"
    code, text = context.run(command, log)
    if code:
        raise LabError(f"does not compile:\n{condense(text)}\nThe whole log: {short_paths(str(log))}")


class Variant(InPlace):
    kind = "variants"


def variants_of(stage: Stage) -> list[Variant]:
    files = sorted((ROOT / "tests" / Variant.kind / stage.name).glob("*.cpp"))
    whole = [Variant(stage, path.stem, path.read_text(), ()) for path in files]
    return whole + [_edited(stage, *entry) for entry in entries(Variant.kind, stage).items()]


def _edited(stage: Stage, name: str, text: str) -> Variant:
    try:
        fields, edits = parse(text, ("What",))
        require(fields, ("What",))
    except LabError as error:
        raise LabError(f"tests/variants/{stage.name}.diff, {name}: {error}") from None
    return Variant(stage, name, text, edits)


def try_variant(context: Context, variant: Variant, options: RunOptions) -> str:
    """What a correct solution loses points for; empty if it gets full marks."""
    report, log = variant.grade(context, context.tests_of(variant.stage), options)
    wrong = not_passed(report)
    return describe(f"{variant.title} is correct, but loses points", describe_tests(wrong), log) if wrong else ""
