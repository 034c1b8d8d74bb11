"""The checkout's own Python environment, .venv: made only if no other Python has a fitting torch."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from tools.setup import progress
from tools.setup import system_packages
from tools.setup.toolchain import REQUIREMENTS, VENV, LabError, PythonFacts, active_pythons, probe, torch_gap, wanted_torch

MARKER = VENV / ".ddp-lab"  # says that the lab made this environment, and for which requirements
NEEDED_BYTES = 8 << 30  # downloads included
PYTHON_RANGE = (3, 11), (3, 14)  # what the pinned packages are published for

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
    """What the marker says: ready <hash>, incomplete, or nothing if the environment is not the lab's."""
    try:
        return MARKER.read_text().strip()
    except OSError:
        return ""


def ready_state() -> str:
    return f"ready {hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]}"


def provide(log: Path) -> PythonFacts:
    """Makes, completes or renews .venv; returns its Python."""
    facts = probe(f"{VENV}/bin/python")
    fits = facts is not None and not torch_gap(facts.torch)
    if not state() and VENV.exists() and any(VENV.iterdir()):
        if fits:
            return facts
        raise LabError(
            f"{VENV} is there already, was not made by the lab, and has no fitting torch. "
            "Move it away, or name its Python or another: PYTHON=/path/to/python"
        )
    if fits and state() == ready_state():
        return facts
    if not (fits and state().startswith("ready")):
        create(log)
    install(log)
    facts = probe(f"{VENV}/bin/python")
    gap = torch_gap(facts.torch) if facts else "does not start"
    if gap:
        raise LabError(f"{VENV}/bin/python {gap} though pip succeeded; see {log}")
    MARKER.write_text(ready_state() + "\n")
    return facts


def create(log: Path) -> None:
    python = base_python(log)
    free = shutil.disk_usage(VENV.parent).free
    if free < NEEDED_BYTES:
        raise LabError(
            f"{VENV.parent} has {free / 2**30:.1f} GB free, torch and its libraries need about "
            f"{NEEDED_BYTES >> 30} GB. Free some, or use a Python that has torch: PYTHON=/path/to/python"
        )
    if VENV.exists():
        shutil.rmtree(VENV)
    VENV.mkdir()
    MARKER.write_text("incomplete\n")
    made, lines = progress.run([python, "-m", "venv", str(VENV)], "Making the Python environment .venv", log)
    if not made:
        raise LabError(_failure("The Python environment could not be made", lines, log))


def base_python(log: Path) -> str:
    """A Python of a fitting version that can make environments; installs python3-venv if only that is missing."""
    names = [f"python3.{minor}" for minor in range(PYTHON_RANGE[1][1], PYTHON_RANGE[0][1] - 1, -1)]
    candidates = [*active_pythons(), "/usr/bin/python3", *filter(None, map(shutil.which, names))]
    for attempt in range(2):
        found = [facts for facts in map(probe, dict.fromkeys(candidates)) if facts]
        fitting = [facts for facts in found if PYTHON_RANGE[0] <= facts.version <= PYTHON_RANGE[1]]
        able = [facts for facts in fitting if facts.can_make_venv]
        if able:
            return able[0].executable
        if attempt == 0 and fitting and system_packages.can_install():
            system_packages.apt_install([system_packages.PYTHON_VENV], log)
    if fitting:
        how = system_packages.install_command([system_packages.PYTHON_VENV])
        raise LabError(f"{fitting[0].executable} cannot make a virtual environment. To fix that: {how}")
    low, high = map(system_packages.dotted, PYTHON_RANGE)
    have = ", ".join(sorted({system_packages.dotted(facts.version) for facts in found})) or "none"
    raise LabError(f"The lab needs Python {low} to {high}, found: {have}. Install one, or name it: PYTHON=python{low}")


def install(log: Path) -> None:
    # --no-compile: the lab never imports thousands of these files.
    argv = [f"{VENV}/bin/python", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    installed, lines = progress.run(
        [*argv, "--no-compile", "--progress-bar", "off", "-r", str(REQUIREMENTS)],
        "Installing torch and matplotlib into .venv (about 5 GB, minutes)",
        log,
        {"PIP_USER": "0", "PYTHONUNBUFFERED": "1"},
        _condense,
    )
    if not installed:
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
        return f"{what}: the disk is full. It takes about {NEEDED_BYTES >> 30} GB in {VENV.parent} and in pip's cache."
    if _OFFLINE.search(text):
        return OFFLINE_ADVICE.format(torch=wanted_torch())
    return "\n".join([f"{what}. Its last lines (all of them: {log}):", *("  | " + line for line in lines[-8:])])
