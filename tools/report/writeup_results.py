"""The figures and tables that the writeup may show: those whose own provenance names the wanted implementation and
preset. A file name proves nothing, since files can be renamed: the provenance is in a figure's metadata (see
figures/lib/style.py) or in a table's document (see figures/lib/tables.py). A file without it counts as missing.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PUBLISHED = "published"  # the preset of what does not depend on PRESET; its figures' names end with it
TABLES = "tables.json"  # all tables of the gallery, by name
METADATA_KEY = "ddp-lab"  # the text in a PNG; figures/lib/style.py writes it
SIGNATURE = b"\x89PNG\r\n\x1a\n"
# The line under each figure needs these.
FIELDS = ("program", "implementation", "preset", "host", "cpu", "gpu", "cores", "device", "world_size", "backend",
          "torch", "commit", "date")  # fmt: skip


class Unusable(Exception):
    """Why a file cannot be shown."""


@dataclass(frozen=True)
class Origin:
    """Whose results are wanted, and where they are: figures/out, or the gallery of the solutions' quick ones."""

    folder: Path
    implementation: str
    preset: str
    in_gallery: bool

    def file(self, name: str, ending: str) -> Path:
        if self.in_gallery:
            return self.folder / (TABLES if ending == KINDS["table"] else f"{name}.{ending}")
        return self.folder / f"{self.full_name(name)}.{ending}"

    def names(self, ending: str) -> list[str]:
        """The names of the files there of this implementation and preset."""
        if self.in_gallery and ending == KINDS["table"]:
            return sorted(tables_of(self.folder))
        if self.in_gallery:
            return sorted(file.stem for file in self.folder.glob(f"*.{ending}"))
        names = []
        for preset, kept in ((self.preset, ""), (PUBLISHED, f".{PUBLISHED}")):
            tail = f".{self.implementation}.{preset}.{ending}"
            names += [file.name.removesuffix(tail) + kept for file in self.folder.glob(f"*{tail}")]
        return sorted(names)

    def preset_of(self, name: str) -> str:
        return PUBLISHED if name.endswith(f".{PUBLISHED}") else self.preset

    def full_name(self, name: str) -> str:
        """The name that figures/lib/script.py gives to figures and tables."""
        return f"{name.removesuffix(f'.{PUBLISHED}')}.{self.implementation}.{self.preset_of(name)}"


@dataclass(frozen=True)
class Shown:
    """A figure or table that can be shown. All its numbers are from `machines` and `commits`."""

    file: Path
    digest: str  # differs between two drawings of it
    lines: list[str]  # where its numbers come from, in words
    machines: set[str] = field(default_factory=set)
    commits: set[str] = field(default_factory=set)
    programs: set[str] = field(default_factory=set)
    table: dict[str, Any] = field(default_factory=dict)  # of a table its columns, rows and note


KINDS = {"figure": "png", "table": "json"}


def tables_of(gallery: Path) -> dict[str, Any]:
    file = gallery / TABLES
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def find(kind: str, name: str, origin: Origin) -> Shown:
    """The figure or table of this name. Raises Unusable, which says what is wrong with it."""
    file = origin.file(name, KINDS[kind])
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise Unusable("not there yet") from None
    except OSError as error:
        raise Unusable(f"{file.name} cannot be read: {error.strerror}") from None
    if kind == "figure":
        document = _figure_document(file, content)
    else:
        document = _table_document(file, content, name if origin.in_gallery else "")
    provenance = _checked(file, document, name, origin)
    return Shown(
        file,
        hashlib.sha256(content).hexdigest()[:12],
        list(dict.fromkeys(map(_line, provenance))),
        {f"{_device(each)}, {each['cores']} cores ({each['host']})" for each in provenance},
        {each["commit"] for each in provenance},
        {each["program"] for each in provenance},
        {part: document[part] for part in ("columns", "rows", "note") if part in document},
    )


