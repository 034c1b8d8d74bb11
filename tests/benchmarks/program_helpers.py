"""Helpers for tests of measuring programs, which run them on solutions and stubs."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.common.test_launch import environment
from tools.setup import toolchain

ROOT = Path(__file__).resolve().parents[2]
BUILD = toolchain.BUILD_DIR
MISUSED, UNFINISHED, REFUSED = 2, 3, 4
SECONDS = 120
ATTEMPTS = 5  # to stop a program before it ends by itself
AVERAGING = ("01_naive_ddp", "02_overlapped_ddp", "03_bucketed_ddp")


def series(document: dict[str, Any], **labels: object) -> list[dict[str, Any]]:
    return [one for one in document["series"] if labels.items() <= one["labels"].items()]


def values(document: dict[str, Any], **labels: object) -> list[float]:
    """Of the only series with these labels."""
    (one,) = series(document, **labels)
    return one["values"]


class ProgramTest:
    """What it runs is built first, by a mark `builds`."""

    program: str
    subcommand = ""  # or an experiment, or both

    @pytest.fixture(autouse=True)
    def set_up(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.result = tmp_path / "result.json"

    @property
    def partial(self) -> Path:
        return self.result.with_name(self.result.name + ".partial")

    def command(self, *flags: object, impl: str = "solutions") -> list[object]:
        """Without `impl` for a program that measures no stage."""
        whose = ["--impl", impl] if impl else []
        words = [BUILD / "bin" / self.program, *self.subcommand.split(), *whose]
        return [*words, "--output", self.result, *map(str, flags)]

    def start(self, *flags: object, impl: str = "solutions", **variables: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*flags, impl=impl), cwd=self.folder, env=environment(**variables), text=True,
            capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    def run_well(self, *flags: object, impl: str = "solutions", **variables: object) -> dict[str, Any]:
        ended = self.start(*flags, impl=impl, **variables)
        assert ended.returncode == 0, ended.stderr
        self.output = ended.stdout
        return json.loads(self.result.read_text())

    def assert_refused(
        self, message: str, *flags: object, code: int = 1, impl: str = "solutions", **variables: object
    ) -> str:
        """The errors, which have the message."""
        ended = self.start(*flags, impl=impl, **variables)
        assert ended.returncode == code, (flags, ended.stderr)
        assert message in ended.stderr, (flags, ended.stderr)
        assert not self.result.exists()
        return ended.stderr

    def saved_rows(self) -> int:
        try:
            rows = self.partial.read_text().splitlines(keepends=True)[1:]  # the last may be half of one
            return len({str(json.loads(row)["labels"]) for row in rows if row.endswith("\n")})
        except FileNotFoundError:  # not there yet, or the result has taken its place
            return 0

    def stop_after(self, rows: int, *flags: object) -> None:
        """Kills a run when it has saved this many rows, or a few more."""
        for _ in range(ATTEMPTS):
            self.result.unlink(missing_ok=True)
            self.partial.unlink(missing_ok=True)
            process = subprocess.Popen(
                self.command(*flags), cwd=self.folder, env=environment(), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                while process.poll() is None and self.saved_rows() < rows:
                    time.sleep(0.005)
            finally:
                process.kill()
                process.wait()
            if self.partial.exists():
                assert not self.result.exists()
                return
        pytest.fail(f"{self.program} was always faster than its end: give it more to do")

    def resume(self, rows: int, *flags: object) -> tuple[dict[str, Any], dict[str, Any]]:
        """The results of a run that was stopped after this many rows and resumed, and of an uninterrupted one."""
        self.stop_after(rows, *flags)
        saved = self.saved_rows()
        assert saved >= rows
        resumed = self.run_well(*flags, "--resume")
        assert self.output.startswith(f"{saved} rows are taken over from {self.partial}\n"), self.output
        assert not self.partial.exists()
        whole = self.run_well(*flags)
        for document in (resumed, whole):
            for changing in ("date", "command"):
                del document["provenance"][changing]
        for part in ("program", "provenance", "parameters"):
            assert resumed[part] == whole[part]
        forms = [[(one["labels"], one["unit"], len(one["values"])) for one in d["series"]] for d in (resumed, whole)]
        assert forms[0] == forms[1]
        return resumed, whole
