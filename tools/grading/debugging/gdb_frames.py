"""Read by gdb itself, for make debug: `backtrace` shows the frames of the student's files, and folds all others.

gdb -ex "source gdb_frames.py" -ex "python fold_all_but('/lab/assignments/02_overlapped_ddp')"
"""

import itertools
import os
from collections.abc import Iterable, Iterator

import gdb
from gdb.FrameDecorator import FrameDecorator


class Own(FrameDecorator):
    """A frame by its function's name, without the types of its arguments, which follow with their values."""

    def function(self) -> str | None:
        name, depth = super().function(), 0
        if not isinstance(name, str) or ")" not in name:
            return name
        for place in range(name.rindex(")"), -1, -1):
            depth += {")": 1, "(": -1}.get(name[place], 0)
            if depth == 0:
                return name[:place]
        return name


class Folded(FrameDecorator):
    """Some frames in a row, as one line, which has the number of the first."""

    def __init__(self, frames: list[FrameDecorator]) -> None:
        super().__init__(frames[0])
        self._count = len(frames)

    def function(self) -> str:
        frames = f"{self._count} frame{'s' * (self._count > 1)}"
        return f"[{frames} of the lab and its libraries: backtrace -no-filters]"

    def address(self) -> None:
        return None

    filename = line = frame_args = frame_locals = address


class OwnFrames:
    """A filter of gdb's: https://sourceware.org/gdb/current/onlinedocs/gdb.html/Frame-Filter-API.html"""

    name, priority, enabled = "own-frames", 100, True

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def filter(self, frames: Iterable[FrameDecorator]) -> Iterator[FrameDecorator]:
        for own, group in itertools.groupby(frames, self._is_own):
            alike = list(group)
            yield from map(Own, alike) if own else [Folded(alike)]

    def _is_own(self, frame: FrameDecorator) -> bool:
        table = frame.inferior_frame().find_sal().symtab
        return bool(table) and os.path.dirname(table.fullname()) == self._folder


def fold_all_but(folder: str) -> None:
    gdb.frame_filters[OwnFrames.name] = OwnFrames(folder)
