"""Steps of `make check`: clang-format and clang-tidy find nothing.

Nearly all of clang-tidy's time goes into libtorch's headers: some 16 s, against half a second for a file of ours. So
the headers are precompiled, as many files as possible are checked as one, and a clean file is not checked again until
it, a header, or .clang-tidy changes.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
import shutil
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from tools.setup import system_packages
from tools.checking.context import CORES, Context, Outcome, describe
from tools.grading.stages import short_paths
from tools.setup.toolchain import ROOT, LabError

FOLDERS = ("assignments", "benchmarks", "cmake", "common", "solutions", "tests")
# Each program has an entry point of the same name.
_PART = '#define ddp_main ddp_main_{number}\n#include "{path}"\n#undef ddp_main\n'
# Checks that make no sense for a file that includes others.
_NOT_TOGETHER = "-bugprone-suspicious-include"
_FINDING = re.compile(r"^(?P<file>/[^:\n]+):\d+:\d+: (?:warning|error): ", re.MULTILINE)
_NOISE = re.compile(r"^(\d+ (warning|error).*generated\.|Error while processing.*|Suppressed \d+.*)\n", re.MULTILINE)
_DOES_NOT_COMPILE = "clang-diagnostic-error"
# What a file defines in its namespaces, none of which is indented. Good enough: a name too many separates two files
# needlessly; if a name is missed, the files do not compile together and are checked alone.
_TYPE = re.compile(r"^(?:struct|class|enum|enum class) (\w+)(?! *;)", re.MULTILINE)
_VALUE = re.compile(
    r"^(?!namespace|using|struct|class|enum|template)[a-zA-Z_][\w:<>,&*\[\] ]*[ &*]"
    r"(?!ddp_main)(\w+)(?:\[\w*\])?(?:\(| = |\{|;)",
    re.MULTILINE,
)
_ALIAS = re.compile(r"^using (?:\w+::)*(\w+)(?: =.*)?;", re.MULTILINE)
_HEADER_BESIDE = re.compile(r'^#include "([^"/]+)"', re.MULTILINE)


def check_format(context: Context) -> Outcome:
    outcome, tool = Outcome(), _tool("clang-format")
    files = _sources("*.cpp", "*.h")
    log = context.folder("lint") / "clang-format.log"
    code, text = context.run([tool, "--dry-run", "-Werror", *map(str, files)], log)
    wrong = _by_file(text)
    for path in files:
        outcome.add(f"{short_paths(str(path))} is not formatted: make format" if path in wrong else "")
    if code and not wrong:
        outcome.add(describe(f"{tool} ended with code {code}", text[-4000:], log))
    return outcome


def check_lint(context: Context) -> Outcome:
    linter = Linter(context)
    outcome = Outcome()
    for path, findings in linter.findings().items():
        outcome.add(describe(f"{_tool('clang-tidy')}: {short_paths(str(path))}", findings) if findings else "")
    return outcome


def _tool(name: str) -> str:
    found = shutil.which(f"{name}-14") or shutil.which(name)
    if not found:
        raise LabError(f"There is no {name}, so this was not checked. {_install(name)}")
    return found


def _install(name: str) -> str:
    return system_packages.install_command([need for need in system_packages.FOR_CHECK if need.name == name])


def _sources(*patterns: str) -> list[Path]:
    return sorted(path for folder in FOLDERS for pattern in patterns for path in (ROOT / folder).rglob(pattern))


def _by_file(text: str) -> dict[Path, str]:
    """The findings in a tool's output, each with the lines that belong to it."""
    found, starts = defaultdict(str), [*_FINDING.finditer(text)]
    for this, following in zip(starts, [*starts[1:], None]):
        found[Path(this["file"])] += text[this.start() : following.start() if following else len(text)]
    return found


@dataclass(frozen=True)
class Run:
    """Files with the same flags, to be checked as one."""

    flags: tuple[str, ...]
    precompiled: str  # the header that the build precompiles for them; empty if there is none
    files: tuple[Path, ...]


