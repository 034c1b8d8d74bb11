"""Which tests a test program has. The answer is cached: starting the program just to ask takes a while."""

from __future__ import annotations

import contextlib
import json
import subprocess
from dataclasses import asdict
from pathlib import Path

from tools.grading.scoring.results import TestSpec, replace_file
from tools.setup.toolchain import LabError

LIST_S = 600  # it loads libtorch, which on a slow machine beside other work takes a minute


class TestLists:
    """Lists kept in `folder`, each valid until its program is built again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lists: dict[Path, list[TestSpec]] = {}

    def of(self, program: Path) -> list[TestSpec]:
        if program not in self._lists:
            self._lists[program] = self._recall(program) or ask(program)
        return self._lists[program]

    def remember(self) -> None:
        """Called when no student code runs any more, which could have touched the cache."""
        for program, specs in self._lists.items():
            with contextlib.suppress(OSError):  # the cache only saves time
                replace_file(self._kept(program), json.dumps([asdict(spec) for spec in specs]).encode())

    def _kept(self, program: Path) -> Path:
        return self._folder / f"{program.name}.json"

    def _recall(self, program: Path) -> list[TestSpec]:
        code = program.parent.parent / "lib" / f"lib{program.name}_code.so"
        try:
            built = max(path.stat().st_mtime_ns for path in (program, code))
            if self._kept(program).stat().st_mtime_ns > built:
                return [TestSpec(**test) for test in json.loads(self._kept(program).read_bytes())]
        except (OSError, ValueError, TypeError):
            pass
        return []


def ask(program: Path) -> list[TestSpec]:
    """Asks the program; runs no student code."""
    said = ""
    try:
        done = subprocess.run(
            [str(program), "--list"], capture_output=True, text=True, timeout=LIST_S, stdin=subprocess.DEVNULL
        )
        said = done.stderr[-2000:]
        return [TestSpec(**test) for test in json.loads(done.stdout)]
    except OSError as error:
        raise LabError(f"{program}: {error.strerror}. Build the lab: make setup") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{program} --list took more than {LIST_S} s, where seconds are due. Try again.") from None
    except (ValueError, TypeError):
        raise LabError(f"{program} --list does not list its tests. This is not your stage's fault.\n{said}") from None
