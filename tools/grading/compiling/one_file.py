"""make test STAGE=02 FILE=x.cpp: a file in the place of the student's, which stays as it is."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tools.grading.compiling.building import Builder, Watch, regular_content
from tools.grading.compiling.compile_errors import condense
from tools.grading.compiling.confined import library_command, output_of
from tools.grading.scoring.results import DOES_NOT_COMPILE
from tools.grading.stages import BadChoice, Stage
from tools.setup.toolchain import Toolchain


class OneFile(Builder):
    def __init__(self, toolchain: Toolchain, file: Path, folder: Path) -> None:
        super().__init__(toolchain)
        if not file.is_file():
            raise BadChoice(f"FILE={file} is no file; it takes the place of the stage's .cpp file, as in FILE=mine.cpp")
        self._file, self._library = file.absolute(), folder / "libstage.so"
        folder.mkdir(parents=True, exist_ok=True)

    def library(self, stage: Stage, impl: str) -> Path:
        return self._library

    def digest(self, stage: Stage, impl: str) -> str:
        return hashlib.sha256(regular_content(self._file)).hexdigest()

    def build_stage(self, stage: Stage, impl: str, watch: Watch, debug: bool = False) -> str:
        self._build_common(["ddp", f"tests_{stage.name}"], watch)
        self.problems[stage.name] = DOES_NOT_COMPILE
        return condense(output_of(library_command(stage, self._library, [self._file])))
