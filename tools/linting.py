"""Steps of `make check`: clang-format and clang-tidy have nothing to say.

Nearly all of clang-tidy's time goes into libtorch's headers. So these are precompiled, several files are looked at as
one, and a file that was clean is not looked at again until it, a header, or .clang-tidy changes.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import system_packages
from checking import Context, Outcome, describe
from stages import short_paths
from toolchain import ROOT, LabError

FOLDERS = ("assignments", "benchmarks", "cmake", "common", "solutions", "tests")
TOGETHER = 16  # files in one run: fewer runs cost less, more runs spread better over the cores
# Each program has an entry of the same name.
_PART = '#define ddp_main ddp_main_{number}\n#include "{path}"\n#undef ddp_main\n'
# What makes no sense where one file includes others.
_NOT_TOGETHER = "-bugprone-suspicious-include"
_FINDING = re.compile(r"^(?P<file>/[^:\n]+):\d+:\d+: (?:warning|error): ", re.MULTILINE)
_NOISE = re.compile(r"^(\d+ (warning|error).*generated\.|Error while processing.*|Suppressed \d+.*)\n", re.MULTILINE)
_DOES_NOT_COMPILE = "clang-diagnostic-error"


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
    """Files of the same flags, to be looked at as one."""

    flags: tuple[str, ...]
    precompiled: str  # the header that the build precompiles for them; empty without
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
        """For each source file that the build compiles, and each header that it includes, what there is to say."""
        files = _compiled_files(self._context.build_dir)
        result = {path: "" for path in files}
        runs = _group({path: run for path, run in files.items() if not self._mark(path).exists()})
        self._context.show("precompiling headers")
        self._context.each(self._precompile, sorted({(run.precompiled, _without_includes(run.flags)) for run in runs}))
        alone = []
        for run, found in zip(runs, self._context.each(self._look, runs)):
            clashing = _clashing(run, found)
            alone += [replace(run, files=(path,)) for path in clashing]
            settled = [path for path in run.files if path not in clashing]
            result |= self._remember(settled, {path: text for path, text in found.items() if path not in clashing})
        for run, found in zip(alone, self._context.each(self._look, alone)):
            result |= self._remember(list(run.files), found)
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
            found = {run.files[0]: describe(f"{self._tool} ended with code {code}", text[-4000:], log)}
        return found

    def _remember(self, files: list[Path], found: dict[Path, str]) -> dict[Path, str]:
        """A finding may be in a header, so files are clean only where nothing at all was found with them."""
        for path in files if not found else ():
            self._mark(path).touch()
        return found

    def _mark(self, path: Path) -> Path:
        """Exists where the file was found clean, as it is and in the surroundings that there are."""
        return self._folder / f"{_hash(str(path), _content(path), self._surroundings)}.clean"

    def _pch(self, header: str, flags: tuple[str, ...]) -> Path:
        return self._folder / f"{_hash(header, *flags, self._context.toolchain.torch_version)}.pch"

    def _precompile(self, needed: tuple[str, tuple[str, ...]]) -> None:
        """Only saves time: without clang++ or where it fails, each run reads the headers itself."""
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
    """Up to TOGETHER files in a run: of one folder, as a stage's stub and its solution define the same functions."""
    groups = defaultdict(list)
    for path, run in sorted(files.items()):
        groups[run.flags, run.precompiled, path.relative_to(ROOT).parts[0]].append(path)
    return [
        Run(flags, header, tuple(paths[start : start + TOGETHER]))
        for (flags, header, _), paths in groups.items()
        for start in range(0, len(paths), TOGETHER)
    ]


def _clashing(run: Run, found: dict[Path, str]) -> list[Path]:
    """The files that do not compile beside the others: two may have names of their own that are alike."""
    if len(run.files) == 1 or not any(_DOES_NOT_COMPILE in text for text in found.values()):
        return []
    named = [path for path in run.files if _DOES_NOT_COMPILE in found.get(path, "")]
    return named or list(run.files)


def _without_includes(flags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(flag for flag in flags if not flag.startswith("-I"))


def _content(path: Path) -> str:
    return path.read_text(errors="replace")


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
