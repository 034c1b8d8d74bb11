"""`make format`, and what it would change: clang-format for C++, and ruff, which also lints, for Python."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tools.checking.context import Context
from tools.grading.stages import short_paths
from tools.setup import system_packages, toolchain
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


if __name__ == "__main__":
    sys.exit(main())
