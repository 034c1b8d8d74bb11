"""Helpers for tests of one stage's benchmark, which run it on the solution, and on the stub of the assignment."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import subprocess
import time
import unittest
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

from tests.harness.test_launch import environment
from tools.setup import toolchain

BUILD = toolchain.BUILD_DIR
UNFINISHED, REFUSED = 3, 4
SECONDS = 120
ATTEMPTS = 5  # to stop a program before it ends by itself
SHARED_MEMORY = ("--backend=shm",)  # where Gloo is not what is tested: on busy cores it takes four times as long
slow = pytest.mark.slow


class ProgramTest(unittest.TestCase):
    program: str
    stage: str  # that it measures
    stages: tuple[str, ...] = ()  # that it measures, if there are several
    flags: tuple[str, ...] = ()  # of each run

    def setUp(self) -> None:
        libraries = [
            BUILD / "stages" / impl / stage / "libstage.so"
            for impl in ("solutions", "assignments")
            for stage in (self.stages or (self.stage,))
        ]
        for file in (BUILD / "bin" / self.program, *libraries):
            if not file.exists():
                self.skipTest(f"{file} is not built")
        self.result = self.folder / "result.json"

    @property
    def partial(self) -> Path:
        return self.result.with_name(self.result.name + ".partial")

    def command(self, *flags: object, impl: str = "solutions") -> list[object]:
        return [BUILD / "bin" / self.program, "--impl", impl, "--output", self.result, *self.flags, *map(str, flags)]

    def start(self, *flags: object, impl: str = "solutions", **variables: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*flags, impl=impl), cwd=self.folder, env=environment(**variables), text=True,
            capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    def run_well(self, *flags: object, impl: str = "solutions", **variables: object) -> dict[str, Any]:
        ended = self.start(*flags, impl=impl, **variables)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.output = ended.stdout
        return json.loads(self.result.read_text())

    def series(self, document: dict[str, Any], **labels: object) -> list[dict[str, Any]]:
        return [one for one in document["series"] if labels.items() <= one["labels"].items()]

    def assert_refused(self, message: str, *flags: object, code: int = 1, **variables: object) -> None:
        ended = self.start(*flags, **variables)
        self.assertEqual(ended.returncode, code, ended.stderr)
        self.errors = ended.stderr
        self.assertIn(message, self.errors)
        self.assertFalse(self.result.exists())

    def assert_unfinished(self, *flags: object) -> None:
        self.assert_refused(f"{self.stage} is unfinished: TODO(student)", *flags, code=UNFINISHED, impl="assignments")

    def assert_paper_needs(self, hardware: str) -> None:
        """One line, and nothing is measured: --device cpu is not the published hardware, whatever the machine has."""
        ended = self.start("--preset", "paper", "--device", "cpu")
        self.assertEqual(ended.returncode, REFUSED, ended.stderr)
        self.assertIn(f"on its own hardware, {hardware}: --device cpu was asked for.", ended.stderr)
        self.assertEqual((ended.stdout, ended.stderr.count("\n"), list(self.folder.iterdir())), ("", 1, []))

    def assert_presets_are_described(self, *words: str) -> None:
        help_text = self.start("--help").stdout
        for word in ("Presets:\n  quick  ", "\n  full   ", "\n  paper  ", *words):
            self.assertIn(word, help_text)

    def assert_drawn(self, *modules: str, files: int = 2) -> None:
        """The result has everything that these modules, or by default the program's own, need."""
        if not importlib.util.find_spec("matplotlib"):
            self.skipTest("this Python has no matplotlib")
        for module in modules or (f"plots.{self.program}",):
            folder, said = self.folder / module, io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = importlib.import_module(f"figures.{module}").main([f"--data={self.result}", f"--out={folder}"])
            self.assertEqual(code, 0, said.getvalue())
            self.assertEqual(len(list(folder.iterdir())), files)

    def assert_output_is_checked(self, *flags: object) -> None:
        (self.folder / "file").touch()
        self.result = self.folder / "file" / "result.json"
        ended = self.start(*flags)
        self.assertEqual((ended.returncode, ended.stdout), (1, ""), ended.stderr)  # before anything is measured
        self.assertIn("Not a directory", ended.stderr)

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
                self.assertFalse(self.result.exists())
                return
        self.fail(f"{self.program} was always faster than its end: give it more to do")

    def resume(self, rows: int, *flags: object) -> tuple[dict[str, Any], dict[str, Any]]:
        """The results of a run that was stopped after this many rows and resumed, and of an uninterrupted one."""
        self.stop_after(rows, *flags)
        saved = self.saved_rows()
        self.assertGreaterEqual(saved, rows)
        resumed = self.run_well(*flags, "--resume")
        self.assertTrue(self.output.startswith(f"{saved} rows are taken over from {self.partial}\n"), self.output)
        self.assertFalse(self.partial.exists())
        whole = self.run_well(*flags)
        for part in ("program", "parameters"):
            self.assertEqual(resumed[part], whole[part])
        for document in (resumed, whole):
            for changing in ("date", "command"):
                del document["provenance"][changing]
        self.assertEqual(resumed["provenance"], whole["provenance"])
        forms = [[(one["labels"], one["unit"], len(one["values"])) for one in d["series"]] for d in (resumed, whole)]
        self.assertEqual(*forms)
        return resumed, whole

    def assert_not_resumed_otherwise(self, flags: tuple[object, ...], other: tuple[object, ...], message: str) -> None:
        """Rows that were measured in another way are refused, and kept."""
        self.stop_after(1, *flags)
        saved = self.partial.read_bytes()
        self.assert_refused(message, *other, "--resume")
        self.assertEqual(self.partial.read_bytes(), saved)
        self.partial.write_bytes(saved[:9])
        self.assert_refused(f"{self.partial} is corrupt", *flags, "--resume")
