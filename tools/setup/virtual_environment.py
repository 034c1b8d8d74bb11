"""The checkout's own environment, .venv: torch, if no other Python has a fitting one, and what the lab is built with,
where the system has none: cmake, ninja and libraries."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tools.setup import progress, requirements, system_packages
from tools.setup.toolchain import (
    REQUIREMENTS,
    ROOT,
    VENV,
    LabError,
    PythonFacts,
    active_pythons,
    probe,
    torch_gap,
    wanted_torch,
)  # fmt: skip

MARKER = VENV / ".ddp-lab"  # says that the lab made this environment, for which requirements, and what is in it

LIBRARIES = VENV / "libraries"  # headers and sources, for cmake/Dependencies.cmake
LIBRARY_PINS = ROOT / "cmake" / "libraries.txt"

# What may be in it. Running on the CPU needs little of torch's CUDA build: torch itself, without its dependencies, and
# the libraries that libtorch_cpu.so names as NEEDED. (Python's `import torch` fails then; no tool of the lab does it.)
TORCH = "torch"
PAGES = "pages"  # what writes the page of a run; without it a run says that there is none
FIGURES = "figures"  # what draws figures, writes pages and sets the writeup
CHECK = "check"  # what only `make check` uses; NCCL's headers are for compiling what runs on GPUs
CUDA = "cuda"  # all that torch depends on, for running on GPUs
CMAKE, NINJA, HEADERS = "cmake", "ninja", "headers"  # each where the system has none that fits
_PACKAGES = {
    PAGES: ("jinja2",),
    CMAKE: ("cmake",),
    NINJA: ("ninja",),
    FIGURES: ("numpy", "pandas", "matplotlib", "tabulate", "jsonschema", "typst"),
    CHECK: (
        "ruff",
        "check-jsonschema",
        "clang-format",
        "clang-tidy",
        "pytest",
        "pytest-xdist",
        "pytest-timeout",
        "import-linter",
        "scipy",
        "zensical",
    ),
}
PACKAGES_OF_CHECK = (*_PACKAGES[FIGURES], *_PACKAGES[CHECK])
# To download, and in this order.
_MEGABYTES = {CMAKE: 30, NINJA: 1, HEADERS: 33, TORCH: 530, PAGES: 0, CUDA: 2400, FIGURES: 80, CHECK: 240}
_LIBRARY = re.compile(r"/((?:cli11|nlohmann_json|gtest_vendor)/(?:include|src)/.*[^/])$")
NEEDED_BYTES = {False: 3 << 30, True: 8 << 30}  # without and with CUDA, downloads included
PYTHON_RANGE = (3, 11), (3, 14)  # what the pinned packages are published for; README.md says so

_LIBRARIES = {"cudart": "nvidia-cuda-runtime", "cupti": "nvidia-cuda-cupti"}  # whose packages bring them
_NO_PIP = "has no pip for environments (ensurepip): install your distribution's package, such as python3-venv"
INSTALL = ["install", "--no-compile"]  # whose thousands of files the lab never imports
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_UNTRUSTED = "it does not trust the package index's certificate. Name that of your network: PIP_CERT=/path/to/ca.crt"
OFFLINE_ADVICE = """\
The packages could not be downloaded: there is no network, or no package index that answers.
Connect and run it again, or build on what is there:
  make test PYTHON=/path/to/python       a Python that has torch {torch}
  make test LIBTORCH=/path/to/libtorch   an unpacked libtorch {torch} (figures need a Python with matplotlib)"""
_OFFLINE = re.compile(
    r"Temporary failure in name resolution|Failed to establish a new connection|Network is unreachable"
    r"|ProxyError|Read timed out|from versions: none|Failed to resolve|Connection aborted"
)


def state() -> str:
    """What the marker says: "ready <hash> <parts>", "incomplete", or nothing where it is not the lab's."""
    try:
        return MARKER.read_text().strip()
    except OSError:
        return ""


def requirements_hash() -> str:
    return hashlib.sha256(REQUIREMENTS.read_bytes() + LIBRARY_PINS.read_bytes()).hexdigest()[:16]


def parts_there() -> frozenset[str]:
    """The parts that are installed as requirements.txt has them now."""
    words = state().split()
    return frozenset(words[2:]) if words[:2] == ["ready", requirements_hash()] else frozenset()


def megabytes_to_come(parts: frozenset[str]) -> int:
    return sum(_MEGABYTES[part] for part in parts - parts_there())


def system_gaps() -> frozenset[str]:
    """The parts that the lab is built with, and that the system lacks."""
    headers = all(find() for find in system_packages.libraries.values())
    found = {CMAKE: system_packages.cmake(), NINJA: system_packages.ninja(), HEADERS: headers}
    return frozenset(part for part, there in found.items() if not there)


