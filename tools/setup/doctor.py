#!/usr/bin/env python3
"""Reports which of the lab's needs this machine meets, and what to do about each gap. Changes nothing.

Exit status: 0 if the lab can be built here (by `make setup` or already), 1 if something must be done first.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.setup import cuda, system_packages, toolchain, virtual_environment
from tools.setup.columns import columns, fold
from tools.setup.toolchain import LabError

OK, OFF, MISSING = "ok", "off", "missing"  # off: the lab works without it
COLOURS = {OK: "\033[32m", OFF: "\033[33m", MISSING: "\033[31m"}
MARKS = {OK: "✓", OFF: "–", MISSING: "✗"}
BY_ADMINISTRATOR = "the last line says how"


@dataclass(frozen=True)
class Finding:
    name: str
    state: str
    found: str
    advice: str = ""


def main() -> int:
    sys.stdout.reconfigure(errors="backslashreplace")  # a path may hold what the terminal cannot show
    if gap := toolchain.unsupported_system():
        raise LabError(gap)
    findings = [*tools(), *python_and_torch(), *for_gpus(), *machine(), *built(), checkout()]
    report(findings)
    gaps = [finding.name for finding in findings if finding.state == MISSING]
    end = "The lab can be built here. Begin: make test"
    print("", f"The lab cannot be built yet: {', '.join(gaps)}." if gaps else end, sep="\n")
    if any(finding.advice == BY_ADMINISTRATOR for finding in findings):
        print(f"{system_packages.how_to_install()}")
    return 1 if gaps else 0


def report(findings: list[Finding]) -> None:
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark = f"{MARKS[finding.state]} {finding.state:<7}"
        found = finding.found.replace(f"{toolchain.ROOT}/", "")
        line = fold(f"{mark} {finding.name:<{width}}  {found}", columns(), hang=width + 12)
        print(line.replace(mark, f"{COLOURS[finding.state]}{mark}\033[0m", 1) if colour else line)
        if finding.advice:
            print(fold(f"{'':{width + 12}}-> {finding.advice}", columns(), hang=3))


def tools() -> list[Finding]:
    before = set_up()
    cxx = before.cxx if before and not os.environ.get("CXX") else system_packages.compiler()
    if cxx:
        gap = system_packages.tool_gap(cxx)
        described = f"{with_version(cxx)} ({reason_for(cxx)})"
        findings = [Finding("C++ compiler", MISSING if gap else OK, described, gap)]
    else:
        findings = [missing(need, required=not system_packages.can_install()) for need in system_packages.REQUIRED]
    for need in (*system_packages.OPTIONAL, system_packages.GDB, *system_packages.sanitizers()):
        found = need.find()
        findings.append(Finding(need.name, OK, with_version(found)) if found else missing(need))
    return [*findings, *build_tools()]


def with_version(path: str) -> str:
    return f"{path} {system_packages.dotted(system_packages.version_of(path))}".rstrip()


def build_tools() -> list[Finding]:
    """What is the system's, or comes into .venv."""
    cmake = system_packages.cmake() or virtual_environment.cmake()
    ninja = system_packages.ninja() or virtual_environment.ninja()
    findings = [into_venv(name, path and with_version(path)) for name, path in (("cmake", cmake), ("ninja", ninja))]
    own = virtual_environment.LIBRARIES if virtual_environment.HEADERS in virtual_environment.parts_there() else ""
    return findings + [into_venv(name, find() or str(own)) for name, find in system_packages.libraries.items()]


def into_venv(name: str, found: str) -> Finding:
    if found:
        return Finding(name, OK, found)
    return Finding(name, OFF, "not installed, or too old", "make setup brings it into .venv")


def reason_for(cxx: str) -> str:
    """Why this compiler is taken."""
    if os.environ.get("CXX"):
        return "named by CXX"
    if system_packages.is_clang(cxx):
        return "preferred: it builds the lab in a third of g++'s time"
    return "there is no fitting clang++, which would need a third of the time"


def missing(need: system_packages.Need, required: bool = False) -> Finding:
    target = {"gdb": "make debug", "sanitizers": "make check"}.get(need.name, "make setup")
    how = f"{target} installs it" if system_packages.can_install() else BY_ADMINISTRATOR
    return Finding(need.name, MISSING if required else OFF, f"not found: {need.without}", how)


def python_and_torch() -> list[Finding]:
    """The given or set-up Python and torch, else those that a set-up would choose."""
    python, libtorch = choice()
    candidates = [python] if python else [*toolchain.active_pythons(), f"{toolchain.VENV}/bin/python"]
    found = [facts for facts in map(toolchain.probe, candidates) if facts]
    fitting = [facts for facts in found if not toolchain.torch_gap(facts.torch)]
    if not found:
        return [Finding("python", MISSING, f"{python or 'python3'} does not start", "give PYTHON=/path/to/python")]
    facts = (fitting or found)[0]
    findings = [Finding("python", OK, f"{facts.executable} {system_packages.dotted(facts.version)}")]
    findings += [torch(libtorch or facts.torch, python or facts.executable, given=bool(python or libtorch))]
    if facts.can_draw:
        findings.append(Finding("figures", OK, ", ".join(toolchain.FIGURE_PACKAGES)))
    elif fitting:  # otherwise set-up makes a .venv, which has them
        advice = f"{shlex.quote(facts.executable)} -m pip install {' '.join(toolchain.FIGURE_PACKAGES)}"
        own = toolchain.VENV in Path(facts.executable).parents and virtual_environment.state()
        lacks = f"this Python lacks one of {', '.join(toolchain.FIGURE_PACKAGES)}"
        findings.append(Finding("figures", OFF, lacks, "make figures installs it" if own else advice))
    return findings


