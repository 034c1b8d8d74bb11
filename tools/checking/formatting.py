"""`make format`, and what it would change: clang-format for C++, and ruff, which also lints, for Python. And what
clang-tidy finds.

That looks at all that a file includes. One file costs 19 s of a core, nearly all of it for libtorch: 235 files would
take 37 minutes on two cores. So as many files as compile together are looked at as one, in some 13 units: 4 minutes.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from tools.checking.context import CORES, Context, describe
from tools.grading.stages import short_paths
from tools.setup import system_packages, toolchain
from tools.setup.configuring import compile_commands
from tools.setup.toolchain import ROOT, LabError, Toolchain, pinned

FOLDERS = ("assignments", "benchmarks", "cmake", "common", "solutions", "tests")
PYTHON_FOLDERS = ("figures", "tests", "tools")
_FINDING = re.compile(r"^(?P<file>/[^:\n]+):\d+:\d+: (?:warning|(?:fatal )?error): ", re.MULTILINE)


def unformatted_cpp(context: Context) -> str:
    """The files that `make format` would change; empty if there are none."""
    clang_format = tool(context.toolchain, "clang-format")
    log = context.folder("lint") / "clang-format.log"
    code, text = context.run([clang_format, "--dry-run", "-Werror", *map(str, sources("*.cpp", "*.h"))], log)
    wrong = sorted(short_paths(str(path)) for path in by_file(text))
    return "\n".join(["not formatted (make format):", *wrong] if wrong else [text[-4000:]]) if code else ""


def unformatted_python(context: Context) -> str:
    """What ruff says of format and lint; empty if nothing."""
    for work in (["format", "--check"], ["check", "--output-format=concise"]):
        command = ruff(context.toolchain.figure_python, *work)
        code, text = context.run(command, context.folder("lint") / "ruff.log")
        if code:
            return f"{text[-4000:]}\nmake format repairs what it can"
    return ""


def ruff(python: str, *options: str) -> list[str]:
    return [python, "-m", "ruff", *options, *(str(ROOT / folder) for folder in PYTHON_FOLDERS)]


def tool(tools: Toolchain, name: str) -> str:
    """The pinned one, which is beside the Python that has it: each version formats and finds other things."""
    found = Path(tools.figure_python).parent / name
    version = system_packages.dotted(system_packages.version_of(str(found)))
    if not version or not pinned(name).startswith(version):
        here = f"{found} is version {version}" if version else f"There is no {found}"
        pip = f"{shlex.quote(tools.figure_python)} -m pip install {name}=={pinned(name)}"
        raise LabError(f"{here}, so this was not checked. Install it: {pip}")
    return str(found)


def sources(*patterns: str) -> list[Path]:
    return sorted(path for folder in FOLDERS for pattern in patterns for path in (ROOT / folder).rglob(pattern))


def by_file(text: str) -> dict[Path, str]:
    """The findings in a tool's output, each with the lines that belong to it."""
    found, starts = defaultdict(str), [*_FINDING.finditer(text)]
    for this, following in zip(starts, [*starts[1:], None]):
        found[Path(this["file"])] += text[this.start() : following.start() if following else len(text)]
    return found


def main() -> int:
    tools = toolchain.load()
    python = tools.figure_python
    formatted = subprocess.run([tool(tools, "clang-format"), "-i", *map(str, sources("*.cpp", "*.h"))], check=False)
    work = [ruff(python, "check", "--fix", "--quiet"), ruff(python, "format", "--quiet")]
    return max(formatted.returncode, *(subprocess.run(command, check=False).returncode for command in work))


# Each program has an entry of the same name.
_PART = '#define ddp_main ddp_main_{number}\n#include "{path}"\n#undef ddp_main\n'
# What makes no sense if one file includes others.
_NOT_TOGETHER = "-bugprone-suspicious-include"
_NOISE = re.compile(r"^(\d+ (warning|error).*generated\.|Error while processing.*|Suppressed \d+.*)\n", re.MULTILINE)
Flags = tuple[str, ...]


def findings(context: Context) -> list[str]:
    """All of them, by file; empty if there are none."""
    linter = Linter(context)
    files = linter.files()
    found = linter.findings(files) if files else {context.build_dir: "compiles no file of the checkout"}
    return [describe(short_paths(str(path)), text) for path, text in sorted(found.items()) if text]