def cmake() -> str:
    """The program itself: bin/cmake is a Python script around it."""
    return next(map(str, VENV.glob("lib/python3*/site-packages/cmake/data/bin/cmake")), "")


def ninja() -> str:
    return shutil.which(f"{VENV}/bin/ninja") or ""


def provide(log: Path, parts: frozenset[str]) -> PythonFacts:
    """Makes, completes or renews .venv, so that it has these parts; returns its Python."""
    facts = probe(f"{VENV}/bin/python")
    fits = facts is not None and not (TORCH in parts and torch_gap(facts.torch))
    if not state() and VENV.exists() and any(VENV.iterdir()):
        if fits and not parts & {CMAKE, NINJA, HEADERS}:
            return facts
        raise LabError(
            f"{VENV} is there already, was not made by the lab, and has no fitting torch, or lacks what the system "
            "does not have either. Move it away, or name its Python or another: PYTHON=/path/to/python"
        )
    if fits and parts <= parts_there():
        return facts
    if not (fits and state().startswith("ready")):
        create(log, parts)
    for part in [part for part in _MEGABYTES if part in parts - parts_there()]:
        _install(part, log)
        MARKER.write_text(" ".join(["ready", requirements_hash(), *sorted(parts_there() | {part})]) + "\n")
    facts = probe(f"{VENV}/bin/python")
    gap = "does not start" if not facts else torch_gap(facts.torch) if TORCH in parts else ""
    if gap:
        raise LabError(f"{VENV}/bin/python {gap} though pip succeeded; see {log}")
    return facts


def create(log: Path, parts: frozenset[str]) -> None:
    python = base_python()
    if TORCH in parts and (gap := disk_gap(CUDA in parts)):
        raise LabError(gap)
    if VENV.exists():
        shutil.rmtree(VENV)
    VENV.mkdir()
    MARKER.write_text("incomplete\n")
    make = [python.executable, "-m", "venv", *([] if python.has_pip else ["--without-pip"]), str(VENV)]
    failed, lines = progress.run(make, "Making the Python environment .venv", log)
    if failed:
        raise LabError(_failure("The Python environment could not be made", lines, log))
    if not python.has_pip:
        _unpack_pip(python.executable, log)


def disk_gap(cuda: bool) -> str:
    free, needed = shutil.disk_usage(VENV.parent).free, NEEDED_BYTES[cuda]
    if free >= needed:
        return ""
    return (
        f"{VENV.parent} has {free / 2**30:.1f} GB free, torch and its libraries need about "
        f"{needed >> 30} GB. Free some, or use a Python that has torch: PYTHON=/path/to/python"
    )


def base_python() -> PythonFacts:
    """A Python of a fitting version, rather one that has pip for environments."""
    names = [f"python3.{minor}" for minor in range(PYTHON_RANGE[1][1], PYTHON_RANGE[0][1] - 1, -1)]
    candidates = [*active_pythons(), "/usr/bin/python3", *filter(None, map(shutil.which, names))]
    found = [facts for facts in map(probe, dict.fromkeys(candidates)) if facts]
    fitting = [facts for facts in found if PYTHON_RANGE[0] <= facts.version <= PYTHON_RANGE[1]]
    chosen = next((facts for facts in fitting if facts.has_pip), fitting[0] if fitting else None)
    if chosen and (chosen.has_pip or shutil.which("apt-get")):
        return chosen
    if chosen:
        raise LabError(f"{chosen.executable} {_NO_PIP}")
    low, high = map(system_packages.dotted, PYTHON_RANGE)
    have = ", ".join(sorted({system_packages.dotted(facts.version) for facts in found})) or "none"
    raise LabError(f"The lab needs Python {low} to {high}, found: {have}. Install one, or name it: PYTHON=python{low}")


def _unpack_pip(python: str, log: Path) -> None:
    """Debian's python3 comes without pip; what brings it to environments is a package that root alone may install."""
    (packages,) = VENV.glob("lib/python3*/site-packages")
    with tempfile.TemporaryDirectory(dir=VENV) as folder:
        wheel = system_packages.fetch_pip(Path(folder), log)
        if not wheel:
            raise LabError(f"{python} {_NO_PIP}, or connect to the network, for Debian's (all that was said: {log})")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    if not os.path.exists(_CERTIFICATES):  # which Debian has its pip trust in place of those that are in it
        trust = packages / "pip" / "_vendor" / "certifi" / "core.py"
        trust.write_text(trust.read_text().replace(_CERTIFICATES, str(trust.with_name("cacert.pem"))))


