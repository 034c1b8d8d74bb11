"""make test SANITIZE=address, or undefined: the tests, with the student's library, the tests and the lab built once
more, to watch memory and undefined behaviour. No grade: results and scores of `make test` stay as they are.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from tools.grading.compiling.building import Builder
from tools.grading.debugging.sanitizer_reports import ADDRESS, DEADLINE_S, Sanitizer, found, is_installed, no_reports
from tools.grading.running.records import printable
from tools.grading.running.runner import RunOptions
from tools.grading.scoring.results import Report, Status
from tools.grading.stages import BadChoice, make_command, short_paths
from tools.setup import configuring, system_packages
from tools.setup.columns import columns, fold
from tools.setup.toolchain import BUILD_DIR, LabError, Toolchain

CHOICES: dict[str, Sanitizer] = {"address": ADDRESS, "undefined": ADDRESS}  # which share a build
FOLDER = "sanitized"
BUILD_S = {True: 460, False: 1400}  # a stage by clang, on one core: measured, busy; g++ takes three times as long
SHOWN = 8
LONGEST = 1 << 16


def refuse_what_does_not_go_with_it(options: argparse.Namespace) -> None:
    others = {"UNTRUSTED=1": options.untrusted, "DEVICE=cuda": options.device != "cpu"}
    for name in (name for name, given in others.items() if given):
        raise BadChoice(f"SANITIZE={options.sanitize} does not go with {name}: it is for your own code, on one CPU")


def prepared(tools: Toolchain, options: argparse.Namespace) -> tuple[Builder, Path]:
    """What builds it, configured, and the folder of its results."""
    if missing := [need for need in system_packages.sanitizers_of(tools.cxx) if need.missing()]:
        system_packages.provide(missing, BUILD_DIR / "setup.log")
    if not is_installed(ADDRESS, tools.cxx):
        raise LabError(f"{tools.cxx} has no {ADDRESS.title} here. Another compiler may: CXX=g++ make test ...")
    other = replace(tools, build_dir=str(Path(tools.build_dir) / FOLDER))
    folder = Path(other.build_dir)
    print(fold(told(options, tools.cxx, (folder / "bin").exists()), columns()), flush=True)
    configure(other, folder)
    return Builder(other), folder / "grade"


def told(options: argparse.Namespace, cxx: str, built_before: bool) -> str:
    cores = len(os.sched_getaffinity(0))
    minutes = max(1, round(BUILD_S[system_packages.is_clang(cxx)] / 60 / cores))
    first = f" Building it takes about {minutes} min on {cores} core{'s' * (cores > 1)} this first time, later seconds."
    return (
        f"SANITIZE={options.sanitize}: {ADDRESS.title} watch your code, the tests and the lab, built once more in "
        f"build/{FOLDER}.{'' if built_before else first} Tests take several times as long, a stage a minute or more. "
        "This is no grade: the scores of make test, and what make submit packs, stay as they are."
    )


def configure(tools: Toolchain, folder: Path) -> None:
    """Again when the set-up has chosen anew."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen, done = BUILD_DIR / "toolchain.json", folder / "CMakeCache.txt"
    if (folder / "build.ninja").exists() and done.stat().st_mtime > chosen.stat().st_mtime:
        return
    configuring.run_cmake(tools, BUILD_DIR / "setup.log", f"-DSANITIZE={ADDRESS.flag}")


def watching(run: RunOptions, folder: Path) -> RunOptions:
    """A run whose processes write reports, each to a file of its own."""
    environment = {**run.environment, **ADDRESS.environment(no_reports(reports_of(folder)))}
    return replace(run, deadline_s=DEADLINE_S, environment=environment)


def reports_of(folder: Path) -> Path:
    return folder / "reports" / "report"


def tell(report: Report, test: str, folder: Path) -> int:
    """Prints what was found; returns 0 if that is nothing and all tests passed."""
    own = f"{report.impl}/"
    findings, name = found(reports_of(folder), own), f"SANITIZE={report.sanitize}"
    lines = [""]
    for text, path in list(findings.values())[:SHOWN]:
        whose = "" if f"    {own}" in text else "\n(no line of it is in your files: tell the course, if it stays)"
        lines += [f"{printable(text, LONGEST)}{whose}\n  all of it: {short_paths(str(path))}\n"]
    if len(findings) > SHOWN:
        lines.append(f"{len(findings) - SHOWN} more in {short_paths(str(reports_of(folder).parent))}\n")
    if findings:
        lines.append(f"{name} found {len(findings)}, see above; the first may cause the others.")
    elif broken := [stage.stage.title for stage in report.stages if stage.build_error]:
        lines.append(f"{name} looked at nothing of {', '.join(broken)}: see above.")
    else:
        failed = any(result.status is Status.FAILED for result in report.results)
        alone = " A test that fails here alone had too little time or memory, which is no mistake of yours." * failed
        lines.append(f"{name} found nothing.{alone}")
    stage = report.stages[0].stage if len(report.stages) == 1 else None
    lines.append(f"No grade. For that: {make_command('test', stage, report.impl, test=test)}")
    print(fold("\n".join(lines), columns()), flush=True)
    return 0 if report.full_marks() and not findings else 1
