"""`make format`, and what it would change: clang-format for C++, and ruff, which also lints, for Python. And what
clang-tidy finds.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.checking.context import CORES, Context, describe
from tools.checking.second_build import second_build
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


_NOISE = re.compile(r"^(\d+ (warning|error).*generated\.|Error while processing.*|Suppressed \d+.*)\n", re.MULTILINE)
# Each file with what it includes itself, and nothing that others do.
_ALONE = ("-DCMAKE_UNITY_BUILD=OFF", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON")


def changed_sources() -> list[Path]:
    """The C++ files that differ from BASE= (a commit; by default origin/main, else the last one), a header's by its
    source of the same name."""
    base = os.environ.get("BASE") or next(filter(_is_commit, ("origin/main", "HEAD")), "")
    listed = [*_git("diff", "--name-only", base, "--"), *_git("ls-files", "--others", "--exclude-standard")]
    changed = {(ROOT / name).with_suffix(".cpp") for name in listed if name.endswith((".cpp", ".h"))}
    return [path for path in sources("*.cpp") if path in changed]


def _is_commit(name: str) -> bool:
    command = ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def findings(context: Context, files: Iterable[Path]) -> list[str]:
    """What clang-tidy says of these files, as far as the build compiles them."""
    clang_tidy, other = tool(context.toolchain, "clang-tidy"), second_build(context, "lint", [], _ALONE)
    compiled = {Path(entry["file"]) for entry in compile_commands(other.build_dir)}
    command = [clang_tidy, "--quiet", f"--config-file={ROOT / '.clang-tidy'}", "-p", str(other.build_dir)]

    def look(path: Path) -> str:
        log = context.folder("lint") / f"{path.stem}.log"
        code, text = context.run([*command, str(path)], log)
        found = "\n".join(by_file(_NOISE.sub("", text)).values()) or (text[-4000:] if code else "")
        return found and describe(short_paths(str(path)), found, log)

    with ThreadPoolExecutor(CORES) as pool:
        return [text for text in pool.map(look, [path for path in files if path in compiled]) if text]


if __name__ == "__main__":
    sys.exit(main())