def choice() -> tuple[str, str]:
    """(python, libtorch) as given now, else as set up before, else empty."""
    python, libtorch = os.environ.get("PYTHON", ""), os.environ.get("LIBTORCH", "")
    before = set_up()
    if python or libtorch or not before:
        return os.path.expanduser(python), os.path.expanduser(libtorch)
    return before.python, "" if before.python else before.libtorch


def set_up() -> toolchain.Toolchain | None:
    try:
        return toolchain.load()
    except SystemExit:
        return None


def torch(folder: str, python: str, given: bool) -> Finding:
    gap = toolchain.torch_gap(folder)
    if not gap:
        return Finding("torch", OK, described(folder))
    if given:
        advice = f"give a PYTHON= or LIBTORCH= with torch {toolchain.wanted_torch()}, or neither after: make clean"
        return Finding("torch", MISSING, f"{folder or python} {gap}", advice)
    try:
        base = virtual_environment.base_python()
    except LabError as error:
        return Finding("torch", MISSING, gap, str(error))
    if full := virtual_environment.disk_gap(cuda=False):
        return Finding("torch", MISSING, gap, full)
    how = f"make setup installs it into .venv, made by {base.executable}"
    return Finding("torch", OFF, f"not installed yet ({python} {gap})", how)


def described(folder: str) -> str:
    build = "CUDA build" if Path(folder, "lib/libtorch_cuda.so").exists() else "CPU build"
    own = toolchain.VENV in Path(folder).parents
    only_cpp = own and virtual_environment.CUDA not in virtual_environment.parts_there()
    note = "; for C++ on the CPU: Python's `import torch` needs make setup DEVICE=all" if only_cpp else ""
    fits = f"the lab builds on {toolchain.wanted_torch()}"
    return f"{toolchain.torch_version(folder)} ({build}; {fits}) in {folder}{note}"


def for_gpus() -> list[Finding]:
    findings = []
    nvcc = toolchain.nvcc()
    if nvcc:
        text = output([nvcc, "--version"])
        release = re.search(r"release (\S+),", text)
        findings.append(Finding("CUDA toolkit", OK, f"{nvcc} {release[1] if release else ''}"))
    else:
        advice = "only DEVICE=cuda with a PyTorch of your own needs it, or CUDA_HOME; .venv brings the headers"
        findings.append(Finding("CUDA toolkit", OFF, "no nvcc", advice))
    header = nccl_header()
    found = f"{nccl_version(header)} ({header})" if header else "no nccl.h"
    advice = "" if header else "only DEVICE=cuda needs it: make setup DEVICE=cuda brings it"
    findings.append(Finding("NCCL", OK if header else OFF, found, advice))
    found, gap = cuda.gpus()
    advice = "only DEVICE=cuda needs them; all stages are graded on the CPU" if gap else ""
    findings.append(Finding("GPUs", OFF if gap else OK, gap or "; ".join(found), advice))
    return findings


def nccl_header() -> str:
    folders = ["/usr/include", "/usr/local/include"]
    if toolchain.nvcc():
        folders.insert(0, str(Path(toolchain.nvcc()).parent.parent / "include"))
    before = set_up()
    if before:
        folders.insert(0, str(Path(before.libtorch).parent / "nvidia/nccl/include"))
    found = (f"{folder}/nccl.h" for folder in folders if os.path.exists(f"{folder}/nccl.h"))
    return next(found, virtual_environment.nccl_header())


def nccl_version(header: str) -> str:
    text = Path(header).read_text(errors="replace")
    parts = [re.search(rf"#define NCCL_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(part[1] for part in parts if part)


def machine() -> list[Finding]:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    free = shutil.disk_usage(toolchain.ROOT).free / 2**30
    slow, small, full = cores < 2, memory < 3, free < 3
    return [
        Finding("system", OK, f"{platform.system()} {platform.release()} {platform.machine()}"),
        Finding("cores", OFF if slow else OK, f"{cores}", "works, but waits: tests run several ranks" if slow else ""),
        Finding("memory", OFF if small else OK, f"{memory:.1f} GB", "the build may need 3 GB" if small else ""),
        Finding("disk", OFF if full else OK, f"{free:.0f} GB free", "the build may need 3 GB" if full else ""),
    ]


def built() -> list[Finding]:
    """Whether what is built has all that it needs; nothing where nothing is built."""
    if not list(toolchain.BUILD_DIR.glob("bin/*")):
        return []
    missing = output([sys.executable, "-m", "tools.grading.compiling.unresolved"]).splitlines()
    if missing:
        before = set_up()
        cxx = before.cxx if before else "the compiler"
        advice = f"{cxx} does not fit the compiler of libtorch: make clean, and take another by CXX="
        return [Finding("built", MISSING, f"nothing defines {'; '.join(missing[:3])}", advice)]
    return [Finding("built", OK, "programs and libraries have all that they need")]


def checkout() -> Finding:
    places = [path for path in (toolchain.ROOT, toolchain.BUILD_DIR) if path.exists()]
    closed = [str(path) for path in places if not os.access(path, os.W_OK)]
    if closed:
        return Finding("checkout", MISSING, f"{closed[0]} cannot be written", "clone the lab into a folder of your own")
    return Finding("checkout", OK, str(toolchain.ROOT))


def output(argv: list[str]) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(fold(f"doctor: {error}", columns()))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # as in `make doctor | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
