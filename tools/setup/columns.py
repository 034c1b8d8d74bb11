"""Texts that fit the terminal's width."""

from __future__ import annotations

import shutil
import textwrap

NO_TERMINAL = 1000  # a pipe or a log: lines stay whole, for grep


def columns() -> int:
    """The terminal's, or those that COLUMNS says."""
    found = shutil.get_terminal_size((NO_TERMINAL, 24)).columns
    return found if found == NO_TERMINAL else max(40, min(found, 120))


def listed(names: list[str], shown: int) -> list[str]:
    """A line for each name, and one for those beyond `shown`."""
    more = [f"  and {len(names) - shown} more"] if len(names) > shown else []
    return [f"  {name}" for name in names[:shown]] + more


def fold(text: str, width: int, hang: int = 2) -> str:
    """`text` with lines of at most `width` characters, broken at spaces: a path or a name stays whole, so that it can
    be copied. The rest of a broken line is indented like its beginning, and by `hang` more."""
    return "\n".join(_fold_line(line, width, hang) for line in text.split("\n"))


def _fold_line(line: str, width: int, hang: int) -> str:
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=indent + hang * " ",
        break_long_words=False,
        break_on_hyphens=False,
        tabsize=4,
    )


def fold_command(command: str, width: int, indent: int) -> str:
    """A command that begins in column `indent`, on as many lines as it takes; a shell reads them as one."""
    if indent + len(command) <= width:
        return command
    wrapper = textwrap.TextWrapper(width - indent - len("   \\"), break_long_words=False, break_on_hyphens=False)
    return f" \\\n{(indent + 2) * ' '}".join(wrapper.wrap(command))
