"""Files about the repository that others read, CIs and citations: they are as the published schemas have them, and the
version is the same in all."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tools.setup.toolchain import ROOT

SCHEMAS = {
    ".github/workflows/check.yml": "vendor.github-workflows",
    "students/.github/workflows/classroom.yml": "vendor.github-workflows",
    "students/.gitlab-ci.yml": "vendor.gitlab-ci",
    "CITATION.cff": "vendor.citation-file-format",
}


@pytest.mark.parametrize("file", SCHEMAS)
def test_each_file_is_as_its_readers_want_it(file: str) -> None:
    pytest.importorskip("check_jsonschema", reason="make check installs it")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[file], ROOT / file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_one_version() -> None:
    lab, citation, log = ((ROOT / name).read_text() for name in ("CMakeLists.txt", "CITATION.cff", "CHANGELOG.md"))
    version = re.search(r"^project\(ddp_lab VERSION (\d+\.\d+\.\d+) ", lab, re.MULTILINE)[1]
    newest, date = re.search(r"^## \[(\d+\.\d+\.\d+)\] - (\S+)$", log, re.MULTILINE).groups()
    assert f"\nversion: {version}\n" in citation and newest == version
    assert f'\ndate-released: "{date}"\n' in citation
