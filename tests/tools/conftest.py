"""What tests of the tools run with."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.grading_test import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A checkout to grade in; what was started there ends with the test."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it behind "&", and so would tools
    with contextlib.ExitStack() as stack:
        yield Lab(tmp_path, stack)
