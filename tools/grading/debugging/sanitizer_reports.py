"""What sanitizers are told, and what they report: a file for each process, of which the useful lines are shown."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.setup.system_packages import is_clang
from tools.setup.toolchain import ROOT

DEADLINE_S = 60.0  # for a group of ranks, which is several times slower; speed is not judged here
_PLACE = rf"{re.escape(str(ROOT))}/(?P<place>(?!\.venv/)[^\s:()]+:\d+)(?::\d+)?(?: \(|$)"
_FRAME = re.compile(rf"^ +#\d+ (?:0x\w+ in )?(?P<function>.*?) {_PLACE}")
# Addresses, process and thread numbers.
_CHANGING = re.compile(r"^==\d+==|( on address| at pc| bp| sp| at)? 0x[0-9a-f]+| \(\w*id=\d+[^)]*\)")
_FRAMES_SHOWN = 3
_WIDTH = 76


@dataclass(frozen=True, eq=False)
class Sanitizer:
    name: str
    flag: str  # what the compiler calls it, after -fsanitize=
    title: str
    runtime: str  # what clang calls its library
    options: Mapping[str, str]  # by the variable that it looks for them in

    def environment(self, reports: Path) -> dict[str, str]:
        more = f':log_path="{reports}":external_symbolizer_path="{symbolizer()}"'
        return {variable: options + more for variable, options in self.options.items()}


def symbolizer() -> str:
    """What tells the lines of addresses. A sanitizer would take the first of these names, even of a link to nothing."""
    return shutil.which("llvm-symbolizer") or shutil.which("addr2line") or ""


ADDRESS = Sanitizer(
    "address",
    "address,undefined",
    "AddressSanitizer and UndefinedBehaviorSanitizer",
    "asan",
    {
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1:print_legend=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    },
)


def is_installed(sanitizer: Sanitizer, cxx: str) -> bool:
    """Whether the compiler has its library: clang's is in a package of its own, and it would find GCC's."""
    of_clang = f"libclang_rt.{sanitizer.runtime}-{platform.machine()}.so"
    name = of_clang if is_clang(shutil.which(cxx) or cxx) else f"lib{sanitizer.runtime}.so"
    done = subprocess.run([cxx, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    return os.path.isabs(done.stdout.strip()) and os.path.isfile(done.stdout.strip())


def no_reports(prefix: Path) -> Path:
    """Where reports are to go, each process's to a file of its own; older ones are removed."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for old in prefix.parent.glob(f"{prefix.name}.*[0-9]"):
        old.unlink()
    return prefix


def found(reports: Path, own: str = "") -> dict[tuple[str, ...], tuple[str, Path]]:
    """Each finding in short, with the file that it stands in, by its innermost places: the same is told once."""
    findings: dict[tuple[str, ...], tuple[str, Path]] = {}
    for path in sorted(reports.parent.glob(f"{reports.name}.*[0-9]")):
        *blocks, rest = re.split(r"^SUMMARY: .*$", path.read_text(errors="replace"), flags=re.MULTILINE)
        for block in blocks or [rest]:  # one that was cut off has no summary
            text, places = summarize(block, own)
            findings.setdefault(places, (text, path))
    return findings


def summarize(report: str, own: str = "") -> tuple[str, tuple[str, ...]]:
    """What was found, with the lab's innermost places in each stack; and what tells it from others: the kind without
    its numbers, and the innermost place in each of the two stacks that met. `own`: a folder whose places alone count,
    where the report has some."""
    frames = [frame for line in report.splitlines() if (frame := _FRAME.match(line))]
    own = own if any(frame["place"].startswith(own) for frame in frames) else ""
    lines: list[str] = []
    innermost: list[str] = []
    shown: list[str] = []  # of this stack
    for line in report.splitlines():
        if frame := _FRAME.match(line):
            wanted = frame["place"].startswith(own) and frame["place"] not in shown
            if wanted and len(shown) < _FRAMES_SHOWN:
                function = frame["function"].replace("(anonymous namespace)::", "")
                lines.append(f"    {frame['place']} in {function}"[:_WIDTH])
                innermost += [] if shown else [frame["place"]]
                shown.append(frame["place"])
        elif line.strip("= ") and not re.match(r" +#\d+ ", line):
            lines.append(_CHANGING.sub("", line).replace(f"{ROOT}/", ""))
            shown = []
    return "\n".join(lines), (*[re.sub(r"\d+", "", line) for line in lines[:1]], *innermost[:2])
