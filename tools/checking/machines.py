"""Step of `make check ONLY=machines`: the lab on fresh minimal systems, as whoever clones it first meets it.

Each machine of tools/checking/machine_list.py is a minimal Debian (minimal_system.py) into which what is committed is
cloned. docs/machines.md gets a row for each that ran. MACHINE=name runs that one alone, or those that are named. A
machine is left in build/check/machines if it failed there, with its logs.
"""

from __future__ import annotations

import datetime
import os
import re
import shutil
import subprocess
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from tools.checking import minimal_system
from tools.checking.context import Context, Outcome, describe
from tools.checking.machine_list import CHECKS, MACHINES, Check, Machine
from tools.checking.minimal_system import TIMED_OUT, Ran, System
from tools.grading.stages import choose
from tools.setup.progress import elapsed
from tools.setup.toolchain import ROOT, LabError

TABLE = ROOT / "docs" / "machines.md"
MARKS = "<!-- written by make check ONLY=machines -->\n", "<!-- to here -->\n"
TITLES = ("machine", "who, and what was installed", "built with", *(check.title for check in CHECKS), "minutes", "when")
FAILED = "**failed**"
SHOWN = 12  # last lines of what failed
PREPARE_S = 900
BUNDLE = "ddp-lab.bundle"
BUILT_WITH = """\
cd ddp-lab && python3 -c '
from tools.setup import system_packages as packages, toolchain
tools = toolchain.load()
print(tools.cxx.rpartition("/")[2], packages.dotted(packages.version_of(tools.cxx)), "torch", tools.torch_version)'
"""


def check_machines(context: Context) -> Outcome:
    if missing := minimal_system.gap():
        return Outcome(skipped=[f"all machines: {missing}"])
    outcome = Outcome()
    for machine in chosen(os.environ.get("MACHINE", "")):
        outcome.take([_try(context, machine)])
    return outcome


def chosen(names: str) -> list[Machine]:
    known = {machine.name: machine for machine in MACHINES}
    return [known[choose("MACHINE", name, known)] for name in names.split()] or list(MACHINES)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"git {arguments[0]} failed, which says what is committed: {done.stderr.strip()}")
    return done.stdout.strip()


def _try(context: Context, machine: Machine) -> Outcome:
    folder = context.folder("machines", machine.name)
    shutil.rmtree(folder)
    shared = context.folder("machines", machine.name, "shared")
    shared.chmod(0o1777)
    _git("bundle", "create", "--quiet", str(shared / BUNDLE), "HEAD")
    try:
        outcome, row = run_checks(Trial(context, machine, folder, shared))
    except LabError as error:  # the other machines can still be tried
        return Outcome.of(str(error))
    write_row(TABLE, row)
    if not outcome.failures:
        for part in ("lab", "grader", "shared"):
            shutil.rmtree(folder / part)
    return outcome


@dataclass
class Trial:
    """One machine, as two systems that share a folder: where the lab is used, and where it grades."""

    context: Context
    machine: Machine
    folder: Path
    shared: Path
    systems: dict[str, System] = field(default_factory=dict)

    def log(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '_')}.log"

    def system(self, name: str) -> System:
        if name not in self.systems:
            made = System(self.context, self.machine.suite, self.folder / name, self.machine.user, self.shared)
            self._prepare(made, name)
            self.systems[name] = made
        return self.systems[name]

    def _prepare(self, system: System, name: str) -> None:
        """What an administrator does, and the clone."""
        user, packages = self.machine.user, " ".join(self.machine.packages)
        install = (
            "export DEBIAN_FRONTEND=noninteractive; apt-get update -q && apt-get install -qy --no-install-recommends"
        )
        steps = [
            ("root", f"useradd --create-home --shell=/bin/bash {user}" if user != "root" else ""),
            ("root", f"{install} {packages}" if packages else ""),
            (user, f"git clone --quiet /srv/{BUNDLE} ddp-lab" if name == "lab" else ""),
        ]
        for number, (who, script) in enumerate(steps):
            log = self.log(f"{name}_{number}")
            ran = system.run(script, log, PREPARE_S, who)
            if ran.code:
                raise LabError(describe(f"{self.machine.name}: {script}", last_lines(ran.text), log))


def run_checks(trial: Trial) -> tuple[Outcome, list[str]]:
    """What was found on a machine, and its row of the table."""
    outcome, cells, total, machine = Outcome(), [], 0.0, trial.machine
    for check in CHECKS:
        log = trial.log(check.title)
        system = trial.system("grader" if check.on_grader else "lab")
        ran = system.run(textwrap.dedent(check.script), log, 60 * check.minutes, env=machine.env)
        wrong = verdict(check, ran)
        title = f"{machine.name}: {check.title}: {wrong}"
        outcome.add(describe(title, last_lines(ran.text), log) if wrong else "")
        cells.append(FAILED if wrong else elapsed(ran.processor_s))
        total += ran.processor_s
    built = trial.system("lab").run(BUILT_WITH, trial.log("built_with"), PREPARE_S, env=machine.env)
    when = f"{datetime.date.today()}, {_git('rev-parse', '--short', 'HEAD')}"
    built_with = built.text.strip() if built.code == 0 else "nothing"
    return outcome, [machine.name, machine.describe(), built_with, *cells, f"{total / 60:.0f}", when]


def verdict(check: Check, ran: Ran) -> str:
    """What is wrong; empty if all is as it should be."""
    if ran.code in TIMED_OUT:
        return f"it had not ended after {check.minutes} minutes"
    if ran.code != check.code:
        return f"it ended with code {ran.code}, not {check.code}"
    lacks = [pattern for pattern in check.says if not re.search(pattern, ran.text, re.MULTILINE)]
    return f"it does not say {lacks[0]}" if lacks else ""


def last_lines(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-SHOWN:])


def write_row(table: Path, row: list[str]) -> None:
    """Puts a machine's row in the place of the one it had; the others stay, in the order of MACHINES."""
    before, begin, rest = table.read_text(encoding="utf-8").partition(MARKS[0])
    old, end, after = rest.partition(MARKS[1])
    if not end:
        raise LabError(f"{table} lacks the line {(MARKS[1] if begin else MARKS[0]).strip()}: git checkout -- {table}")
    rows = {line.split("|")[1].strip(): line for line in old.splitlines() if line.startswith("| ")}
    rows[row[0]] = _line(row)
    known = [rows[machine.name] for machine in MACHINES if machine.name in rows]
    lines = [_line(TITLES), _line(["---"] * len(TITLES)), *known]
    table.write_text("".join([before, begin, *(f"{line}\n" for line in lines), end, after]), encoding="utf-8")


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
