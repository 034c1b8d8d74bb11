"""A picture of a terminal: what was drawn over is not in it, colours are, and text is never markup."""

from __future__ import annotations

from xml.etree import ElementTree

from tools.report import terminal_picture

SHOWN = (
    "Waiting for ...\r\n\r\033[KBuilding [0:01]\r\033[K\033[1mddp-lab\033[0m  seed 7\r\n"
    "  \033[31m✘ a < b\033[0m  0/3\r\n\r\nmake: *** [Makefile:31: test] Error 1\r\n"
)


def test_what_a_terminal_shows_at_the_end_is_drawn() -> None:
    lines = terminal_picture.lines_of(SHOWN.strip())
    drawn = ElementTree.fromstring(terminal_picture.picture(lines))
    rows = [row for row in drawn if row.tag.endswith("text")]
    texts = ["".join(row.itertext()).replace("\N{NO-BREAK SPACE}", " ") for row in rows]
    assert texts == ["ddp-lab  seed 7", "  ✘ a < b  0/3"]
    assert [part.get("fill") for part in rows[1]] == [terminal_picture.COLOURS["31"]]