class Linter:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._tool = tool(context.toolchain, "clang-tidy")
        self._folder = context.folder("lint")
        self._texts: dict[Flags, Flags] = {}

    def files(self) -> dict[Path, Flags]:
        """The checkout's sources that the build compiles. All that use a precompiled header share the flags of tests,
        which include everyone else's."""
        commands, precompiled = {}, str(self._context.build_dir / "CMakeFiles" / "pch_")
        for entry in compile_commands(self._context.build_dir):
            if any((ROOT / folder) in Path(entry["file"]).parents for folder in FOLDERS):
                commands[Path(entry["file"])] = shlex.split(entry["command"])
        shared = [command for command in commands.values() if any(precompiled in word for word in command)]
        tests = next((command for command in shared if any("pch_tests" in word for word in command)), [])
        # A library that the system has not comes as -isystem, to those programs alone that use it.
        own = {word for command in shared for word in command if word.startswith("-I")}
        others = {word for command in shared for flag, word in pairwise(command) if flag == "-isystem"}
        flags = (*sorted(own), *(f"-isystem{folder}" for folder in sorted(others)), *_without_files(tests))
        return {path: flags if command in shared else _without_files(command) for path, command in commands.items()}

    def _as_text(self, flags: Flags) -> Flags:
        """The flags with which the linter reads what the compiler has precompiled, for itself alone: from a copy."""
        plain, words = [], iter(word for word in flags if word != "-Xclang")
        for word in words:
            if word == "-include-pch":
                next(words)
                continue
            plain.append(word)
            if word == "-include":
                header = Path(next(words))
                copy = self._folder / f"{header.parent.name}.h"
                copy.write_text(header.read_text(errors="replace"))
                plain.append(str(copy))
        return tuple(plain)

    def findings(self, files: dict[Path, Flags]) -> dict[Path, str]:
        """What there is to say, by file; also by header."""
        groups, parts, found = defaultdict(list), [], {}
        for path, flags in files.items():
            groups[flags].append(path)
        self._texts = {flags: self._as_text(flags) for flags in groups}
        for flags, paths in groups.items():
            random.Random(0).shuffle(paths)  # neighbours resemble one another, and do not compile together
            size = math.ceil(len(paths) / CORES)
            parts += [(flags, paths[start : start + size]) for start in range(0, len(paths), size)]
        with ThreadPoolExecutor(CORES) as pool:
            for some in pool.map(self._look, parts):
                found |= some
        return found

    def _look(self, part: tuple[Flags, list[Path]]) -> dict[Path, str]:
        flags, paths = part
        found = {}
        while paths:
            unit, together = self._together(flags, paths)
            options = ["--quiet", f"--config-file={ROOT / '.clang-tidy'}", f"--checks={_NOT_TOGETHER}"]
            log = unit.with_suffix(".log")
            code, text = self._context.run([self._tool, *options, str(unit), "--", *self._texts[flags]], log)
            some = by_file(_NOISE.sub("", text))
            found |= some
            if code and not some:
                found[unit] = describe(f"{self._tool} ended with code {code}", text[-4000:], log)
            paths = [path for path in paths if path not in together]
        return found

    def _together(self, flags: Flags, paths: list[Path]) -> tuple[Path, list[Path]]:
        """A unit that includes as many of these files as compile together: those that the compiler does
        not complain of after the ones before them."""
        unit = self._folder / f"{hashlib.sha256(repr(paths).encode()).hexdigest()[:16]}.cpp"
        while True:
            unit.write_text("".join(_PART.format(number=number, path=path) for number, path in enumerate(paths)))
            if len(paths) == 1:
                return unit, paths
            all_errors = ["-ferror-limit=0"] if self._context.uses_clang else []
            command = [self._context.toolchain.cxx, *flags, *all_errors, "-w", "-fsyntax-only", str(unit)]
            _, text = self._context.run(command, unit.with_suffix(".log"))
            complaints = by_file(text)
            if not complaints:
                return unit, paths
            agreeing = [path for path in paths if path not in complaints]
            paths = agreeing if 0 < len(agreeing) < len(paths) else paths[: len(paths) // 2]


def _without_files(command: list[str]) -> Flags:
    return tuple(command[1 : command.index("-o")] if command else [])


if __name__ == "__main__":
    sys.exit(main())