def _install_torch(log: Path) -> None:
    _pip_locked(INSTALL, ["torch"], "Installing torch into .venv", log, alone=True)
    if libraries := missing_libraries():
        if unknown := [name for name in libraries if name not in _LIBRARIES]:
            raise LabError(f"torch needs lib{unknown[0]}.so, which none of its own packages brings: install it")
        _pip_locked(INSTALL, map(_LIBRARIES.get, libraries), f"Installing {', '.join(libraries)}", log, alone=True)


def missing_libraries() -> list[str]:
    """What libtorch_cpu.so needs and the loader does not find: "cudart" for libcudart.so.13, for one."""
    (library,) = VENV.glob("lib/python3*/site-packages/torch/lib/libtorch_cpu.so")
    said = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=False).stdout
    return sorted(set(re.findall(r"^\s*lib(\w+)\.so\S* => not found", said, re.MULTILINE)))


def _install_cuda(log: Path) -> None:
    # With crt's headers, which cudart's include, NVIDIA packs with its compiler, and requirements.in asks for.
    _pip_locked(INSTALL, ["torch"], "Installing torch's CUDA libraries", log)


def _install_nccls_headers(log: Path) -> None:
    nccl = [entry[1] for entry in requirements.entries() if entry[1].startswith("nvidia-nccl-")]  # torch's CUDA build
    if nccl and not nccl_header():
        with tempfile.TemporaryDirectory(dir=VENV) as folder:
            _pip_locked(["download", "-d", folder], nccl, "Fetching NCCL's headers", log, alone=True)
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                headers = [name for name in archive.namelist() if "/include/" in name]
                archive.extractall(next(VENV.glob("lib/python3*/site-packages")), headers)


def nccl_header() -> str:
    return next(map(str, VENV.glob("lib/python3*/site-packages/nvidia/nccl/include/nccl.h")), "")


def _install_headers(log: Path) -> None:
    """From the same wheels for every machine and Python, of which nothing is run: their checksums are known."""
    anywhere = ["--only-binary=:all:", "--python-version=3.11", "--platform=manylinux_2_28_x86_64"]
    with tempfile.TemporaryDirectory(dir=VENV) as folder:
        fetch = ["download", "--no-deps", "--require-hashes", *anywhere, "-d", folder, "-r", str(LIBRARY_PINS)]
        _pip(fetch, f"Fetching {', '.join(system_packages.libraries)}", log)
        shutil.rmtree(LIBRARIES, ignore_errors=True)
        for wheel in Path(folder).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if match := _LIBRARY.search(name):
                        path = LIBRARIES / match[1]
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(archive.read(name))


def _install(part: str, log: Path) -> None:
    if packages := _PACKAGES.get(part):
        _pip_locked(INSTALL, packages, f"Installing {', '.join(packages)} into .venv", log)
    more = {HEADERS: _install_headers, TORCH: _install_torch, CUDA: _install_cuda, CHECK: _install_nccls_headers}
    if part in more:
        more[part](log)


def _pip_locked(command: list[str], packages: Iterable[str], title: str, log: Path, alone: bool = False) -> None:
    """Of these and all that they need, as requirements.txt has them; of nothing else, whatever a package asks for."""
    with tempfile.NamedTemporaryFile("w", dir=VENV) as listed:
        listed.write(requirements.needed(packages, alone))
        listed.flush()
        _pip([*command, "--no-deps", "--require-hashes", "-r", listed.name], title, log)


def _pip(arguments: list[str], title: str, log: Path) -> None:
    argv = [f"{VENV}/bin/python", "-m", "pip", *arguments, "--no-input", "--disable-pip-version-check"]
    environment = {"PIP_USER": "0", "PYTHONUNBUFFERED": "1"}
    failed, lines = progress.run([*argv, "--progress-bar=off"], title, log, environment, _condense)
    if failed:
        raise LabError(_failure("pip failed", lines, log))


def _condense(line: str) -> str | None:
    if match := re.match(r"\s*(?:Downloading|Using cached) (?:\S*/)?([\w.]+?)-\d\S* (\(.*\))", line):
        return f"downloading {match[1]} {match[2]}"
    if match := re.match(r"Collecting ([\w.-]+)", line):
        return f"looking for {match[1]}"
    if "Installing collected packages" in line:
        return "unpacking all packages"
    return "no answer, trying again" if "Retrying" in line else None


def _failure(what: str, lines: list[str], log: Path) -> str:
    text = "\n".join(lines)
    if "No space left on device" in text:
        return f"{what}: the disk is full. Torch takes about 3 GB in {VENV.parent} and in pip's cache; with CUDA, 8 GB."
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"{what}: {_UNTRUSTED}"
    if _OFFLINE.search(text):
        return OFFLINE_ADVICE.format(torch=wanted_torch())
    return "\n".join([f"{what}. Its last lines (all of them: {log}):", *("  | " + line for line in lines[-8:])])