def _figure_document(file: Path, content: bytes) -> Any:
    texts = _png_texts(file, content)
    if METADATA_KEY not in texts:
        raise Unusable(f"{file.name} does not say where its numbers come from; draw it again")
    try:
        return json.loads(texts[METADATA_KEY])
    except ValueError:
        raise Unusable(f"{file.name} does not say readably where its numbers come from; draw it again") from None


def _png_texts(file: Path, content: bytes) -> dict[str, str]:
    """The tEXt chunks of a PNG (ISO 15948, section 11.3.4.3); checks that it is whole, and each chunk's checksum."""
    damaged = Unusable(f"{file.name} is not a whole PNG; draw it again")
    if not content.startswith(SIGNATURE):
        raise damaged
    texts, place = {}, len(SIGNATURE)
    while place + 12 <= len(content):
        (length,) = struct.unpack_from(">I", content, place)
        end = place + 12 + length
        if end > len(content):
            raise damaged
        (checksum,) = struct.unpack_from(">I", content, end - 4)
        if zlib.crc32(content[place + 4 : end - 4]) != checksum:
            raise damaged
        kind, data = content[place + 4 : place + 8], content[place + 8 : end - 4]
        if kind == b"tEXt" and b"\0" in data:
            key, text = data.split(b"\0", 1)
            texts[key.decode("latin-1")] = text.decode("latin-1")
        if kind == b"IEND":
            return texts
        place = end
    raise damaged


def _table_document(file: Path, content: bytes, name: str) -> Any:
    """The table in a file; in the gallery's file that of this name."""
    try:
        document = json.loads(content)
    except ValueError:
        raise Unusable(f"{file.name} is not JSON; make it again") from None
    if name and isinstance(document, dict):
        if name not in document:
            raise Unusable("not there yet")
        document = document[name]
    if not isinstance(document, dict) or document.get("kind") != "table":
        raise Unusable(f"{file.name} is not a table; make it again")
    columns, rows = document.get("columns"), document.get("rows")
    if not _is_row(columns) or not columns or not isinstance(rows, list) or not rows:
        raise Unusable(f"{file.name} has no columns or no rows; make it again")
    if not all(_is_row(row) and len(row) == len(columns) for row in rows):
        raise Unusable(f"{file.name} has a row that does not fit its columns; make it again")
    return document


def _is_row(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _checked(file: Path, document: Any, name: str, origin: Origin) -> list[dict[str, Any]]:
    """The provenance of all numbers, checked to be of the wanted implementation and preset."""
    provenance = document.get("provenance") if isinstance(document, dict) else None
    if not isinstance(provenance, list) or not provenance:
        raise Unusable(f"{file.name} does not say where its numbers come from; draw it again")
    for each in provenance:
        lacking = [key for key in FIELDS if key not in each] if isinstance(each, dict) else list(FIELDS)
        if lacking:
            raise Unusable(f"{file.name} does not say of which {', '.join(lacking)} its numbers are; draw it again")
        wanted = (origin.implementation, origin.preset_of(name))
        if (each["implementation"], each["preset"]) != wanted:
            raise Unusable(
                f"{file.name} has numbers of {each['implementation']}, {each['preset']} preset, "
                f"not of {wanted[0]}, {wanted[1]} preset"
            )
    if document.get("name") != origin.full_name(name):
        raise Unusable(f"{file.name} was drawn as {document.get('name')}, so it shows something else")
    return provenance


def _device(provenance: dict[str, Any]) -> str:
    return str(provenance["gpu"] if provenance["device"] == "cuda" else provenance["cpu"])


def _line(provenance: dict[str, Any]) -> str:
    ranks = provenance["world_size"]
    return " · ".join(
        (
            f"{provenance['implementation']}, {provenance['preset']} preset",
            f"{_device(provenance)}, {provenance['cores']} cores, host {provenance['host']}",
            f"{ranks} rank{'' if ranks == 1 else 's'}, {provenance['backend']}",
            f"torch {provenance['torch']}",
            str(provenance["date"])[:10],
            f"commit {str(provenance['commit'])[:18]}",
        )
    )
