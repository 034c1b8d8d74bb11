"""The figures and tables that the writeup may show: those whose own provenance names the wanted implementation and
preset. A file name proves nothing, since files can be renamed: the provenance is in a figure's metadata (see
figures/lib/style.py) or in a table's document (see figures/lib/tables.py). A file without it counts as missing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PUBLISHED = "published"  # the preset of what does not depend on PRESET; its figures' names end with it
TABLES = "tables.json"  # all tables of the gallery, by name
METADATA_KEY = "ddp-lab"  # the text in a PNG; figures/lib/style.py writes it


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
    table: dict[str, Any] = field(default_factory=dict)  # of a table its columns, rows and note


KINDS = {"figure": "png", "table": "json"}


def tables_of(gallery: Path) -> dict[str, Any]:
    file = gallery / TABLES
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def find(kind: str, name: str, origin: Origin) -> Shown:
    """The figure or table of this name. Raises Unusable, which says what is wrong with it."""
    file = origin.file(name, KINDS[kind])
    if not file.exists():
        raise Unusable("not there yet")
    try:
        document = _figure_document(file) if kind == "figure" else json.loads(file.read_bytes())
        if kind == "table" and origin.in_gallery:
            document = document.get(name)
            if not document:
                raise Unusable("not there yet")
        wanted, found = (origin.implementation, origin.preset_of(name)), document["provenance"]
        for each in found:
            if (each["implementation"], each["preset"]) != wanted:
                whose = f"{each['implementation']}, {each['preset']} preset, not of {wanted[0]}, {wanted[1]} preset"
                raise Unusable(f"{file.name} has numbers of {whose}")
        if (document["kind"], document["name"]) != (kind, origin.full_name(name)):
            raise Unusable(f"{file.name} was made as {document['name']}, so it shows something else")
        return Shown(
            file,
            hashlib.sha256(file.read_bytes()).hexdigest()[:12],
            list(dict.fromkeys(map(_line, found))),
            {f"{_device(each)}, {each['cores']} cores ({each['host']})" for each in found},
            {each["commit"] for each in found},
            {part: document[part] for part in ("columns", "rows", "note") if part in document},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SyntaxError) as error:
        problem = f"cannot be read, or does not say where its numbers come from ({type(error).__name__}: {error})"
        raise Unusable(f"{file.name} {problem}; make it again") from None


def _figure_document(file: Path) -> Any:
    from PIL import Image  # matplotlib depends on it

    with Image.open(file) as image:
        image.load()  # raises OSError or SyntaxError if it is not whole
        return json.loads(image.info[METADATA_KEY])


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