class Linter:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._tool = _tool("clang-tidy")
        self._folder = context.folder("lint")
        version = system_packages.version_of(self._tool)
        self._clang = shutil.which(f"clang++-{version[0]}") or "" if version else ""
        surroundings = map(_content, [ROOT / ".clang-tidy", *_sources("*.h")])
        self._surroundings = _hash(str(version), context.toolchain.torch_version, *surroundings)

    def findings(self) -> dict[Path, str]:
        """The findings for each source file that the build compiles, and for each header that it includes."""
        files = _compiled_files(self._context.build_dir)
        result = {path: "" for path in files}
        runs = _group({path: run for path, run in files.items() if not self._mark(path).exists()})
        self._context.show("precompiling headers")
        self._context.each(self._precompile, sorted({(run.precompiled, _without_includes(run.flags)) for run in runs}))
        again = []
        for run, found in zip(runs, self._context.each(self._look, runs)):
            parts = _apart(run, found)
            again += parts
            result |= {} if parts else self._remember(run, found)
        for run, found in zip(again, self._context.each(self._look, again)):
            result |= self._remember(run, found)
        return result

    def _look(self, run: Run) -> dict[Path, str]:
        name = _hash(*map(str, run.files))
        unit = self._folder / f"{name}.cpp"
        unit.write_text("".join(_PART.format(number=number, path=path) for number, path in enumerate(run.files)))
        options = [f"--config-file={ROOT / '.clang-tidy'}", f"--checks={_NOT_TOGETHER}"]
        pch = self._pch(run.precompiled, _without_includes(run.flags))
        flags = [*run.flags, *(["-include-pch", str(pch)] if pch.exists() else [])]
        log = self._folder / f"{name}.log"
        code, text = self._context.run([self._tool, "--quiet", *options, str(unit), "--", *flags], log)
        found = _by_file(_NOISE.sub("", text))
        if code and not found:
            found = {unit: describe(f"{self._tool} ended with code {code}", text[-4000:], log)}
        return found

    def _remember(self, run: Run, found: dict[Path, str]) -> dict[Path, str]:
        """A finding in a header may concern any file, so then none is clean."""
        for path in run.files if found.keys() <= set(run.files) else ():
            if path not in found:
                self._mark(path).touch()
        return found

    def _mark(self, path: Path) -> Path:
        """A file that exists if `path` was found clean, with its present content and surroundings."""
        return self._folder / f"{_hash(str(path), _content(path), self._surroundings)}.clean"

    def _pch(self, header: str, flags: tuple[str, ...]) -> Path:
        return self._folder / f"{_hash(header, *flags, self._context.toolchain.torch_version)}.pch"

    def _precompile(self, needed: tuple[str, tuple[str, ...]]) -> None:
        """Only saves time: if clang++ is missing or fails, each run reads the headers itself."""
        header, flags = needed
        pch = self._pch(header, flags)
        if self._clang and header and not pch.exists():
            source, part = pch.with_suffix(".h"), pch.with_suffix(".part")
            source.write_text(_content(Path(header)))  # a copy: the build touches its own
            command = [self._clang, *flags, "-w", "-x", "c++-header", str(source), "-o", str(part)]
            if self._context.run(command, pch.with_suffix(".log"))[0] == 0:
                part.rename(pch)


def _compiled_files(build_dir: Path) -> dict[Path, Run]:
    """The checkout's own sources, with the flags that clang understands too."""
    files = {}
    for entry in json.loads((build_dir / "compile_commands.json").read_text()):
        path = Path(entry["file"])
        if any((ROOT / folder) in path.parents for folder in FOLDERS):
            flags, header, words = [], "", iter(shlex.split(entry["command"])[1:])
            for word in words:
                if word == "-include":
                    header = next(words)
                elif word == "-o":
                    next(words)
                elif word == "-isystem":
                    flags += [word, next(words)]
                elif word not in ("-c", "-Winvalid-pch", entry["file"], *flags):
                    flags.append(word)
            files[path] = Run(tuple(flags), header, (path,))
    return files


def _group(files: dict[Path, Run]) -> list[Run]:
    """As few runs as possible, each with at most one core's share of the files; the largest first."""
    groups, limit = defaultdict(list), math.ceil(len(files) / CORES)
    for path, run in sorted(files.items()):
        groups[_without_includes(run.flags), run.precompiled].append(path)
    runs = []
    for (flags, header), paths in groups.items():
        includes = sorted({flag for path in paths for flag in files[path].flags if flag.startswith("-I")})
        runs += [Run((*includes, *flags), header, tuple(part)) for part in _compatible(paths, limit)]
    return sorted(runs, key=lambda run: -len(run.files))


def _compatible(paths: list[Path], limit: int) -> list[list[Path]]:
    """Splits the files into parts in which no two files define the same name."""
    parts: list[tuple[list[Path], dict[str, str]]] = []
    for path in paths:
        defined = _definitions(path)
        for members, known in parts:
            if len(members) < limit and all(known.get(name, origin) == origin for name, origin in defined.items()):
                break
        else:
            members, known = [], {}
            parts.append((members, known))
        members.append(path)
        known.update(defined)
    return [members for members, _ in parts]


def _definitions(path: Path) -> dict[str, str]:
    """The names that a file, or a header beside it, defines, each with its kind: the same one twice is no clash."""
    text = _content(path)
    found = {name: str(path) for rule in (_TYPE, _VALUE) for name in rule.findall(text)}
    found |= {alias[1]: alias[0] for alias in _ALIAS.finditer(text)}
    for name in _HEADER_BESIDE.findall(text):
        if (header := path.parent / name).is_file():
            found |= _definitions(header)
    return found


def _apart(run: Run, found: dict[Path, str]) -> list[Run]:
    """The runs to repeat, because some files do not compile with the others: each of these alone, and the rest."""
    if len(run.files) == 1 or not any(_DOES_NOT_COMPILE in text for text in found.values()):
        return []
    named = [path for path in run.files if _DOES_NOT_COMPILE in found.get(path, "")] or list(run.files)
    rest = tuple(path for path in run.files if path not in named)
    return [replace(run, files=files) for files in [rest, *((path,) for path in named)] if files]


def _without_includes(flags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(flag for flag in flags if not flag.startswith("-I"))


def _content(path: Path) -> str:
    return path.read_text(errors="replace")


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
