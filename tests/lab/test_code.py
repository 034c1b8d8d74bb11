"""What is said of the sources: format, and what the linters find."""

from __future__ import annotations

import pytest

from tools.checking import formatting
from tools.checking.context import Context


def test_format_of_cpp(context: Context) -> None:
    assert formatting.unformatted_cpp(context) == ""


def test_format_of_python(context: Context) -> None:
    assert formatting.unformatted_python(context) == ""


def test_lint_of_changed_cpp(context: Context) -> None:
    found = formatting.findings(context, formatting.changed_sources())
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_lint_of_all_cpp(context: Context) -> None:
    found = formatting.findings(context, formatting.sources("*.cpp"))
    assert not found, "\n".join(found)
