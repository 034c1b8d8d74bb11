"""What all tests run with."""

import os
from pathlib import Path

import pytest

os.environ.pop("COLUMNS", None)  # pytest's width is none of the programs' that are tested


@pytest.fixture(autouse=True)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Tests of a class have an empty folder of their own, too."""
    if request.instance is not None:
        request.instance.folder = tmp_path
