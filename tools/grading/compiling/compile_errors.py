"""What a compiler or a linker said, in a few lines."""

from __future__ import annotations

import os
import re

from tools.grading.stages import short_paths
from tools.setup.columns import fold

ERRORS_SHOWN = 3
NOTES_SHOWN = 4  # of one error: the candidates of a call, for one
_PLACE = r"^(?P<place>[^\s:][^:]*:\d+):(?:\d+:)? "
_ERROR = re.compile(_PLACE + r"(?:fatal )?error: ")
_NOTE = re.compile(_PLACE + r"note: ")
_NEXT = re.compile(_PLACE + r"(?:fatal error|error|warning): |^\d+ (?:errors?|warnings?) |^(?:FAILED|ninja): ")
_LINKER_ERROR = re.compile(r"multiple definition|ld(\.\w+)?: (error|cannot)|cannot find -l")
_UNDEFINED = re.compile(  # as lld says it, and as GNU's linker does
    r"error: undefined symbol: (?P<lld>.+)\n>>> referenced by (?:\S+ \()?(?P<there>[^\s()]+)"
    r"|^(?:\S*\bld[.\w]*: )?(?P<here>[^\s:]+:\S*): undefined reference to [`'](?P<gnu>.+)'$",
    re.MULTILINE,
)
# A function of libtorch or of the C++ library, whatever it returns.
_NOT_THE_STAGES = re.compile(r"(?:^|[\s&*])(?:at|c10|c10d|caffe2|std|torch)::[^()]*\(")
_CALLER = re.compile(r"(assignments|solutions)/.*required from")
_POINTER = re.compile(r"^[\s|]*[~^][\s~^|]*$")
_LINES_OF_SOURCE = 3
_CUT = "..."
_FULL_DISK = re.compile(r"No space left on device|Disk quota exceeded|ld terminated with signal 7")


def condense(log: str) -> str:
    """The first errors of a compiler's log, each with its source line and what explains it; paths as seen from the
    checkout."""
    lines = [_without_detour(line) for line in short_paths(log).splitlines()]
    errors = [index for index, line in enumerate(lines) if _ERROR.match(line)]
    shown = [line for index in errors[:ERRORS_SHOWN] for line in _whole_error(lines, index)]
    if not errors:
        undefined = _undefined(log)
        linkers = undefined or [line for line in lines if _LINKER_ERROR.search(line)]
        shown = linkers[:ERRORS_SHOWN] or lines[-15:]
    if len(errors) > ERRORS_SHOWN:
        shown.append(f"... and {len(errors) - ERRORS_SHOWN} more errors, which may follow from these")
    if full_disk(log):
        shown.append("The disk is full: free some space and run again.")
    if re.search(r"Killed signal terminated program|std::bad_alloc|out of memory", log):
        shown.append("The compiler ran out of memory: close other programs, or set CMAKE_BUILD_PARALLEL_LEVEL=1.")
    return "\n".join(shown)


def _undefined(log: str) -> list[str]:
    """What is used and defined nowhere: each once, with the first place that uses it."""
    places: dict[str, str] = {}
    for found in _UNDEFINED.finditer(short_paths(log)):
        places.setdefault(found["lld"] or found["gnu"], found["there"] or found["here"])
    return [f"{place}: {name} {_why_undefined(name)}" for name, place in places.items()]


def _why_undefined(name: str) -> str:
    if name.startswith("vtable for "):
        return "is nowhere defined: the first virtual function of that type has no body"
    if _NOT_THE_STAGES.search(name):
        return (
            "is in no library here, though a header of libtorch's or of the C++ library declares it. Where such a "
            "function is right, this compiler does not fit that library: make doctor"
        )
    return "is declared and used, but nowhere defined"


def full_disk(log: str) -> str:
    """The line that says that what was built did not fit on the disk; empty if it did."""
    return next((line for line in log.splitlines() if _FULL_DISK.search(line)), "")


def _without_detour(line: str) -> str:
    """/usr/bin/../include/x.h:1: as /usr/include/x.h:1:, for clang names its library's headers so, and libtorch's from
    torch/ on."""
    path, colon, rest = line.partition(":")
    path = os.path.normpath(path) if "/../" in path else path
    return path.rpartition("/site-packages/")[2] + colon + rest


def _whole_error(lines: list[str], index: int) -> list[str]:
    block = _with_source(lines, index)
    if not lines[index].startswith(("assignments/", "solutions/")):  # an error within a template: find its caller
        callers = [line for line in lines[max(0, index - 30) : index] if _CALLER.match(line)]
        block += callers[-1:]
    notes = _notes_of(lines, index)
    block += [line for note in notes[:NOTES_SHOWN] for line in _with_source(lines, note)]
    return block + ([f"[... {len(notes) - NOTES_SHOWN} more notes ...]"] if len(notes) > NOTES_SHOWN else [])


def _notes_of(lines: list[str], index: int) -> list[int]:
    """The notes that follow an error, until something else is said."""
    notes = []
    for number, line in enumerate(lines[index + 1 :], start=index + 1):
        if _NEXT.match(line):
            break
        if _NOTE.match(line):
            notes.append(number)
    return notes


def _with_source(lines: list[str], index: int) -> list[str]:
    """A message, and the source below it down to the line that points into it."""
    below = lines[index + 1 : index + 1 + _LINES_OF_SOURCE]
    pointer = next((count for count, line in enumerate(below, start=1) if _POINTER.match(line)), 0)
    return [lines[index], *below[:pointer]]


def fit(text: str, width: int) -> str:
    """Condensed errors in lines of at most `width` characters: of source, the part that is pointed at."""
    lines = text.split("\n")
    shown = []
    while lines:
        line = lines.pop(0)
        if lines and _POINTER.match(lines[0]):
            shown += _window(line, lines.pop(0), width)
        else:
            shown.append(fold(line, width))
    return "\n".join(shown)


def _window(source: str, pointer: str, width: int) -> list[str]:
    if len(source) <= width:
        return [source, pointer]
    begin = max(0, min(pointer.index("^") - width // 2, len(source) - width))
    shown = source[begin : begin + width]
    if begin:
        shown = _CUT + shown[len(_CUT) :]
    if begin + width < len(source):
        shown = shown[: -len(_CUT)] + _CUT
    return [shown, pointer[begin : begin + width]]
